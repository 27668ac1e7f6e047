"""Tests of `shunt train` and `shunt bench train`."""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SHUNT = os.path.abspath(sys.argv.pop(1))

MODEL = {"name": "small", "layers": 2, "hidden": 32, "ffn_hidden": 48, "vocabulary": 256, "sequence": 32, "sequences_per_rank": 4,
         "dtype": "f32", "positions": "rope", "norm": "rms", "activation": "swiglu", "attention": {"kind": "fused", "heads": 2},
         "moe": {"experts": 8, "hidden": 32, "gate": {"scores": "softmax", "topk": 2, "balance_loss": 0.01}},
         "optimizer": {"kind": "adam", "rate": 0.01}}


class Train(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "model.json").write_text(json.dumps(MODEL))
        words = ["alpha", "beta", "gamma", "delta"]
        draw = random.Random(1)
        (self.folder / "text.txt").write_text(" ".join(draw.choice(words) for _ in range(8000)))

    def command(self, *arguments, verb=("train",)):
        return [SHUNT, *verb, "--model", "model.json", "--corpus", "text.txt", "--warmup", "5", *map(str, arguments)]

    def run_verb(self, *arguments, verb=("train",), status=0):
        done = subprocess.run(self.command(*arguments, verb=verb), cwd=self.folder, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def losses(self, name):
        return json.loads((self.folder / name).read_text())["runs"][0]["losses"]

    def test_learns_and_says_so(self):
        done = self.run_verb("--steps", 150, "--evaluate-every", 50, "--json", "run.json", "--trace", "trace.json")
        run = json.loads((self.folder / "run.json").read_text())["runs"][0]
        bits = [each["bits_per_byte"] for each in run["held_out"]]
        self.assertEqual([each["step"] for each in run["held_out"]], [50, 100, 150])
        self.assertLess(bits[-1], 2.0)
        self.assertLess(bits[-1], 0.5 * run["losses"][0])
        self.assertIn("150 steps", done.stdout)
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        self.assertTrue(any("dispatch" in event["name"] for event in events))

    def test_every_schedule_and_world_computes_the_same(self):
        self.run_verb("--steps", 6, "--json", "plain.json")
        for options in [["--schedule", "shunt"], ["--schedule", "lancet"], ["--world", "inproc"], ["--link-rate", 2000],
                        ["--ranks", 4, "--batch", 8], ["--ranks", 1, "--batch", 8]]:
            self.run_verb("--steps", 6, "--json", "other.json", *options)
            for a, b in zip(self.losses("plain.json"), self.losses("other.json"), strict=True):
                self.assertAlmostEqual(a, b, delta=1e-5 * a, msg=str(options))

    def test_resumes_bit_for_bit(self):
        self.run_verb("--steps", 8, "--checkpoint", "whole")
        self.run_verb("--steps", 8, "--checkpoint", "half", "--checkpoint-every", 4)
        self.assertEqual((self.folder / "whole").read_bytes(), (self.folder / "half").read_bytes())
        job = subprocess.Popen(self.command("--steps", 100000, "--checkpoint", "stopped"), cwd=self.folder, stdout=subprocess.PIPE,
                               text=True)
        time.sleep(2)
        job.send_signal(signal.SIGINT)
        output = job.communicate(timeout=60)[0]
        self.assertEqual(job.returncode, -signal.SIGINT, output)
        self.assertIn("--resume continues from stopped", output)
        done = self.run_verb("--steps", 1, "--checkpoint", "stopped", "--resume")
        self.assertIn("nothing left to do", done.stdout)

    def test_a_killed_training_leaves_the_last_checkpoint_whole(self):
        for attempt in range(6):
            rises = ["--warmup", 100000]  # so that the rate does not depend on --steps
            job = subprocess.Popen(self.command("--steps", 100000, "--checkpoint", "kept", "--checkpoint-every", 1, *rises),
                                   cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            deadline = time.monotonic() + 60
            while not (self.folder / "kept").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(random.Random(attempt).uniform(0, 0.3))
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            resumed = self.run_verb("--steps", 1, "--checkpoint", "kept", "--resume").stdout
            self.assertIn("resumed kept at step", resumed)
            steps = int(resumed.split("at step ")[1].split()[0])
            self.run_verb("--steps", steps, "--checkpoint", "fresh", *rises)
            again = self.folder / "fresh"
            self.assertEqual(again.read_bytes(), (self.folder / "kept").read_bytes())
            (self.folder / "kept").unlink()
            again.unlink()
        # A kill within the microseconds between the file's name and its last one leaves it under the first.
        left = {path.name for path in self.folder.iterdir()} - {"model.json", "text.txt"}
        self.assertLessEqual(len(left), 1, left)

    def test_a_rank_that_dies_is_named(self):
        job = subprocess.Popen(self.command("--steps", 100000, "--checkpoint", "kept", "--checkpoint-every", 1, "--ranks", 4, "--batch", 8),
                               cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not (self.folder / "kept").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        children = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True, check=True).stdout.split()
        os.kill(int(children[2]), signal.SIGKILL)
        errors = job.communicate(timeout=60)[1]
        self.assertEqual(job.returncode, 1)
        self.assertIn("signal 9", errors)

    def test_wrong_requests_are_refused_with_the_cause(self):
        for arguments, status, text in [
            (["--schedule", "fast"], 2, "fast"),
            (["--steps", 0], 2, "--steps"),
            (["--batch", 7], 1, "2 ranks can't share it evenly"),
            (["--resume"], 1, "which --checkpoint?"),
            (["--checkpoint", "model.json", "--resume"], 1, "model.json: is no checkpoint of shunt"),
            (["--world", "env"], 1, "no launcher"),
            (["--world", "inproc", "--link-rate", 5], 1, "needs ranks that are processes"),
            (["--corpus", "nothing.txt"], 1, "nothing.txt"),
        ]:
            done = self.run_verb(*arguments, status=status)
            self.assertIn(text, done.stderr)
        small = dict(MODEL, vocabulary=100)
        (self.folder / "model.json").write_text(json.dumps(small))
        self.assertIn("bytes need 256", self.run_verb(status=1).stderr)

    def test_an_installed_program_says_what_to_give(self):
        installed = self.folder / "shunt"
        os.link(SHUNT, installed) if os.stat(SHUNT).st_dev == os.stat(self.folder).st_dev else installed.write_bytes(
            pathlib.Path(SHUNT).read_bytes())
        installed.chmod(0o755)
        done = subprocess.run([installed, "train", "--steps", "1"], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--corpus", done.stderr)

    def test_the_benchmark_compares_schedules_that_compute_the_same(self):
        done = self.run_verb("--turns", 5, "--link-rate", 500, "--evaluate", "--json", "bench.json", verb=("bench", "train"))
        report = json.loads((self.folder / "bench.json").read_text())
        self.assertEqual([run["schedule"] for run in report["runs"]], ["plain", "tutel", "lancet", "shunt"])
        self.assertIn("emulated links", done.stdout)
        self.assertIn("shunt exposes", done.stdout)
        for run in report["runs"]:
            self.assertEqual(len(run["steps_ms"]), 5)
            self.assertEqual(len(run["losses"]), 7)
            self.assertEqual(run["equal_steps"], 7)
            self.assertEqual(run["held_out"][0]["step"], 7)
            self.assertLess(run["held_out"][0]["bits_per_byte"], run["losses"][0])
            self.assertEqual(run["cross_node_bytes"], report["runs"][0]["cross_node_bytes"])
            self.assertGreater(run["cross_node_bytes"], 0)
            self.assertGreater(run["predicted_step_ms"], 0)
            self.assertGreaterEqual(run["step_ms"], run["exposed_comm_ms"])
            self.assertTrue({span["lane"] for span in run["timeline"]["measured"]} == {"compute", "comm"})
        done = self.run_verb("--turns", 1, "--exposed", 0.4, status=1, verb=("bench", "train"))
        self.assertIn("tools/netcluster", done.stderr)


if __name__ == "__main__":
    unittest.main()
