"""Tests of `shunt bench layer` on the CPU. Usage: layer_test.py PATH_TO_SHUNT [unittest arguments]"""
import json
import os
import subprocess
import tempfile

from device_bench import SHUNT, Bench, LayerOnHost, main

LAYER = Bench("layer", ["--tokens", "40", "--hidden", "50", "--ffn", "22", "--experts", "14", "--topk", "3", "--iterations", "2", "--warmup", "1"])
SYSTEMS = ["conventional", "expert_major", "token_unique"]
FIGURES = ["plan_ms", "dispatch_ms", "experts_ms", "combine_ms", "layer_ms", "dense_ms", "shuffle_share", "experts_tflops", "dense_tflops",
           "rows", "rows_computed", "rows_bytes", "workspace_bytes", "copies_bytes"]


class OnHost(LayerOnHost):
    bench = LAYER

    def test_every_token_agrees_with_plain_loops(self):
        for ranks, world, dtype in [("1", "shm", "f32"), ("2", "shm", "bf16"), ("4", "inproc", "f32"), ("7", "inproc", "bf16")]:
            for nodes in {"1", ranks}:
                with self.subTest(ranks=ranks, world=world, nodes=nodes):
                    report, _ = self.measure("--ranks", ranks, "--nodes", nodes, "--world", world, "--dtype", dtype, "--verify", "40")
                    self.assertTrue(report["verified"])
                    for system in report["systems"]:
                        self.assertLess(system["largest_error"], 1e-5 if dtype == "f32" else 8e-3)

    def test_reports_all_systems_and_the_last_at_the_top_level(self):
        report, text = self.measure("--ranks", "2")
        self.assertEqual([system["name"] for system in report["systems"]], SYSTEMS)
        self.assertEqual(report["config"]["systems"], SYSTEMS)
        self.assertEqual((report["config"]["device"], report["config"]["world"], report["config"]["layout"]), ("cpu", "shm", "token_unique"))
        for system in report["systems"]:
            for figure in FIGURES:
                self.assertGreater(system[figure], 0, figure)
            self.assertEqual(system["rows"], 2 * 40 * 3)
            self.assertEqual(system["speedup"]["over"], "conventional")
            self.assertLessEqual(system["speedup"]["least"], system["speedup"]["median"])
            self.assertLessEqual(system["speedup"]["median"], system["speedup"]["most"])
            self.assertIn(system["name"], text)
        last = report["systems"][-1]
        self.assertEqual({key: report[key] for key in FIGURES}, {key: last[key] for key in FIGURES})
        self.assertEqual(report["systems"][0]["speedup"]["median"], 1)
        self.assertLess(last["rows_bytes"], last["copies_bytes"])
        self.assertLess(last["wire_bytes"], report["systems"][0]["wire_bytes"])
        self.assertIn("faster than conventional", text)
        self.assertIn("dense", text)

    def test_parts_add_up_to_the_layer(self):
        report, _ = self.measure("--ranks", "2", "--iterations", "1", "--warmup", "0")
        for system in report["systems"]:
            parts = sum(system[part] for part in ["plan_ms", "dispatch_ms", "experts_ms", "combine_ms"])
            self.assertAlmostEqual(parts, system["layer_ms"], places=6)

    def test_measures_the_given_systems_and_compares_with_the_first(self):
        report, _ = self.measure("--systems", "token_unique,conventional")
        self.assertEqual([system["name"] for system in report["systems"]], ["token_unique", "conventional"])
        self.assertEqual(report["systems"][1]["speedup"]["over"], "token_unique")
        report, text = self.measure("--layout", "token_unique")
        self.assertEqual([system["name"] for system in report["systems"]], ["token_unique"])
        self.assertNotIn("faster than", text)

    def test_accepts_routings_that_leave_experts_and_ranks_without_rows(self):
        self.measure("--ranks", "7", "--world", "inproc", "--experts", "5", "--topk", "1", "--tokens", "3", "--routing", "zipf:6", "--verify", "3")

    def test_ranks_of_a_launcher_form_the_world(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            ranks = []
            for rank in range(2):
                environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29631", "SHUNT_JOB": f"layer{os.getpid()}"}
                ranks.append(subprocess.Popen([SHUNT, "bench", "layer", *LAYER.small, "--world", "env", "--json", path],
                                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            for rank in ranks:
                _, errors = rank.communicate(timeout=120)
                self.assertEqual(rank.returncode, 0, errors)
            with open(path) as file:
                report = json.load(file)
        self.assertEqual((report["config"]["ranks"], report["config"]["world"]), (2, "shm"))

    def test_invalid_options_are_refused_by_name(self):
        for option, value in [("--ffn", "0"), ("--verify", "0"), ("--tokens", "0"), ("--layout", "padded"), ("--dtype", "f16"), ("--dtype", "fp8_e4m3"),
                              ("--systems", "fast"), ("--systems", "token_unique,token_unique"), ("--chunks", "2"), ("--graph", "2"),
                              ("--routing", "none"), ("--ranks", "0"), ("--nodes", "3")]:
            with self.subTest(option=option, value=value):
                self.expect_refused(option, value, words=[option])

    def test_contradictory_options_are_refused(self):
        self.expect_refused("--layout", "token_unique", "--systems", "conventional", words=["--layout", "--systems"])
        self.expect_refused("--device", "cuda", "--systems", "conventional", words=["--systems", "--device cuda"])
        self.expect_refused("--device", "cuda", "--world", "shm", words=["--world shm", "inproc"])
        self.expect_refused("--world", "env", words=["--world env", "launcher"])

    def test_runs_that_exceed_the_memory_are_refused_with_the_options_to_lower(self):
        self.expect_refused("--ffn", "1000000", "--hidden", "1000000", words=["GiB", "--ffn", "--experts", "--systems"])

    def test_an_unwritable_file_is_an_error_before_measuring(self):
        self.expect_refused("--json", "/nonexistent/x.json", words=["/nonexistent"])


if __name__ == "__main__":
    main()
