"""What tests of benchmarks share, on the CPU and on a device."""
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
    """One verb of `shunt bench`, with options that make it small."""

    def __init__(self, verb, small):
        self.verb = verb
        self.small = small

    def run(self, *arguments):
        return subprocess.run([SHUNT, "bench", self.verb, *arguments], capture_output=True, text=True, timeout=120)

    def measure(self, test, *arguments):
        """The report of a benchmark that must succeed, and what it printed."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            done = self.run(*self.small, *arguments, "--json", path)
            test.assertEqual(done.returncode, 0, done.stderr)
            with open(path) as file:
                return json.load(file), done.stdout

    def why_not(self):
        """What keeps this build or this machine from it; empty if nothing does."""
        done = self.run(*self.small)
        says_why = "this build has no" in done.stderr or "find a device" in done.stderr
        return done.stderr.strip() if done.returncode != 0 and says_why else ""


class BenchOnDevice(unittest.TestCase):
    """Skipped where there is no device. A subclass says which benchmark."""
    bench = None

    @classmethod
    def setUpClass(cls):
        if why := cls.bench.why_not():
            raise unittest.SkipTest(why)

    def measure(self, *arguments):
        report, _ = self.bench.measure(self, *arguments)
        return report

    def write_map(self, experts, ranks, replicas, layers=1):
        """A file in which every rank holds an expert, and up to so many have a second copy; all layers are alike."""
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
    """Skipped where nothing computes products. A subclass says with which options."""
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
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)  # one process speaks: nothing was started
        for word in words:
            self.assertIn(word, done.stderr)


def main():
    """Says why tests were skipped, and exits as ctest expects where all were."""
    result = unittest.main(module="__main__", exit=False).result
    has_run = result.testsRun > len(result.skipped)
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    sys.exit(not result.wasSuccessful() if has_run else SKIPPED)
