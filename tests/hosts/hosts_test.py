"""Runs ranks on a cluster of namespaces: right results, flat memory, and an answer to every fault that names the culprit."""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
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
        """What the ranks printed, and the status of the first that failed."""
        printed, _ = job.communicate(timeout=limit)
        return printed, job.returncode


    def expect_success(self, *words, **options):
        printed, status = self.finish(self.start(*words, **options))
        self.assertEqual(status, 0, printed)
        return printed


class Results(Hosts):
    def test_ranks_find_their_hosts_by_themselves(self):
        printed = self.expect_success("meet", hosts=3, ranks_per_host=2)
        self.assertEqual(sorted(printed.splitlines()), [f"rank {rank} of 6 on node {rank // 2}" for rank in range(6)])

    def test_equal_the_reference_bit_for_bit(self):
        for hosts, ranks_per_host in ((2, 1), (4, 2), (7, 1)):
            with self.subTest(hosts=hosts, ranks_per_host=ranks_per_host):
                self.expect_success("cases", 0, 60, hosts=hosts, ranks_per_host=ranks_per_host)

    def test_equal_the_reference_with_slices_smaller_than_rows(self):
        self.expect_success("cases", 0, 20, SHUNT_SLICE_BYTES="300", SHUNT_RING_DEPTH="1")

    def count_bytes(self, **options):
        """(planned, sent by shunt, transmitted by the first interface of each host)"""
        printed = self.expect_success("bytes", 20, **options)
        return map(int, re.search(r"planned (\d+) sent (\d+) transmitted (\d+)", printed).groups())

    def test_send_what_the_planner_counts(self):
        planned, sent, transmitted = self.count_bytes()
        self.assertEqual(sent, planned)
        self.assertGreater(transmitted, planned)
        # Headers of shunt and, as these interfaces pass trains of up to 64 KiB on, one of Ethernet, IP and TCP per train.
        self.assertLess(transmitted, 1.02 * planned)
        print(f"interfaces: {transmitted / planned:.4f} of the planner's bytes")

    def test_take_all_interfaces_alike_where_every_rank_has_all(self):
        planned, _, transmitted = self.count_bytes(options=["--nics-per-host", 2], SHUNT_NET_DEVICES="eth0,eth1")
        self.assertAlmostEqual(transmitted / planned, 0.5, delta=0.1)

    def test_take_the_own_interface_where_every_rank_has_one(self):
        planned, _, transmitted = self.count_bytes(options=["--nics-per-host", 2], SHUNT_NET_DEVICES="eth1")
        self.assertLess(transmitted, 0.02 * planned)

    def test_are_the_same_on_several_rails(self):
        self.expect_success("cases", 0, 20, options=["--nics-per-host", 2], SHUNT_NET_DEVICES="eth0,eth1")

    def test_are_the_same_over_ucx(self):
        if "ucx     yes" not in subprocess.run([SHUNT, "info"], capture_output=True, text=True).stdout:
            self.skipTest("this build has no UCX")
        self.expect_success("cases", 0, 20, SHUNT_NETWORK="ucx")

    def test_two_thousand_shuffles_keep_memory_flat(self):
        self.expect_success("soak", 2000, hosts=4, ranks_per_host=2)


class Nodes(Hosts):
    """SHUNT_TOPOLOGY."""

    def file(self, nodes):
        file = tempfile.NamedTemporaryFile("w", suffix=".json")
        self.addCleanup(file.close)
        file.write(json.dumps({"nodes": nodes}))
        file.flush()
        return file.name

    def nodes_seen(self, nodes, **options):
        printed = self.expect_success("meet", SHUNT_TOPOLOGY=self.file(nodes), **options)
        return [int(line.split()[-1]) for line in sorted(printed.splitlines())]

    def expect_all_told(self, error, *words, **options):
        printed, status = self.finish(self.start(*words, hosts=2, ranks_per_host=2, **options))
        self.assertEqual(status, 3, printed)
        for rank in range(4):
            self.assertRegex(printed, f"(?m)^rank {rank}: {error}")

    def test_are_as_the_file_says_on_one_host_and_on_several(self):
        self.assertEqual(self.nodes_seen([[3, 1], [0, 2]], hosts=1, ranks_per_host=4), [1, 0, 1, 0])
        self.assertEqual(self.nodes_seen([[2, 3], [0, 1]], hosts=2, ranks_per_host=2), [1, 1, 0, 0])
        self.assertEqual(self.nodes_seen([[0], [2, 3], [1]], hosts=2, ranks_per_host=2), [0, 2, 1, 1])

    def test_smaller_than_hosts_give_the_results_of_the_reference(self):
        self.expect_success("cases", 0, 40, hosts=2, ranks_per_host=3, SHUNT_TOPOLOGY=self.file([[0, 2], [1], [3], [4, 5]]))

    def test_that_span_hosts_are_refused(self):
        error = "invalid_argument: SHUNT_TOPOLOGY: node 1 has rank 1 on host0 and rank 2 on host1"
        self.expect_all_told(error, "meet", SHUNT_TOPOLOGY=self.file([[0], [1, 2], [3]]))

    def test_of_other_ranks_than_there_are_are_refused(self):
        self.expect_all_told("invalid_argument: rank 0 on host0: .*: nodes: 3 ranks, but the world has 4", "meet", SHUNT_TOPOLOGY=self.file([[0, 1], [2]]))

    def test_that_not_all_ranks_have_read_alike_are_a_mismatch(self):
        for other, error in ((f"export SHUNT_TOPOLOGY={self.file([[0], [1], [2], [3]])}", "mismatch: rank 3 on host1 has other nodes than rank 0 on host0"),
                             ("unset SHUNT_TOPOLOGY", "mismatch: rank 3 on host1 has other nodes than rank 0 on host0"),
                             ("export SHUNT_TOPOLOGY=/nonexistent", "invalid_argument: rank 3 on host1: /nonexistent: can't be opened")):
            with self.subTest(other=other):
                script = f"[ $RANK != 3 ] || {other}; exec {RANK} meet"
                self.expect_all_told(error, "-c", script, program="sh", SHUNT_TOPOLOGY=self.file([[0], [1], [2, 3]]))


FOUR_RANKS = [f"rank {rank} of 4 on node {rank // 2}" for rank in range(4)]


class Launchers(Hosts):
    AS_SRUN = ("export SLURM_PROCID=$RANK SLURM_STEP_NUM_TASKS=$WORLD_SIZE SLURM_STEP_NUM_NODES=2 SLURM_LOCALID=$LOCAL_RANK "
               f"SLURM_JOB_ID=1 SLURM_STEP_ID=0; unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE; exec {RANK} meet")

    def start_by_srun(self, before=""):
        return self.start("-c", before + self.AS_SRUN, program="sh", hosts=2, ranks_per_host=2)

    def test_srun_finds_the_hosts(self):
        printed, _ = self.finish(self.start_by_srun())
        self.assertEqual(sorted(printed.splitlines()), FOUR_RANKS)

    def test_that_say_no_more_than_rank_size_and_master_find_the_hosts(self):
        words = ["-u", "LOCAL_RANK", "-u", "LOCAL_WORLD_SIZE", RANK, "meet"]
        printed = self.expect_success(*words, program="env", hosts=2, ranks_per_host=2)
        self.assertEqual(sorted(printed.splitlines()), FOUR_RANKS)

    def test_that_pass_nothing_on_leave_an_error_that_says_what_to_set(self):
        printed, status = self.finish(self.start_by_srun("unset MASTER_ADDR MASTER_PORT SHUNT_JOB_TOKEN; "))
        self.assertEqual(status, 3, printed)
        told = re.findall("invalid_argument: srun started 2 of 4 ranks on this host: set MASTER_ADDR and MASTER_PORT .* SHUNT_JOB_TOKEN", printed)
        self.assertEqual(len(told), 4, printed)


@unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun here")
class Mpirun(Hosts):
    WITHOUT_VARIABLES = ["env", "-u", "MASTER_ADDR", "-u", "MASTER_PORT", "-u", "SHUNT_JOB_TOKEN"]

    def expect_meeting(self, *words):
        printed = self.expect_success("-n", 4, *words, program="mpirun", options=["--mpi"], hosts=2, ranks_per_host=2)
        return sorted(printed.splitlines())

    def pmix_program(self):
        program = os.environ.get("SHUNT_HOSTS_MPI_RANK")
        if not program:
            self.skipTest("this build has no PMIx or no MPI")
        return program

    def test_finds_the_hosts_by_variables(self):
        passed_on = ["-x", "MASTER_ADDR", "-x", "MASTER_PORT", "-x", "SHUNT_JOB_TOKEN", "-x", "SHUNT_INTERFACE"]
        self.assertEqual(self.expect_meeting(*passed_on, RANK, "meet"), FOUR_RANKS)

    def test_needs_no_variables_whenever_the_program_calls_mpi_and_however_many_worlds_it_makes(self):
        program = self.pmix_program()
        for when in ("mpi-first", "mpi-later"):
            with self.subTest(when=when):
                self.assertEqual(self.expect_meeting(*self.WITHOUT_VARIABLES, program, when), sorted(3 * FOUR_RANKS) + ["sum 6"])

    def test_needs_no_variables_without_mpi(self):
        self.pmix_program()
        for words in (["-u", "SHUNT_INTERFACE"], ["SHUNT_PORT_RANGE=31000-31999"], ["SHUNT_JOB_TOKEN=open sesame"]):
            with self.subTest(words=words):
                self.assertEqual(self.expect_meeting(*self.WITHOUT_VARIABLES, *words, RANK, "meet"), FOUR_RANKS)

    def test_names_the_variables_that_only_rank_0_has(self):
        self.pmix_program()
        script = f"[ $OMPI_COMM_WORLD_RANK = 0 ] || unset SHUNT_JOB_TOKEN; export SHUNT_JOIN_MS=1000 RANK=$OMPI_COMM_WORLD_RANK; exec {RANK} meet"
        job = self.start("-n", 2, "-map-by", "node", "sh", "-c", script, program="mpirun", options=["--mpi"], hosts=2)
        printed, _ = self.finish(job)
        self.assertRegex(printed, "rank 1: deadline: rank 1 waited 1000 ms in vain for rank 0 .* SHUNT_JOB_TOKEN .*set them for all ranks")


class Bench(Hosts):
    def test_measures_all_systems_over_the_same_links(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            words = ["bench", "shuffle", "--world", "env", "--tokens", 64, "--hidden", 128, "--routing", "node-local", "--iterations", 1, "--json", path]
            printed, status = self.finish(self.start(*words, program=SHUNT, hosts=2, ranks_per_host=2))
            self.assertEqual(status, 0, printed)
            report = json.loads(path.read_text())
        self.assertEqual([system["name"] for system in report["systems"]], ["shunt", "mpi_alltoallv", "unfused", "wire"])
        self.assertTrue(report["verified"])
        self.assertEqual((report["config"]["world"], report["config"]["nodes"]), ("hosts", 2))
        shunt, mpi, _, wire = report["systems"]
        # All experts of a token on one node: it crosses once, or not at all; by MPI once for each of its eight experts.
        self.assertEqual(mpi["cross_node_bytes"], 8 * shunt["cross_node_bytes"])
        self.assertEqual(wire["cross_node_bytes"], shunt["cross_node_bytes"])


    def test_shows_that_the_busiest_link_is_as_light_as_can_be(self):
        for routing in ("bimodal", "zipf:1.2", "hot-ranks:3"):
            with self.subTest(routing=routing), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "report.json"
                words = ["bench", "shuffle", "--world", "env", "--tokens", 200, "--hidden", 64, "--routing", routing, "--iterations", 1,
                         "--systems", "shunt,rotation", "--json", path]
                printed, status = self.finish(self.start(*words, program=SHUNT, options=["--nics-per-host", 2], hosts=3, ranks_per_host=2))
                self.assertEqual(status, 0, printed)
                report = json.loads(path.read_text())
                shunt, rotation = report["systems"]
                self.assertEqual((shunt["name"], rotation["name"]), ("shunt", "rotation"))
                self.assertEqual(shunt["heaviest_link_bytes"], report["least_heaviest_link_bytes"])
                self.assertLessEqual(shunt["heaviest_link_bytes"], rotation["heaviest_link_bytes"])
                if routing == "bimodal":  # a sixth of all where each of the six NICs is seen as one, a third where hosts are
                    self.assertLess(4 * shunt["heaviest_link_bytes"], shunt["cross_node_bytes"])


class Shuffling(Hosts):
    """Ranks shuffle until something happens to one of them."""

    def shuffle(self, *words, **options):
        job = self.start(*(words or ["forever"]), **options)
        self.assertEqual(job.stdout.readline(), "shuffling\n")
        return job

    def processes(self, job):
        """By rank."""
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


class Faults(Shuffling):
    def expect_all_told(self, printed, survivors, culprits):
        for rank in survivors:
            told = re.search(rf"^rank {rank}: (\w+): (.*)$", printed, re.MULTILINE)
            self.assertIsNotNone(told, f"rank {rank} was told nothing:\n{printed}")
            self.assertIn(told[1], ("peer_lost", "peer_failed"), printed)
            named = [int(number) for number in re.findall(r"rank (\d+)", told[2].split("; rank")[0])]
            self.assertTrue(set(named) & set(culprits), f"rank {rank} was told of {named}, not of {culprits}:\n{printed}")
            self.assertRegex(told[2], r"(was in|called) (plan|dispatch|combine|barrier)")

    def test_a_killed_rank_is_named_by_all(self):
        for victim in (0, 3, 5):
            with self.subTest(victim=victim):
                job = self.shuffle()
                os.kill(self.processes(job)[victim][0], signal.SIGKILL)
                printed, status = self.finish(job)
                self.assertIn(status, (137, 3))  # of whoever ended first
                self.expect_all_told(printed, set(range(6)) - {victim}, {victim})

    def test_a_rank_that_is_killed_while_ranks_join_is_named_by_all(self):
        for repeat in range(8):
            with self.subTest(repeat=repeat):
                job, _, permit = self.start_gated(SHUNT_JOIN_MS="4000")
                permit(range(6))
                pid = self.wait_for(lambda: self.processes(job).get(2))[0]
                time.sleep(repeat * 0.02)
                os.kill(pid, signal.SIGKILL)
                printed, _ = self.finish(job, limit=20)
                for rank in (0, 1, 3, 4, 5):
                    self.assertRegex(printed, rf"(?m)^rank {rank}: (peer_lost: .*rank 2|deadline: .*in vain for these of 6 ranks: 2$)")

    def test_a_rank_that_ends_while_those_of_its_host_meet_is_named_by_all(self):
        for victim in (3, 4, 5) * 3:
            with self.subTest(victim=victim):
                job = self.start("forever", hosts=2, ranks_per_host=3, HOSTS_RANK_ENDS_IN_ITS_HOST=str(victim))
                printed, _ = self.finish(job, limit=20)
                for rank in set(range(6)) - {victim}:
                    self.assertRegex(printed, rf"(?m)^rank {rank}: peer_lost: .*rank {victim}\b")

    def test_a_stopped_rank_is_named_by_all(self):
        job = self.shuffle()
        os.kill(self.processes(job)[3][0], signal.SIGSTOP)
        printed, status = self.finish(job)
        self.assertEqual(status, 3)
        self.expect_all_told(printed, {0, 1, 2, 4, 5}, {3})
        self.assertIn("has not answered", printed)

    def test_ranks_behind_a_link_that_is_down_are_named(self):
        job = self.shuffle()
        self.pull_cable(job, 1)
        printed, status = self.finish(job)
        self.assertEqual(status, 3)
        self.expect_all_told(printed, {0, 1, 4, 5}, {2, 3})
        self.expect_all_told(printed, {2, 3}, {0, 1, 4, 5})

    def on_host(self, name, host, *command):
        return [str(TOOL), "exec", "--cluster", name, "--host", str(host), "--", *map(str, command)]

    def call_as_strangers(self, name, *words):
        """What strangers on each host have to say about it."""
        strangers = [sys.executable, pathlib.Path(__file__).with_name("strangers.py"), *words]
        said = [subprocess.run(self.on_host(name, host, *strangers), capture_output=True, text=True) for host in range(3)]
        for done in said:
            self.assertRegex(done.stdout, "[1-9][0-9]* ports", done.stderr)
        return [done.stdout for done in said]

    def expect_to_go_on(self, job):
        """Until a rank is killed."""
        time.sleep(1)
        self.assertIsNone(job.poll(), "the job goes on")
        os.kill(self.processes(job)[1][0], signal.SIGKILL)
        printed, _ = self.finish(job)
        self.expect_all_told(printed, {0, 2, 3, 4, 5}, {1})
        return printed

    def test_strangers_at_every_port_change_nothing(self):
        job = self.shuffle()
        self.call_as_strangers(self.processes(job)[1][1])
        self.expect_to_go_on(job)

    def start_gated(self, **environment):
        """Ranks that wait for permission: (job, name of the cluster, how to permit)."""
        gates = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        tell_name = f"if [ $RANK = 0 ]; then echo $NETCLUSTER_NAME > {gates}/half; mv {gates}/half {gates}/name; fi"
        script = f"{tell_name}; until [ -e {gates}/$RANK ]; do sleep 0.02; done; exec {RANK} forever"
        job = self.start("-c", script, program="sh", **environment)
        self.wait_for((gates / "name").exists)
        return job, (gates / "name").read_text().strip(), lambda ranks: [(gates / str(rank)).touch() for rank in ranks]

    def wait_for(self, holds):
        deadline = time.monotonic() + 60
        while not (answer := holds()):
            self.assertLess(time.monotonic(), deadline, "waited in vain")
            time.sleep(0.02)
        return answer

    def test_handshakes_that_were_recorded_are_worth_nothing_whole_or_cut_off(self):
        job, name, permit = self.start_gated()
        recording = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "recording"
        recorder = subprocess.Popen(self.on_host(name, 0, sys.executable, pathlib.Path(__file__).with_name("recorder.py"), recording),
                                    stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, recorder)
        self.assertEqual(recorder.stdout.readline(), "recording\n")

        def lengths(is_wanted):
            return [len(text) // 2 for port, text in json.loads(recording.read_text()) if is_wanted(port)] if recording.exists() else []

        permit(range(5))
        handshake_bytes = 56 + 32
        self.wait_for(lambda: sum(length > handshake_bytes for length in lengths(lambda port: port == 29500)) == 3)  # ranks 2, 3, 4
        said = self.call_as_strangers(name, recording)
        self.assertRegex(said[0], "[1-9][0-9]* refused")
        permit([5])
        while (line := job.stdout.readline()) != "shuffling\n":
            self.assertRegex(line, "^shunt: rank 0 refuses .* does not know the job's token")
        self.assertTrue(lengths(lambda port: port != 29500), "what ranks say to each other was recorded, too")
        self.call_as_strangers(name, recording)
        self.expect_to_go_on(job)

    def test_a_second_job_at_the_same_port_is_told_and_the_first_goes_on(self):
        job, name, permit = self.start_gated()
        permit(range(5))
        self.wait_for(lambda: len(self.processes(job)) == 5)

        def second_job(rank):
            rank_of_two = [f"RANK={rank}", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "SHUNT_JOB_TOKEN=another"]
            return subprocess.run(self.on_host(name, rank, "env", *rank_of_two, RANK, "meet"), capture_output=True, text=True).stdout

        self.assertRegex(second_job(1), "rank 1: invalid_argument: rank 0 at 10.77.0.1:29500 does not accept the token of rank 1")
        self.assertRegex(second_job(0), "rank 0: system: can't listen at 10.77.0.1:29500 .does another job meet there")
        permit([5])
        while (line := job.stdout.readline()) != "shuffling\n":
            self.assertRegex(line, "^shunt: rank 0 refuses .* says it is rank 1 but does not know the job's token")
        self.expect_to_go_on(job)

    def test_a_rank_that_takes_its_time_is_waited_for(self):
        self.expect_success("slowly", 10)

    def test_a_rank_that_is_stopped_for_less_than_the_limit_again_and_again_is_waited_for(self):
        job = self.start("cases", 0, 300)
        self.wait_for(lambda: len(self.processes(job)) == 6)
        victim = self.processes(job)[3][0]
        num_stops = 0
        while job.poll() is None and num_stops < 6:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGSTOP)
                time.sleep(0.4 * LIVENESS_MS / 1000)
                os.kill(victim, signal.SIGCONT)
            num_stops += 1
            time.sleep(0.1)
        printed, status = self.finish(job)
        self.assertEqual(status, 0, printed)
        self.assertGreaterEqual(num_stops, 3, "the job was over too soon")

    def test_a_rank_that_is_killed_in_the_middle_of_a_dispatch_is_named_by_all_every_time(self):
        for repeat in range(int(os.environ.get("SHUNT_KILL_REPEATS", 6))):
            with self.subTest(repeat=repeat):
                chance = random.Random(repeat)
                victim = chance.randrange(6)
                job = self.shuffle("dispatches")
                process = self.processes(job)[victim][0]
                time.sleep(chance.uniform(0, 0.2))
                os.kill(process, signal.SIGKILL)
                printed, _ = self.finish(job)
                self.expect_all_told(printed, set(range(6)) - {victim}, {victim})
                self.assertEqual(len(re.findall("(?:was in|called) dispatch", printed)), 5, printed)

    def test_a_slow_link_is_no_fault(self):
        job = self.shuffle()
        victim, name = self.processes(job)[1]
        subprocess.run([TOOL, "link", "--cluster", name, "--host", "0", "100mbit"], check=True)
        time.sleep(4)
        self.assertIsNone(job.poll(), "the job goes on, slowly")
        os.kill(victim, signal.SIGKILL)
        printed, _ = self.finish(job)
        self.expect_all_told(printed, {0, 2, 3, 4, 5}, {1})


class Survival(Shuffling):
    """Whoever is lost, the others make a new world and shuffle on, bit for bit as the reference."""

    def shuffle(self, **options):
        return super().shuffle("survive", 20, options=["--grace", 60], SHUNT_JOIN_MS="20000", **options)

    def expect_survivors(self, printed, survivors):
        names = " ".join(map(str, survivors))
        for rank, former in enumerate(survivors):
            self.assertIn(f"rank {former} goes on as rank {rank} of {names}\n", printed)

    def test_goes_on_without_a_killed_rank(self):
        for victim in (0, 3):
            with self.subTest(victim=victim):
                job = self.shuffle()
                os.kill(self.processes(job)[victim][0], signal.SIGKILL)
                printed, _ = self.finish(job)
                self.expect_survivors(printed, [rank for rank in range(6) if rank != victim])

    def test_goes_on_without_a_killed_host(self):
        job = self.shuffle()
        processes = self.processes(job)

        def send(what, ranks):
            for rank in ranks:
                os.kill(processes[rank][0], what)

        # At once, for the others: one after the other would be two losses.
        send(signal.SIGSTOP, (2, 3, 4, 5))
        send(signal.SIGKILL, (0, 1))
        send(signal.SIGCONT, (2, 3, 4, 5))
        printed, _ = self.finish(job)
        self.expect_survivors(printed, [2, 3, 4, 5])

    def test_of_two_sides_of_a_cut_only_the_larger_goes_on(self):
        job = self.shuffle()
        self.pull_cable(job, 0)
        printed, _ = self.finish(job)
        self.expect_survivors(printed, [2, 3, 4, 5])
        for rank in (0, 1):
            self.assertRegex(printed, rf"(?m)^rank {rank}: minority: only 2 of 6 ranks")

    def test_a_rank_that_wakes_up_later_harms_nobody(self):
        job = self.shuffle()
        sleeper = self.processes(job)[0][0]
        os.kill(sleeper, signal.SIGSTOP)
        printed = ""
        while "goes on" not in printed:
            line = job.stdout.readline()
            self.assertTrue(line, printed)
            printed += line
        os.kill(sleeper, signal.SIGCONT)
        rest = job.stdout.read()  # not communicate(), which forgets what readline() has read ahead
        job.wait(timeout=60)
        self.expect_survivors(printed + rest, [1, 2, 3, 4, 5])
        self.assertRegex(rest, r"(?m)^rank 0: minority: rank 0 finds none of the 5 other ranks")


if __name__ == "__main__":
    if subprocess.run([TOOL, "--hosts", "1", "--", "true"], capture_output=True).returncode == NOT_PERMITTED:
        print("network namespaces are not permitted here")
        sys.exit(SKIPPED)
    result = unittest.main(verbosity=2, exit=False).result
    has_run = result.testsRun > len(result.skipped)
    sys.exit(not result.wasSuccessful() if has_run else SKIPPED)
