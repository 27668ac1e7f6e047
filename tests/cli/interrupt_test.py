"""Effects of signals on a benchmark and the processes it has started. Usage: interrupt_test.py PATH_TO_SHUNT [unittest arguments]"""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SHUNT = sys.argv.pop(1)
SMALL = ["--tokens", "40", "--hidden", "48", "--experts", "10", "--topk", "3", "--iterations", "2", "--warmup", "0"]


def living_members(process_group, field=2):
    """Processes of the group that are not zombies waiting for their parent."""
    living = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[field]) == process_group and fields[0] != "Z":
            living.append(int(pid))
    return living


def session_members(session):
    """The same for a session, whose ranks may be in other process groups."""
    return living_members(session, field=3)


def wait_until(condition):
    """Waits up to 20 seconds; returns whether the condition became true."""
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def start_long_run(*arguments, **options):
    """Starts two ranks of a benchmark that would run for minutes, in a new session."""
    return subprocess.Popen([SHUNT, "bench", "shuffle", *SMALL, "--ranks", "2", "--iterations", "1000000", *arguments],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, **options)


class Interrupt(unittest.TestCase):
    def test_ctrl_c_ends_all_ranks(self):
        job = subprocess.Popen([SHUNT, "bench", "shuffle", "--systems", "shunt", "--ranks", "3", "--iterations", "100000"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(1.0)
        self.assertIsNone(job.poll(), "ended by itself")
        os.killpg(job.pid, signal.SIGINT)
        self.assertNotEqual(job.wait(timeout=20), 0)
        deadline = time.monotonic() + 20
        while living_members(job.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(living_members(job.pid), [])

    def test_does_not_change_an_existing_report(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "result.json")
            with open(path, "w") as file:
                file.write("old")
            job = subprocess.Popen([SHUNT, "bench", "shuffle", *SMALL, "--iterations", "1000000", "--world", "inproc", "--json", path],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.5)
            self.assertIsNone(job.poll(), "ended by itself")
            job.kill()
            job.wait()
            self.assertEqual(os.listdir(folder), ["result.json"])
            with open(path) as file:
                self.assertEqual(file.read(), "old")

    def test_hangup_ends_ranks_that_are_processes(self):
        job = start_long_run("--systems", "shunt")
        self.addCleanup(job.kill)
        wait_until(lambda: len(session_members(job.pid)) == 3)
        job.send_signal(signal.SIGHUP)
        self.assertEqual(job.wait(timeout=20), -signal.SIGHUP)
        self.assertTrue(wait_until(lambda: not session_members(job.pid)), session_members(job.pid))

    def test_ignored_signals_stay_ignored(self):
        for systems in ["shunt", "shunt,mpi_alltoallv"]:
            with self.subTest(systems=systems):
                job = start_long_run("--systems", systems, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
                self.addCleanup(job.kill)
                self.assertTrue(wait_until(lambda: len(session_members(job.pid)) >= 3), session_members(job.pid))
                job.send_signal(signal.SIGHUP)
                with self.assertRaises(subprocess.TimeoutExpired):
                    job.wait(timeout=1)
                job.terminate()
                self.assertEqual(job.wait(timeout=20), -signal.SIGTERM)


class InterruptBesideMpi(unittest.TestCase):
    def setUp(self):
        if not shutil.which("mpirun") or "mpi     yes" not in subprocess.run([SHUNT, "info"], capture_output=True, text=True).stdout:
            self.skipTest("no MPI here")
        self.job = start_long_run()
        self.addCleanup(self.job.kill)
        wait_until(lambda: len(session_members(self.job.pid)) == 4)  # this, mpirun and two ranks
        self.assertEqual(len(session_members(self.job.pid)), 4)
        wait_until(lambda: sum("/vader_segment" in file for file in self.named_files()) == 2)
        self.files = self.named_files()
        self.assertEqual(sum("/vader_segment" in file for file in self.files), 2, self.files)
        self.assertTrue(any("/pid." in file for file in self.files), self.files)

    def named_files(self):
        """Named files that mpirun and the ranks have mapped, and the folders of this run."""
        files = set()
        for pid in session_members(self.job.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/maps") as maps:
                files |= {line.split(maxsplit=5)[-1].strip() for line in maps if "/vader_segment" in line or "/pid." in line}
        folders = {os.path.dirname(file) for file in files} - {"/dev/shm"}
        return {file for file in files | folders if os.path.exists(file)}

    def expect_nothing_left(self):
        self.assertTrue(wait_until(lambda: not session_members(self.job.pid)), session_members(self.job.pid))
        wait_until(lambda: not any(map(os.path.exists, self.files)))
        self.assertEqual([file for file in self.files if os.path.exists(file)], [])

    def test_killing_the_benchmark_ends_mpirun_and_its_ranks(self):
        self.job.kill()
        self.job.wait()
        self.expect_nothing_left()

    def expect_the_signal_to_end_the_run(self, number):
        self.job.send_signal(number)
        self.assertEqual(self.job.wait(timeout=20), -number)
        self.expect_nothing_left()

    def test_ctrl_c_is_visible_in_the_exit_status(self):
        self.expect_the_signal_to_end_the_run(signal.SIGINT)

    def test_hangup_is_visible_in_the_exit_status(self):
        self.expect_the_signal_to_end_the_run(signal.SIGHUP)

    def test_terminate_is_visible_in_the_exit_status(self):
        self.expect_the_signal_to_end_the_run(signal.SIGTERM)

    def test_a_signal_to_process_and_group_leaves_nothing(self):
        self.job.terminate()  # like timeout(1); after a second signal mpirun ends without removing its files
        os.killpg(self.job.pid, signal.SIGTERM)
        self.assertEqual(self.job.wait(timeout=20), -signal.SIGTERM)
        self.expect_nothing_left()

    def test_an_unresponsive_mpirun_is_killed(self):
        os.kill(self.mpirun(), signal.SIGSTOP)
        self.expect_the_signal_to_end_the_run(signal.SIGTERM)

    def test_a_killed_mpirun_leaves_nothing(self):
        os.kill(self.mpirun(), signal.SIGKILL)
        self.assertEqual(self.job.wait(timeout=20), 128 + signal.SIGKILL)
        self.expect_nothing_left()

    def mpirun(self):
        with open(f"/proc/{self.job.pid}/task/{self.job.pid}/children") as children:
            return int(children.read().split()[0])


if __name__ == "__main__":
    unittest.main()
