"""Shared code of tests on clusters of namespaces: starts ranks and collects their output."""
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "netcluster"
RANK = pathlib.Path(os.environ["SHUNT_HOSTS_RANK"]).resolve()
SHUNT = RANK.parent / "shunt"
NOT_PERMITTED = SKIPPED = 77
LIVENESS_MS = 4000


class Hosts(unittest.TestCase):
    def start(self, *words, program=RANK, options=(), hosts=3, ranks_per_host=2, rate="1gbit", **environment):
        environment = {**os.environ, "SHUNT_LIVENESS_MS": str(LIVENESS_MS), **environment}
        command = [TOOL, "--hosts", hosts, "--ranks-per-host", ranks_per_host, "--rate", rate, "--grace", 10, *options, "--", program, *words]
        job = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        if job.poll() is None:
            job.terminate()
        job.communicate()

    def finish(self, job, limit=60):
        """Output of the ranks, and the status of the first that failed."""
        printed, _ = job.communicate(timeout=limit)
        return printed, job.returncode


    def expect_success(self, *words, **options):
        printed, status = self.finish(self.start(*words, **options))
        self.assertEqual(status, 0, printed)
        return printed


class Shuffling(Hosts):
    """Ranks that shuffle until a test disturbs one of them."""

    def shuffle(self, *words, **options):
        job = self.start(*(words or ["forever"]), **options)
        self.assertEqual(job.stdout.readline(), "shuffling\n")
        return job

    def processes(self, job):
        """{rank: (pid, name of the cluster)}."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "exe").resolve() != RANK:
                    continue
                environment = dict(entry.split("=", 1) for entry in (folder / "environ").read_text().split("\0") if "=" in entry)
            except OSError:
                continue
            if environment.get("NETCLUSTER_NAME", "").startswith(f"{job.pid}-"):
                found[int(environment["RANK"])] = int(folder.name), environment["NETCLUSTER_NAME"]
        return found

    def pull_cable(self, job, host):
        subprocess.run([TOOL, "link", "--cluster", self.processes(job)[0][1], "--host", str(host), "down"], check=True)


def main():
    """Exits with ctest's skip code if the machine does not permit clusters, or if all tests were skipped."""
    if subprocess.run([TOOL, "--hosts", "1", "--", "true"], capture_output=True).returncode == NOT_PERMITTED:
        print("network namespaces are not permitted here")
        sys.exit(SKIPPED)
    result = unittest.main(module="__main__", verbosity=2, exit=False).result
    has_run = result.testsRun > len(result.skipped)
    sys.exit(not result.wasSuccessful() if has_run else SKIPPED)
