"""Tests of `shunt bench shuffle --device cuda`. Usage: device_shuffle_test.py PATH_TO_SHUNT [unittest arguments]"""
import unittest

from device_bench import Bench, BenchOnDevice, main

SHUFFLE = Bench("shuffle", ["--device", "cuda", "--ranks", "4", "--tokens", "96", "--hidden", "256", "--experts", "32", "--topk", "4",
                            "--iterations", "2", "--warmup", "1"])


class Words(unittest.TestCase):
    def test_invalid_options_are_refused_before_a_device_is_used(self):
        for arguments, word in [(["--ranks", "0"], "--ranks"), (["--ranks", "33"], "--ranks"), (["--sms", "-1"], "--sms"),
                                (["--graph", "-1"], "--graph"), (["--low-latency", "--graph", "0"], "--low-latency"),
                                (["--low-latency", "--sms", "20"], "--sms"), (["--topk", "0"], "--topk"),
                                (["--systems", "magic"], "--systems"), (["--systems", "shunt,wire"], "--systems"),
                                (["--world", "env"], "--world env"), (["--world", "shm"], "--world shm"), (["--routing", "lottery"], "lottery"),
                                (["--json", "/nonexistent/x.json"], "/nonexistent")]:
            with self.subTest(arguments=arguments):
                done = SHUFFLE.run(*SHUFFLE.small, *arguments)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(word, done.stderr)

    def test_a_missing_device_is_reported_in_one_line(self):
        if not (why := SHUFFLE.why_not()):
            self.skipTest("this machine has a GPU")
        self.assertEqual(why.count("\n"), 0)
        self.assertIn("unsupported", why)


class OnDevice(BenchOnDevice):
    """Every run verifies all outputs before measuring."""
    bench = SHUFFLE

    def expect_times(self, values, names):
        for name in names:
            self.assertGreater(values[name], 0, name)

    def test_compares_with_unfused_steps_and_a_copy(self):
        report = self.measure("--graph", "2")
        systems = {system["name"]: system for system in report["systems"]}
        self.assertEqual(set(systems), {"shunt", "unfused"})
        self.expect_times(systems["shunt"], ["plan_ms", "dispatch_ms", "combine_ms", "dispatch_kernel_ms", "combine_kernel_ms", "planned_dispatch_ms"])
        self.expect_times(systems["unfused"], ["dispatch_ms", "combine_ms"])
        self.expect_times(report, ["copy_ceiling_gbps", "dispatch_efficiency", "combine_efficiency", "planned_dispatch_efficiency", "pair_ms"])

    def test_verifies_every_layout_and_dtype(self):
        for layout in ["expert_major", "token_unique", "padded"]:
            for dtype in ["f32", "bf16", "f16", "fp8_e4m3"]:
                with self.subTest(layout=layout, dtype=dtype):
                    self.measure("--layout", layout, "--dtype", dtype, "--systems", "shunt")

    def test_verifies_experts_placed_by_a_map(self):
        for layout, replicas in [("expert_major", 0), ("expert_major", 12), ("token_unique", 12), ("padded", 12)]:
            with self.subTest(layout=layout, replicas=replicas):
                report = self.measure("--layout", layout, "--map", self.write_map(32, 4, replicas))
                self.assertEqual({system["name"] for system in report["systems"]}, {"shunt", "unfused"})

    def test_times_few_tokens_in_every_layout_and_dtype(self):
        for dtype in ["bf16", "fp8_e4m3"]:
            report = self.measure("--low-latency", "--dtype", dtype, "--systems", "shunt")
            self.expect_times(report, ["pair_ms", "graph_dispatch_ms", "graph_combine_ms"])
            self.assertEqual(report["config"]["layout"], "padded")

    def test_uses_only_the_given_multiprocessors(self):
        for layout in ["expert_major", "token_unique"]:
            few = self.measure("--sms", "20", "--layout", layout, "--systems", "shunt")["few_sms"]
            self.assertLessEqual(few["sms_seen"], 20)
            self.expect_times(few, ["store_gbps", "dispatch_share", "combine_share"])


if __name__ == "__main__":
    main()
