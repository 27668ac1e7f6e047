"""Tests of `shunt bench layer --device cuda`. Usage: device_layer_test.py PATH_TO_SHUNT [unittest arguments]"""
import pathlib
import unittest

from device_bench import Bench, BenchOnDevice, main

LAYER = Bench("layer", ["--device", "cuda", "--tokens", "60", "--hidden", "64", "--ffn", "48", "--experts", "14", "--topk", "3", "--iterations", "2", "--warmup", "1"])


class Words(unittest.TestCase):
    def test_help_explains_layouts_and_figures(self):
        text = LAYER.run("--help").stdout
        for word in ["--device cuda", "--ffn", "--systems", "conventional", "--world env", "--chunks", "--verify", "--map", "--replica-map", "--prune", "token_unique", "SwiGLU", "dense", "largest error", "--graph"]:
            self.assertIn(word, text)

    def test_invalid_options_are_refused_by_name(self):
        for option, value in [("--hidden", "60"), ("--ffn", "47"), ("--ffn", "0"), ("--experts", "1"), ("--chunks", "-1"), ("--chunks", "2"), ("--verify", "0"),
                              ("--tokens", "0"), ("--layout", "padded"), ("--dtype", "fp8_e4m3"), ("--device", "tpu"), ("--routing", "none")]:
            with self.subTest(option=option):
                done = LAYER.run("--device", "cuda", "--topk", "1", option, value)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(option, done.stderr)

    def test_an_unreadable_map_is_an_error_before_measuring(self):
        done = LAYER.run(*LAYER.small, "--map", "/nonexistent/map.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/map.json: can't be opened", done.stderr)

    def test_an_unwritable_file_is_an_error_before_measuring(self):
        done = LAYER.run(*LAYER.small, "--json", "/nonexistent/x.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent", done.stderr)

    def test_an_unsuitable_machine_is_reported_in_one_line(self):
        if not (why := LAYER.why_not()):
            self.skipTest("this machine has a GPU")
        self.assertEqual(why.count("\n"), 0)


class OnDevice(BenchOnDevice):
    bench = LAYER

    def test_agrees_with_the_host_for_every_token(self):
        for ranks, dtypes in [("1", ["f32", "f16"]), ("2", ["bf16", "f32"]), ("4", ["f16", "bf16"]), ("7", ["f32", "f32"])]:
            for layout, dtype in zip(["expert_major", "token_unique"], dtypes):
                with self.subTest(ranks=ranks, layout=layout, dtype=dtype):
                    chunks = ["--chunks", ranks] if layout == "token_unique" else []
                    self.measure("--ranks", ranks, "--layout", layout, "--dtype", dtype, "--verify", "60", *chunks)

    def test_agrees_with_the_host_with_any_map(self):
        for layout, replicas in [("expert_major", 0), ("expert_major", 8), ("token_unique", 8)]:
            with self.subTest(layout=layout, replicas=replicas):
                report = self.measure("--ranks", "3", "--layout", layout, "--verify", "60", "--map", self.write_map(14, 3, replicas))
                self.assertEqual(report["rows"], 3 * 60 * 3)

    def test_agrees_with_the_host_for_pruned_tokens(self):
        trace = pathlib.Path(__file__).parent.parent / "data/moe64k8-small.trace"
        for layout, replicas, by in [("expert_major", 0, "score"), ("token_unique", 0, "similarity"), ("token_unique", 12, "score")]:
            with self.subTest(layout=layout, replicas=replicas, by=by):
                report = self.measure("--ranks", "4", "--experts", "64", "--topk", "8", "--layout", layout, "--verify", "60",
                                      "--map", self.write_map(64, 4, replicas, layers=8), "--routing", f"trace:{trace}", "--layer", "4", "--prune", "2", "--prune-by", by)
                figures = report["pruning"]
                self.assertEqual((figures["limit"], figures["by"], figures["scores"]), (2, by, "all experts"))
                self.assertTrue(0.5 < figures["mass_kept"] < 1)
                self.assertLess(figures["c_t_after"], figures["c_t_before"])
                self.assertEqual(report["rows"], 4 * 60 * 8)

    def test_accepts_routings_that_leave_experts_without_rows(self):
        for layout in ["expert_major", "token_unique"]:
            self.measure("--ranks", "2", "--topk", "1", "--tokens", "5", "--routing", "zipf:6", "--layout", layout, "--verify", "5")

    def test_reports_parts_a_graph_and_memory(self):
        report = self.measure("--ranks", "2", "--layout", "token_unique", "--graph", "3", "--chunks", "3")
        self.assertTrue(report["verified"])
        for part in ["plan_ms", "dispatch_ms", "experts_ms", "combine_ms", "layer_ms", "graph_layer_ms", "dense_ms", "dense_tflops"]:
            self.assertGreater(report[part], 0)
        self.assertEqual(report["rows"], 2 * 60 * 3)
        self.assertGreaterEqual(report["rows_computed"], report["rows"])
        self.assertEqual(report["config"]["chunks"], 3)
        self.assertLess(report["rows_bytes"], report["copies_bytes"])


if __name__ == "__main__":
    main()
