"""Tests of `shunt selftest`. Usage: selftest_test.py PATH_TO_SHUNT [unittest arguments]"""
import glob
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from with_folder import WithFolder

SHUNT = sys.argv.pop(1)
LAYOUTS = {"expert_major", "token_unique", "padded"}
HAS_GPU_FILES = bool(glob.glob("/dev/nvidia[0-9]*"))


def selftest(*arguments, timeout=150):
    return subprocess.run([SHUNT, "selftest", *arguments], capture_output=True, text=True, timeout=timeout)


def descendants(of):
    """Process numbers of all descendants."""
    found, parents = [], [str(of)]
    while parents:
        parent = parents.pop()
        children = []
        for file in glob.glob(f"/proc/{parent}/task/*/children"):
            try:
                with open(file) as lines:
                    children += lines.read().split()
            except OSError:
                pass  # the process has ended
        found += children
        parents += children
    return found


class Help(unittest.TestCase):
    def test_explains_links_verdicts_and_exit_status(self):
        text = selftest("--help").stdout
        for word in ["--devices", "--seconds", "--json", "processes", "islands", "not offered", "skipped", "NOT ALL CHECKED", "Exit status: 0 if"]:
            self.assertIn(word, text)


class Runs(WithFolder):
    def report(self, *arguments):
        done = selftest(*arguments, "--json", self.path("report.json"))
        with open(self.path("report.json")) as file:
            return done, json.load(file)

    def test_pass_in_well_under_two_minutes(self):
        begin = time.monotonic()
        done, report = self.report("--devices", "none")
        self.assertLess(time.monotonic() - begin, 100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(report["passed"])
        for link in ["threads", "processes", "islands"]:
            self.assertEqual({check["layout"] for check in report["checks"] if check["link"] == link and check["status"] == "ok"}, LAYOUTS)
        for check in report["checks"]:
            if check["layout"]:
                self.assertEqual(check["ok"], check["cases"], check)
        self.assertNotIn("\x1b", done.stderr)  # no progress into a pipe
        self.assertRegex(done.stdout, r"(?m)^passed: \d+ cases ok in ")

    def test_print_the_facts_of_the_machine(self):
        done, report = self.report("--links", "threads", "--ranks", "1")
        for word in ["in this build", "this machine", "cpus", "memory", "group", "/dev/shm", "locked memory", "rdma", "gpu"]:
            self.assertIn(word, done.stdout)
        self.assertGreaterEqual(report["machine"]["allowed_cpus"], 1)
        self.assertLessEqual(report["machine"]["allowed_cpus"], len(os.sched_getaffinity(0)))
        self.assertEqual({interface["name"] for interface in report["network"]}, set(os.listdir("/sys/class/net")) - {"bonding_masters"})
        self.assertLessEqual({"version", "build", "machine", "network", "rdma", "gpus", "warnings", "options", "checks", "seconds", "passed"},
                             report.keys())
        self.assertEqual(report["options"]["ranks"], [1])
        for warning in report["warnings"]:
            self.assertIn(f"warn: {warning}\n", done.stdout)

    def test_warn_of_few_cores(self):
        cores = len(os.sched_getaffinity(0))
        done = selftest("--links", "threads", "--ranks", str(cores + 1), "--devices", "none")
        self.assertRegex(done.stdout, rf"(?m)^warn: this process may use {cores} CPUs, fewer than the {cores + 1} ranks")

    def test_report_skipped_devices_if_there_are_none(self):
        if HAS_GPU_FILES:
            self.skipTest("there is a GPU here")
        done, report = self.report("--devices", "all", "--links", "threads", "--ranks", "2")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("skipped: gpus: no GPU was found: "), 2)
        self.assertIn("skipped", [check["status"] for check in report["checks"]])

    def test_check_devices_if_there_are_some(self):
        if not HAS_GPU_FILES:
            self.skipTest("there is no GPU here")
        done, report = self.report("--devices", "all")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("gpu 0, threads", [check["link"] for check in report["checks"] if check["status"] == "ok"])

    def test_fail_and_name_what_was_not_checked_in_time(self):
        done, report = self.report("--seconds", "1", "--ranks", "2,8", "--devices", "none")
        unchecked = [check for check in report["checks"] if check["status"] == "incomplete"]
        if not unchecked:
            self.skipTest("this machine is too fast")
        self.assertEqual(done.returncode, 1)
        self.assertFalse(report["passed"])
        self.assertIn("NOT ALL CHECKED", done.stdout)
        self.assertIn("raise --seconds", done.stdout)

    def test_show_progress_if_requested(self):
        done = selftest("--links", "threads", "--ranks", "1", "--progress", "on")
        self.assertIn("\x1b[Kthreads: 1 of ", done.stderr)


class WrongUsage(unittest.TestCase):
    def test_is_2(self):
        for arguments, word in [(["--links", "mars"], "--links: mars"), (["--ranks", "x"], "--ranks: 'x'"), (["--ranks", ""], "--ranks"),
                                (["--seconds", "0"], "--seconds"), (["--seconds", "nan"], "--seconds"), (["--device", "0"], "--device"),
                                (["--progress", "maybe"], "--progress")]:
            with self.subTest(arguments=arguments):
                done = selftest(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(word, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_of_missing_devices_and_files_is_an_error(self):
        for arguments, word in [(["--ranks", "0"], "--ranks 0"), (["--ranks", "2,1000000"], "--ranks 1000000"),
                                (["--devices", "77"], "there is no GPU 77"), (["--devices", "mars"], "--devices mars: expected none, first, all"),
                                (["--json", "/nonexistent/x.json"], "/nonexistent/x.json")]:
            with self.subTest(arguments=arguments):
                done = selftest(*arguments)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, r"(?m)^shunt: error \(\w+\): ")
                self.assertIn(word, done.stderr)


class Interrupt(unittest.TestCase):
    def test_ends_all_child_processes(self):
        for number in [signal.SIGINT, signal.SIGTERM]:
            with self.subTest(signal=number):
                running = subprocess.Popen([SHUNT, "selftest", "--ranks", "4", "--links", "processes,tcp", "--devices", "none"],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                end, started = time.monotonic() + 30, []
                while not started and running.poll() is None and time.monotonic() < end:
                    started = descendants(running.pid)
                self.assertTrue(started)
                running.send_signal(number)
                self.assertEqual(running.wait(10), -number)
                while [process for process in started if os.path.exists(f"/proc/{process}")] and time.monotonic() < end:
                    time.sleep(0.05)
                self.assertEqual([process for process in started if os.path.exists(f"/proc/{process}")], [])


if __name__ == "__main__":
    unittest.main()
