"""Tests of `shunt schedule`."""
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest

SHUNT = os.path.abspath(sys.argv.pop(1))


MEASURE_OPS = os.path.join(os.path.dirname(__file__), "../../tools/measure_ops")


def shunt(*arguments, **options):
    return subprocess.run([SHUNT, "schedule", *arguments], capture_output=True, text=True, timeout=120, **options)


class Schedule(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w") as file:
                file.write(text)
        return path

    def test_writes_figures_graph_and_trace(self):
        done = shunt("--model", "gpt2-s-moe", "--cluster", "v100x64", "--json", "plan.json", "--graph", "step.graph",
                     "--trace", "trace.json", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), ["plan.json", "step.graph", "trace.json"])
        for word in ["before", "tutel", "after", "partition", "layers", "hash"]:
            self.assertIn(word, done.stdout)
        with open(self.path("plan.json")) as file:
            plan = json.load(file)
        for step in ["before", "tutel", "after"]:
            self.assertLessEqual({"step_ms", "compute_ms", "exposed_comm_ms", "peak_bytes"}, plan[step].keys())
        self.assertLessEqual({"dw_gap", "step_gap"}, plan["after"].keys())
        self.assertLess(plan["after"]["step_ms"] * 1.3, plan["before"]["step_ms"])
        self.assertGreaterEqual(plan["after"]["step_gap"], 0)
        self.assertEqual([layer["layer"] for layer in plan["layers"]], [1, 3, 5, 7, 9, 11])
        with open(self.path("step.graph")) as file:
            self.assertEqual(file.readline(), "graph gpt2-s-moe ranks 64\n")
        with open(self.path("trace.json")) as file:
            spans = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
        self.assertAlmostEqual(max(span["ts"] + span["dur"] for span in spans) / 1000, plan["after"]["step_ms"], places=3)

    def test_plans_the_largest_presets_in_seconds_and_little_memory(self):
        for model, cluster in [("gpt2-l-moe", "v100x64"), ("deepseek-v3", "h100x64")]:
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            done = shunt("--model", model, "--cluster", cluster)
            self.assertEqual(done.returncode, 0, done.stderr)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if not os.environ.get("SHUNT_SANITIZE"):
                self.assertLess(after.ru_utime - before, 5, "CPU seconds")
                self.assertLess(after.ru_maxrss, 512 << 10, "KiB")

    def test_an_unusable_costs_file_is_an_error_with_file_and_cause(self):
        loop = self.path("loop.json")
        os.symlink(loop, loop)
        for costs, cause in [
            (self.path("nothing.json"), "nothing.json: can't be opened: No such file"),
            (self.path("truncated.json", '{"version": 2,\n "device": "v1'), "truncated.json:2: no JSON"),
            (self.path("foreign.json", '{"name": "tiny"}'), "foreign.json: version: is missing"),
            (self.path("other.json", '{"version": 2, "device": "a100", "seconds": {}}'), 'other.json: device: "a100", expected v100'),
            (self.folder, f"{self.folder}: no regular file"),
            (loop, "loop.json: can't be opened: Too many levels"),
            ("/dev/zero", "/dev/zero: no regular file"),
        ]:
            # A missing costs file is allowed with --unmeasured, but an unusable one is not.
            for unmeasured in [[]] if "nothing" in costs else [[], ["--unmeasured", self.path("ops.json")]]:
                with self.subTest(costs=costs, unmeasured=unmeasured):
                    done = shunt("--model", "tiny", "--cluster", "v100x8", "--costs", costs, *unmeasured)
                    self.assertEqual(done.returncode, 1)
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    self.assertIn(cause, done.stderr)
                    self.assertEqual(done.stdout, "")

    def test_lists_all_ops_if_none_were_measured(self):
        done = shunt("--model", "tiny", "--cluster", "v100x8", "--costs", self.path("costs.json"), "--unmeasured", self.path("ops.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("ops.json")) as file:
            self.assertGreater(len(json.load(file)["ops"]), 10)

    def test_writes_only_named_files(self):
        done = shunt("--model", "tiny", "--cluster", "v100x8", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_every_rank_makes_the_same_schedule(self):
        """Compares processes, whose addresses and uninitialised memory differ."""
        for model, cluster in [("gpt2-s-moe", "v100x64"), ("gpt2-s-moe", "a100x64"), ("gpt2-l-moe", "v100x64"), ("gpt2-l-moe", "a100x64"),
                               ("tiny", "a100x16")]:
            reports = []
            for perturbed in ["85", "170"]:
                done = shunt("--model", model, "--cluster", cluster, env={**os.environ, "MALLOC_PERTURB_": perturbed})
                self.assertEqual(done.returncode, 0, done.stderr)
                reports.append(done.stdout.splitlines()[:8])
            self.assertRegex(reports[0][0], "hash [0-9a-f]{16}$")
            self.assertEqual(*reports)

    def test_obeys_the_memory_cap(self):
        free = shunt("--model", "gpt2-s-moe", "--cluster", "v100x64", "--json", self.path("free.json"))
        self.assertEqual(free.returncode, 0, free.stderr)
        with open(self.path("free.json")) as file:
            before = json.load(file)["before"]
        cap = 1.05 * before["peak_bytes"] / 2**30
        capped = shunt("--model", "gpt2-s-moe", "--cluster", "v100x64", "--memory", str(cap), "--json", self.path("capped.json"))
        self.assertEqual(capped.returncode, 0, capped.stderr)
        with open(self.path("capped.json")) as file:
            after = json.load(file)["after"]
        self.assertLessEqual(after["peak_bytes"], cap * 2**30)
        self.assertLess(after["exposed_all_to_all_ms"], before["exposed_all_to_all_ms"] / 2)
        hopeless = shunt("--model", "gpt2-s-moe", "--cluster", "v100x64", "--memory", "0.5")
        self.assertEqual(hopeless.returncode, 1)
        self.assertIn("no schedule was found", hopeless.stderr)

    def test_runs_only_the_named_passes(self):
        done = shunt("--model", "tiny", "--cluster", "v100x16", "--passes", "dw,all_reduce", "--json", self.path("plan.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("plan.json")) as file:
            self.assertEqual([each["name"] for each in json.load(file)["passes"]], ["dw", "all_reduce"])

    def test_measures_this_machine(self):
        done = shunt("--model", "tiny", "--cluster", "this", "--json", self.path("plan.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("plan.json")) as file:
            self.assertGreater(json.load(file)["before"]["step_ms"], 0)

    def test_uses_measured_times(self):
        first = shunt("--model", "tiny", "--cluster", "v100x16", "--unmeasured", self.path("ops.json"), "--json", self.path("plan.json"))
        self.assertEqual(first.returncode, 0, first.stderr)
        with open(self.path("ops.json")) as file:
            ops = json.load(file)["ops"]
        self.assertGreater(len(ops), 10)
        costs = {"version": 2, "device": "v100", "origin": "made up", "seconds": {op["key"]: 0.5 for op in ops}}
        done = shunt("--model", "tiny", "--cluster", "v100x16", "--passes", "all_reduce", "--costs", self.path("costs.json", json.dumps(costs)),
                     "--json", self.path("plan.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"measured for (\d+) of \1 ops of the schedule \(made up\); 0 kinds and shapes")
        with open(self.path("plan.json")) as file:
            self.assertGreater(json.load(file)["before"]["compute_ms"], 500)

    def test_measuring_without_a_gpu_reports_what_is_missing(self):
        ops = self.path("ops.json", '{"version": 1, "device": "v100", "ops": []}')
        done = subprocess.run([sys.executable, MEASURE_OPS, ops, self.path("costs.json")], capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            self.skipTest("there is a GPU")
        self.assertRegex(done.stderr, "^measure_ops: (PyTorch is missing|there is no CUDA device).*\n$")
        self.assertFalse(os.path.exists(self.path("costs.json")))

    def test_varies_each_assumption(self):
        done = shunt("--model", "tiny", "--cluster", "v100x16", "--vary", "25", "--json", self.path("plan.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("plan.json")) as file:
            variations = json.load(file)["variations"]
        self.assertEqual({each["factor"] for each in variations}, {0.75, 1.25})
        self.assertIn("rate between nodes", done.stdout)

    def test_reports_each_error_once(self):
        broken = self.path("broken.json", '{"name": "x",\n "layers": }')
        loop = self.path("loop.json")
        os.symlink(loop, loop)
        strange = self.path("strange.json", '{"name": "x", "layers": 1, "colour": 3}')
        for arguments, message in [
            (["--model", "nothing", "--cluster", "v100x8"], "no model 'nothing'"),
            (["--model", "tiny", "--cluster", "v100x12"], "fill no whole nodes of 8"),
            (["--model", "tiny", "--cluster", "v100x0"], "cluster v100x0: expected 1 to 524288 ranks"),
            (["--model", "tiny", "--cluster", "v100x8000000"], "cluster v100x8000000: expected 1 to 524288 ranks"),
            (["--model", "tiny", "--cluster", "v100x99999999999999999999"], "expected 1 to 524288 ranks"),
            (["--model", "tiny", "--cluster", "v100xN"], "no cluster 'v100xN': expected a file, one of a100, h100, v100, "
                                                         "one of these with N ranks (v100xN), or this"),
            (["--model", loop, "--cluster", "v100x8"], "loop.json: can't be opened: Too many levels of symbolic links"),
            (["--model", "tiny", "--cluster", loop], "loop.json: can't be opened: Too many levels of symbolic links"),
            (["--model", "tiny", "--cluster", self.folder], "no regular file"),
            (["--model", broken, "--cluster", "v100x8"], "broken.json:2: no JSON"),
            (["--model", strange, "--cluster", "v100x8"], "strange.json: hidden: is missing"),
            (["--model", "tiny", "--cluster", "v100x8", "--passes", "magic"], "no pass 'magic'"),
            (["--model", "tiny", "--cluster", "v100x8", "--json", "/nonexistent/x.json"], "can't write /nonexistent/x.json"),
        ]:
            with self.subTest(arguments=arguments):
                done = shunt(*arguments)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
