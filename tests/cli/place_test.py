"""Tests of `shunt place`. Usage: place_test.py PATH_TO_SHUNT [unittest arguments]"""
import json
import os
import re
import subprocess
import sys
import unittest

from with_folder import WithFolder

SHUNT = sys.argv.pop(1)
REAL = os.path.join(os.path.dirname(__file__), "..", "data", "moe64k8-small.trace")
QUICK = ["--search-steps", "40", "--search-starts", "2", "--search-tokens", "2000", "--search-copies", "200"]
FIGURES = {"c_t", "c_t_node", "load", "estimated_ms"}


class PlaceCase(WithFolder):
    def place(self, *arguments):
        return subprocess.run([SHUNT, "place", *arguments], capture_output=True, text=True, timeout=240)

    def placed(self, *arguments):
        """Runs it, which must succeed; returns its output."""
        done = self.place(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, *arguments):
        """Runs it, which must fail with one line and leave no file; returns the error."""
        before = sorted(os.listdir(self.folder))
        done = self.place(*arguments)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        return done.stderr

    def generated(self, kind="topics", **options):
        trace = self.path(f"{kind}.trace")
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self.placed("--generate", kind, "-o", trace, *words)
        return trace

    def report(self, name="report.json"):
        with open(self.path(name)) as file:
            return json.load(file)


class Place(PlaceCase):
    def test_reports_every_method_and_layer_on_both_parts(self):
        trace = self.generated(layers=2, tokens=3000, experts=32)
        self.placed("--trace", trace, "--nodes", "2", "--ranks-per-node", "2", "--method", "all", "--holdout", "0.5", *QUICK,
                    "-o", self.path("map.json"), "--json", self.path("report.json"))
        methods = self.report()["methods"]
        self.assertEqual([m["method"] for m in methods], ["shunt", "contiguous", "occult-greedy", "occult-repaired", "load-only"])
        for method in methods:
            self.assertEqual(len(method["layers"]), 2)
            for figures in [method, method["held_out"], *method["layers"], *[layer["held_out"] for layer in method["layers"]]]:
                self.assertLessEqual(FIGURES, figures.keys())
            for key in FIGURES:
                self.assertAlmostEqual(method[key], sum(layer[key] for layer in method["layers"]) / 2)
        for layer in methods[0]["layers"]:
            self.assertLessEqual(layer["load"], layer["load_limit"] * (1 + 1e-9))

    def test_maps_have_the_reported_figures(self):
        self.placed("--trace", REAL, "--ranks-per-node", "4", "--objective", "c_t", *QUICK, "-o", self.path("map.json"), "--json", self.path("report.json"))
        self.placed("--trace", REAL, "--stats", "--map", self.path("map.json"), "--json", self.path("stats.json"))
        placed, stats = self.report()["methods"][0]["layers"], self.report("stats.json")["layers"]
        for one, other in zip(placed, stats, strict=True):
            for key in FIGURES:
                self.assertAlmostEqual(one[key], other[key])

    def test_is_deterministic(self):
        trace = self.generated(tokens=3000, experts=32)
        for name in ("a.json", "b.json"):
            self.placed("--trace", trace, "--ranks-per-node", "4", "--replicas", "25", "--load-limit", "1.3", *QUICK, "-o", self.path(name))
        with open(self.path("a.json")) as a, open(self.path("b.json")) as b:
            self.assertEqual(a.read(), b.read())

    def test_a_map_with_copies_can_be_used(self):
        self.placed("--trace", REAL, "--ranks-per-node", "2", "--replicas", "12.5", "--load-limit", "1.2", *QUICK, "-o", self.path("map.json"))
        done = subprocess.run([SHUNT, "bench", "shuffle", "--ranks", "2", "--world", "inproc", "--systems", "shunt", "--tokens", "64", "--hidden", "64",
                               "--layout", "token_unique", "--routing", f"trace:{REAL}", "--map", self.path("map.json"), "--layer", "7",
                               "--iterations", "1", "--json", self.path("bench.json")], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.report("bench.json")["verified"])

    def test_reports_the_mass_that_pruning_keeps(self):
        self.placed("--trace", REAL, "--ranks-per-node", "4", "--objective", "c_t", "--prune", "2", *QUICK, "--json", self.path("report.json"))
        layers = self.report()["methods"][0]["layers"]
        for layer in layers:
            self.assertLessEqual(layer["pruned"]["c_t"], 2)
        self.assertGreaterEqual(layers[4]["pruned"]["mass_kept"], 0.92)
        self.assertGreaterEqual(layers[7]["pruned"]["mass_kept"], 0.96)

    def test_follows_drift_from_a_map(self):
        trace = self.generated("drift", tokens=24000)
        self.placed("--trace", trace, "--nodes", "2", "--ranks-per-node", "4", "--holdout", "0.5", "-o", self.path("map.json"))
        self.placed("--trace", trace, "--from", self.path("map.json"), "--window", "12000", "-o", self.path("new.json"), "--json", self.path("moves.json"))
        still, moving = self.report("moves.json")["steps"]
        self.assertEqual(still["moves"], [])
        self.assertTrue(moving["moves"])
        self.assertLess(moving["after_ms"], moving["stale_ms"])
        self.assertLessEqual(3 * len(moving["moves"]), moving["fresh_moves"])

    def test_traces_of_ranks_are_read_as_one(self):
        whole = self.generated(tokens=1024, experts=16)
        once = self.placed("--trace", whole, "--stats", "--ranks-per-node", "2")
        twice = self.placed("--trace", whole, "--trace", whole, "--stats", "--ranks-per-node", "2")
        self.assertIn(" 1024 ", once)
        self.assertIn(" 2048 ", twice)

    def test_the_holdout_of_several_traces_is_the_last_part_of_each(self):
        # If files were read one after the other, the map would be made from the first file only.
        skewed, even = self.generated("zipf", tokens=4096, experts=16, exponent=3), self.generated("uniform", tokens=4096, experts=16)
        self.placed("--trace", skewed, "--trace", even, "--ranks-per-node", "4", "--holdout", "0.5", *QUICK, "--method", "contiguous",
                    "--json", self.path("report.json"))
        (method,) = self.report()["methods"]
        self.assertAlmostEqual(method["load"], method["held_out"]["load"], delta=0.1)

    def test_a_failing_baseline_is_left_out(self):
        # One expert has an eighth of all rows, so without copies one of sixteen ranks has twice the mean.
        trace = self.generated("zipf", tokens=3000, experts=32, exponent=4)
        done = self.place("--trace", trace, "--ranks-per-node", "16", "--replicas", "100", "--method", "all", *QUICK, "--json", self.path("report.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("occult-repaired is left out: layer 0", done.stderr)
        self.assertNotIn("occult-repaired", [method["method"] for method in self.report()["methods"]])


class WrongPlace(PlaceCase):
    def test_invalid_options_are_refused(self):
        trace = self.generated(tokens=100, experts=16)
        output = ["-o", self.path("map.json")]
        for words, complaint in [
            ([], "--trace: expected a file"),
            (["--trace", trace], "-o: expected a file"),
            (["--trace", trace, *output, "--nodes", "0"], "--nodes: expected at least 1"),
            (["--trace", trace, *output, "--holdout", "1"], "--holdout"),
            (["--trace", trace, *output, "--load-limit", "0.9"], "--load-limit"),
            (["--trace", trace, *output, "--method", "luck"], "method 'luck': expected shunt, contiguous, occult-greedy, occult-repaired, load-only or all"),
            (["--trace", trace, *output, "--cluster", "abacus"], "no cluster 'abacus'"),
            (["--trace", trace, *output, "--prune", "2"], "no weights"),
            (["--trace", trace, *output, "--first-token", "100"], "has no token number 100"),
            (["--trace", trace, *output, "--window", "10"], "--window: expected --from"),
            (["--trace", trace, *output, "--search-starts", "0"], "--search-starts: expected at least 1"),
            (["--trace", trace, *output, "--seed", "2"], "--seed: not with --trace"),
            (["--trace", trace, "--stats", "--replicas", "25"], "--replicas: not with --stats"),
            (["--trace", trace, *output, "--from", "m.json", "--window", "10", "--method", "all"], "--method: not with --from"),
            (["--generate", "topics", *output, "--nodes", "2"], "--nodes: not with --generate"),
            (["--trace", trace, *output, "--ranks-per-node", "2000"], "--ranks-per-node: expected 1 to 1024"),
            (["--trace", trace, "--stats", "--generate", "topics"], "one of them at most"),
            (["--generate", "gaussian", *output], "no kind 'gaussian'"),
            (["--generate", "topics"], "-o FILE"),
            (["--trace", trace, "-o", "/nowhere/map.json"], "/nowhere/map.json"),
            (["--trace", trace, "-o", trace], "it would replace"),
            (["--trace", trace, *output, "--json", self.path("./map.json")], "it would replace"),
        ]:
            with self.subTest(words=words):
                self.assertIn(complaint, self.refused(*words))

    def test_an_unreachable_load_limit_is_refused_with_the_least_possible(self):
        trace = self.generated("zipf", layers=5, tokens=2000, experts=16, exponent=2)
        complaint = self.refused("--trace", trace, "--ranks-per-node", "8", "--load-limit", "1.01", "-o", self.path("map.json"))
        self.assertRegex(complaint, r"layer \d: .*within 1\.01.*the least found is \d\.\d{4}")
        least = re.search(r"least found is ([\d.]+)", complaint)[1]
        self.placed("--trace", trace, "--ranks-per-node", "8", "--load-limit", least, *QUICK, "-o", self.path("map.json"))

    def test_files_that_are_not_traces_are_refused(self):
        trace = self.generated(tokens=1000, experts=16)
        with open(trace, "rb") as file:
            content = bytearray(file.read())
        damaged = content.copy()
        damaged[200] ^= 1
        for name, bytes_ in [("cut", content[:-100]), ("foreign", b"PK\x03\x04" * 100), ("corrupt", damaged), ("empty", b"")]:
            with open(self.path(name), "wb") as file:
                file.write(bytes_)
            with self.subTest(name):
                self.assertIn(self.path(name), self.refused("--trace", self.path(name), "-o", self.path("map.json")))
        self.assertIn("missing", self.refused("--trace", self.path("missing"), "-o", self.path("map.json")))

    def test_maps_of_another_model_are_refused(self):
        one, other = self.generated(tokens=500, experts=16), self.generated("uniform", tokens=500, experts=24)
        self.placed("--trace", one, "--ranks-per-node", "2", *QUICK, "-o", self.path("map.json"))
        self.assertIn("16 experts", self.refused("--trace", other, "--stats", "--map", self.path("map.json")))
        self.assertIn("16 experts", self.refused("--trace", other, "--from", self.path("map.json"), "--window", "100"))
        self.assertIn("traces of one model", self.refused("--trace", one, "--trace", other, "--stats"))


if __name__ == "__main__":
    unittest.main()
