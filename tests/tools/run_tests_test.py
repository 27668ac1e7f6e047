"""Gives run_tests reports in ctest's format, and checks its last line and exit status."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

RUN_TESTS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "run_tests"

PASSED = '<testcase status="run"/>'
FAILED = '<testcase status="fail"><failure message=""/></testcase>'
SKIPPED = '<testcase status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>'
NOT_BUILT = '<testcase status="notrun"><skipped message="Unable to find executable"/></testcase>'


class RunTests(unittest.TestCase):
    def run_tests(self, *cases, ctest_status=0):
        """(exit status, last line) of run_tests if ctest reports these cases."""
        status, lines = self.all_lines(*cases, ctest_status=ctest_status)
        return status, lines[-1]

    def all_lines(self, *cases, ctest_status=0):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            (tree / "tools").mkdir()
            (tree / "build" / "release").mkdir(parents=True)
            shutil.copy(RUN_TESTS, tree / "tools")
            ctest = tree / "ctest"
            ctest.write_text(f"#!/bin/sh\necho '<testsuite>{''.join(cases)}</testsuite>' > \"$6\"\nexit {ctest_status}\n")
            ctest.chmod(0o755)
            run = subprocess.run([tree / "tools" / "run_tests", "release"], capture_output=True, text=True,
                                 env={**os.environ, "PATH": f"{tree}:{os.environ['PATH']}"})
            return run.returncode, run.stdout.splitlines()

    def test_counts_each_outcome(self):
        self.assertEqual(self.run_tests(PASSED, PASSED, SKIPPED), (0, "2 passed, 0 failed, 1 skipped"))

    def test_prints_why_tests_were_skipped(self):
        def skipped(output):
            return SKIPPED.replace("</testcase>", f"<system-out>{output}</system-out></testcase>")

        _, lines = self.all_lines(PASSED, skipped("a.cpp:7: Skipped\nno GPU\n\nbye"), skipped("b.cpp:9: Skipped\nno GPU"),
                                  skipped("OK\nskipped: no driver"), skipped("the last line"), SKIPPED)
        self.assertEqual(lines[0], "2 skipped: no GPU")
        self.assertEqual(set(lines[1:-1]), {"1 skipped: no driver", "1 skipped: the last line", "1 skipped: no reason given"})

    def test_fails_if_a_test_failed(self):
        self.assertEqual(self.run_tests(PASSED, FAILED), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_test_that_was_not_built_is_a_failure(self):
        self.assertEqual(self.run_tests(PASSED, NOT_BUILT), (1, "1 passed, 1 failed, 0 skipped"))

    def test_fails_if_no_test_passed(self):
        self.assertEqual(self.run_tests(SKIPPED), (1, "0 passed, 0 failed, 1 skipped"))

    def test_fails_if_ctest_failed(self):
        self.assertEqual(self.run_tests(PASSED, ctest_status=8), (1, "1 passed, 0 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
