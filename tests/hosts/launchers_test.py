"""Ranks of several machines join under every supported launcher."""
import os
import re
import shutil
import unittest

from cluster import RANK, Hosts, main

FOUR_RANKS = [f"rank {rank} of 4 on node {rank // 2}" for rank in range(4)]


class Launchers(Hosts):
    AS_SRUN = ("export SLURM_PROCID=$RANK SLURM_STEP_NUM_TASKS=$WORLD_SIZE SLURM_STEP_NUM_NODES=2 SLURM_LOCALID=$LOCAL_RANK "
               f"SLURM_JOB_ID=1 SLURM_STEP_ID=0; unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE; exec {RANK} barrier")

    def start_by_srun(self, before=""):
        return self.start("-c", before + self.AS_SRUN, program="sh", hosts=2, ranks_per_host=2)

    def test_srun_joins_ranks_of_several_machines(self):
        printed, _ = self.finish(self.start_by_srun())
        self.assertEqual(sorted(printed.splitlines()), FOUR_RANKS)

    def test_launchers_that_set_only_rank_size_and_master_join_ranks(self):
        words = ["-u", "LOCAL_RANK", "-u", "LOCAL_WORLD_SIZE", RANK, "barrier"]
        printed = self.expect_success(*words, program="env", hosts=2, ranks_per_host=2)
        self.assertEqual(sorted(printed.splitlines()), FOUR_RANKS)

    def test_launchers_that_pass_no_variables_give_an_error_that_names_them(self):
        printed, status = self.finish(self.start_by_srun("unset MASTER_ADDR MASTER_PORT SHUNT_JOB_TOKEN; "))
        self.assertEqual(status, 3, printed)
        errors = re.findall("invalid_argument: srun started 2 of 4 ranks on this machine: set MASTER_ADDR and MASTER_PORT .* SHUNT_JOB_TOKEN", printed)
        self.assertEqual(len(errors), 4, printed)


@unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun here")
class Mpirun(Hosts):
    WITHOUT_VARIABLES = ["env", "-u", "MASTER_ADDR", "-u", "MASTER_PORT", "-u", "SHUNT_JOB_TOKEN"]

    def expect_barrier(self, *words):
        printed = self.expect_success("-n", 4, *words, program="mpirun", options=["--mpi"], hosts=2, ranks_per_host=2)
        # A busy machine makes mpirun warn of its own children.
        return sorted(line for line in printed.splitlines() if "plm:rsh: Warning" not in line)

    def pmix_program(self):
        program = os.environ.get("SHUNT_HOSTS_MPI_RANK")
        if not program:
            self.skipTest("this build has no PMIx or no MPI")
        return program

    def test_joins_ranks_by_variables(self):
        passed_on = ["-x", "MASTER_ADDR", "-x", "MASTER_PORT", "-x", "SHUNT_JOB_TOKEN", "-x", "SHUNT_INTERFACE"]
        self.assertEqual(self.expect_barrier(*passed_on, RANK, "barrier"), FOUR_RANKS)

    def test_needs_no_variables_before_or_after_mpi_init_and_for_several_worlds(self):
        program = self.pmix_program()
        for when in ("mpi-first", "mpi-later"):
            with self.subTest(when=when):
                self.assertEqual(self.expect_barrier(*self.WITHOUT_VARIABLES, program, when), sorted(3 * FOUR_RANKS) + ["sum 6"])

    def test_joins_the_ranks_of_a_communicator(self):
        halves = ["rank 0 of 2 on node 0", "rank 1 of 2 on node 1"]
        printed = self.expect_barrier(*self.WITHOUT_VARIABLES, self.pmix_program(), "mpi-bootstrap")
        self.assertEqual(printed, sorted(FOUR_RANKS + 2 * halves) + ["sum 6"])

    def test_needs_no_variables_without_mpi(self):
        self.pmix_program()
        for words in (["-u", "SHUNT_INTERFACE"], ["SHUNT_PORT_RANGE=31000-31999"], ["SHUNT_JOB_TOKEN=open sesame"]):
            with self.subTest(words=words):
                self.assertEqual(self.expect_barrier(*self.WITHOUT_VARIABLES, *words, RANK, "barrier"), FOUR_RANKS)

    def test_names_the_variables_that_only_rank_0_has(self):
        self.pmix_program()
        script = f"[ $OMPI_COMM_WORLD_RANK = 0 ] || unset SHUNT_JOB_TOKEN; export SHUNT_JOIN_MS=1000 RANK=$OMPI_COMM_WORLD_RANK; exec {RANK} barrier"
        job = self.start("-n", 2, "-map-by", "node", "sh", "-c", script, program="mpirun", options=["--mpi"], hosts=2)
        printed, _ = self.finish(job)
        self.assertRegex(printed, "rank 1: deadline: rank 1 waited 1000 ms in vain for rank 0 .* SHUNT_JOB_TOKEN .*set them for all ranks")


if __name__ == "__main__":
    main()
