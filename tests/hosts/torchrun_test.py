"""Ranks started by torchrun, whose store occupies MASTER_PORT, join on one machine without variables of shunt."""
import os
import subprocess
import unittest

from cluster import NOT_PERMITTED, RANK, ROOT, SKIPPED, TOOL, Hosts

TORCHRUN = ROOT / "build" / "python" / "bin" / "torchrun"


def run(*words, **environment):
    """Runs torchrun; returns stdout, stderr and status. A job that hangs fails the test."""
    command = [TORCHRUN, "--no-python", *words]
    unset = ("MASTER_ADDR", "MASTER_PORT", "SHUNT_JOB_TOKEN", "RANK", "WORLD_SIZE")
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(list(map(str, command)), env={**inherited, **environment}, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.stdout, done.stderr, done.returncode


def ranks_in(printed):
    return sorted(line for line in printed.splitlines() if line.startswith("rank "))


class Torchrun(Hosts):
    def test_joins_ranks_of_one_machine(self):
        for options in (["--standalone"], ["--master-port", "29533"]):
            with self.subTest(options=options):
                printed, errors, status = run(*options, "--nproc-per-node", 3, RANK, "barrier")
                self.assertEqual(status, 0, errors)
                self.assertEqual(ranks_in(printed), [f"rank {rank} of 3 on node 0" for rank in range(3)])

    def test_joins_them_again_after_a_rank_has_failed(self):
        script = ('if [ $TORCHELASTIC_RESTART_COUNT = 2 ]; then exec "$0" barrier; fi; '
                  'if [ $RANK = $TORCHELASTIC_RESTART_COUNT ]; then "$0" barrier-twice; exit 9; fi; exec "$0" barrier-twice')
        printed, errors, status = run("--standalone", "--max-restarts", 3, "--nproc-per-node", 3, "sh", "-c", script, RANK)
        self.assertEqual(status, 0, errors)
        joined = ranks_in(printed)
        for rank in range(3):
            self.assertIn(f"rank {rank} of 3 on node 0", joined)

    def test_joins_ranks_of_several_machines_that_have_a_token(self):
        if subprocess.run([TOOL, "--hosts", "1", "--", "true"], capture_output=True).returncode == NOT_PERMITTED:
            self.skipTest("network namespaces are not permitted here")
        script = (f"exec {TORCHRUN} --no-python --nnodes 2 --nproc-per-node 2 --node-rank $RANK "
                  f"--master-addr $MASTER_ADDR --master-port $MASTER_PORT {RANK} barrier")
        printed = self.expect_success("-c", script, program="sh", hosts=2, ranks_per_host=1)
        self.assertEqual(ranks_in(printed), [f"rank {rank} of 4 on node {rank // 2}" for rank in range(4)])


def main():
    if not TORCHRUN.exists():
        print("skipped: no torchrun; tools/setup_python installs it from PyPI")
        raise SystemExit(SKIPPED)
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
