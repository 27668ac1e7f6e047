"""Shared code of benchmark tests, on the CPU and on a device."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from expert_maps import map_of, shuffled

SHUNT = sys.argv.pop(1)
SKIPPED = 77


class Bench:
    """A verb of `shunt bench` with options for a small run."""

    def __init__(self, verb, small):
        self.verb = verb
        self.small = small

    def run(self, *arguments):
        return subprocess.run([SHUNT, "bench", self.verb, *arguments], capture_output=True, text=True, timeout=120)

    def measure(self, test, *arguments):
        """Runs a benchmark that must succeed; returns its report and its output."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            done = self.run(*self.small, *arguments, "--json", path)
            test.assertEqual(done.returncode, 0, done.stderr)
            with open(path) as file:
                return json.load(file), done.stdout

    def why_not(self):
        """Why this build or machine can't run it; empty if it can."""
        done = self.run(*self.small)
        says_why = "this build has no" in done.stderr or "find a device" in done.stderr
        return done.stderr.strip() if done.returncode != 0 and says_why else ""


class BenchOnDevice(unittest.TestCase):
    """Skipped without a device. Subclasses set the benchmark."""
    bench = None

    @classmethod
    def setUpClass(cls):
        if why := cls.bench.why_not():
            raise unittest.SkipTest(why)

    def measure(self, *arguments):
        report, _ = self.bench.measure(self, *arguments)
        return report

    def write_map(self, experts, ranks, replicas, layers=1):
        """Writes equal maps for all layers; every rank has an expert, and up to `replicas` experts have a second copy."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        seed = 0
        while not all(placement := shuffled(seed, experts, ranks, replicas)):
            seed += 1
        path = os.path.join(folder.name, "map.json")
        with open(path, "w") as file:
            json.dump(map_of(*[placement] * layers, experts=experts), file)
        return path


class LayerOnHost(unittest.TestCase):
    """Skipped without a GEMM library. Subclasses set the options."""
    bench = None

    @classmethod
    def setUpClass(cls):
        done = cls.bench.run(*cls.bench.small)
        if "neither oneDNN" in done.stderr:
            raise unittest.SkipTest(done.stderr.strip())

    def measure(self, *arguments):
        return self.bench.measure(self, *arguments)

    def expect_refused(self, *arguments, words):
        done = self.bench.run(*self.bench.small, *arguments)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)  # one line: no ranks were started
        for word in words:
            self.assertIn(word, done.stderr)


def main():
    """Prints why tests were skipped; exits with ctest's skip code if all were."""
    result = unittest.main(module="__main__", exit=False).result
    has_run = result.testsRun > len(result.skipped)
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    sys.exit(not result.wasSuccessful() if has_run else SKIPPED)
