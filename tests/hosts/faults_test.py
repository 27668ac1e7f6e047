"""Ranks of several machines: every fault is an Error that names the culprit, and survivors can continue."""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from cluster import LIVENESS_MS, RANK, TOOL, Shuffling, main


class Faults(Shuffling):
    def expect_all_name(self, printed, survivors, culprits):
        for rank in survivors:
            error = re.search(rf"^rank {rank}: (\w+): (.*)$", printed, re.MULTILINE)
            self.assertIsNotNone(error, f"rank {rank} printed no error:\n{printed}")
            self.assertIn(error[1], ("peer_lost", "peer_failed"), printed)
            named = [int(number) for number in re.findall(r"rank (\d+)", error[2].split("; rank")[0])]
            self.assertTrue(set(named) & set(culprits), f"rank {rank} named {named}, not {culprits}:\n{printed}")
            self.assertRegex(error[2], r"(was in|called) (plan|dispatch|combine|barrier)")

    def test_a_killed_rank_is_named_by_all(self):
        for victim in (0, 3, 5):
            with self.subTest(victim=victim):
                job = self.shuffle()
                os.kill(self.processes(job)[victim][0], signal.SIGKILL)
                printed, status = self.finish(job)
                self.assertIn(status, (137, 3))  # of the rank that ended first
                self.expect_all_name(printed, set(range(6)) - {victim}, {victim})

    def test_a_rank_killed_while_ranks_join_is_named_by_all(self):
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

    def test_a_rank_killed_while_its_machine_attaches_is_named_by_all(self):
        for victim in (3, 4, 5) * 3:
            with self.subTest(victim=victim):
                job = self.start("forever", hosts=2, ranks_per_host=3, HOSTS_RANK_KILLED_WHILE_ATTACHING=str(victim))
                printed, _ = self.finish(job, limit=20)
                for rank in set(range(6)) - {victim}:
                    self.assertRegex(printed, rf"(?m)^rank {rank}: peer_lost: .*rank {victim}\b")

    def test_a_stopped_rank_is_named_by_all(self):
        job = self.shuffle()
        os.kill(self.processes(job)[3][0], signal.SIGSTOP)
        printed, status = self.finish(job)
        self.assertEqual(status, 3)
        self.expect_all_name(printed, {0, 1, 2, 4, 5}, {3})
        self.assertIn("has not answered", printed)

    def test_ranks_behind_a_link_that_is_down_are_named(self):
        job = self.shuffle()
        self.pull_cable(job, 1)
        printed, status = self.finish(job)
        self.assertEqual(status, 3)
        self.expect_all_name(printed, {0, 1, 4, 5}, {2, 3})
        self.expect_all_name(printed, {2, 3}, {0, 1, 4, 5})

    def on_host(self, name, host, *command):
        return [str(TOOL), "exec", "--cluster", name, "--host", str(host), "--", *map(str, command)]

    def connect_without_token(self, name, *words, hosts=range(3)):
        """Runs unauthenticated.py on each machine; returns its outputs."""
        command = [sys.executable, pathlib.Path(__file__).with_name("unauthenticated.py"), *words]
        runs = [subprocess.run(self.on_host(name, host, *command), capture_output=True, text=True) for host in hosts]
        for done in runs:
            self.assertRegex(done.stdout, "[1-9][0-9]* ports", done.stderr)
        return [done.stdout for done in runs]

    def expect_to_continue(self, job):
        """Expects the job to run until a rank is killed."""
        time.sleep(1)
        self.assertIsNone(job.poll(), "the job goes on")
        processes = self.processes(job)
        if 1 not in processes:
            self.fail("rank 1 has ended: " + self.finish(job)[0])
        os.kill(processes[1][0], signal.SIGKILL)
        printed, _ = self.finish(job)
        self.expect_all_name(printed, {0, 2, 3, 4, 5}, {1})
        return printed

    def test_unauthenticated_connections_to_every_port_have_no_effect(self):
        job = self.shuffle()
        self.connect_without_token(self.processes(job)[1][1])
        self.expect_to_continue(job)

    def start_gated(self, **environment):
        """Starts ranks that wait for permission: (job, name of the cluster, function that permits ranks)."""
        gates = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        write_name = f"if [ $RANK = 0 ]; then echo $NETCLUSTER_NAME > {gates}/half; mv {gates}/half {gates}/name; fi"
        script = f"{write_name}; until [ -e {gates}/$RANK ]; do sleep 0.02; done; exec {RANK} forever"
        job = self.start("-c", script, program="sh", **environment)
        self.wait_for((gates / "name").exists)
        return job, (gates / "name").read_text().strip(), lambda ranks: [(gates / str(rank)).touch() for rank in ranks]

    def wait_for(self, holds):
        deadline = time.monotonic() + 60
        while not (answer := holds()):
            self.assertLess(time.monotonic(), deadline, "timed out")
            time.sleep(0.02)
        return answer

    def test_replayed_handshakes_are_refused_complete_or_truncated(self):
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
        outputs = self.connect_without_token(name, recording, hosts=[0])  # ranks of other machines don't listen yet
        self.assertRegex(outputs[0], "[1-9][0-9]* refused")
        permit([5])
        while (line := job.stdout.readline()) != "shuffling\n":
            self.assertRegex(line, "^shunt: rank 0 refuses .* does not know the job's token")
        self.assertTrue(lengths(lambda port: port != 29500), "connections between ranks were recorded, too")
        self.connect_without_token(name, recording)
        self.expect_to_continue(job)

    def test_a_second_job_at_the_same_port_is_refused_and_the_first_continues(self):
        job, name, permit = self.start_gated()
        permit(range(5))
        self.wait_for(lambda: len(self.processes(job)) == 5)

        def second_job(rank):
            rank_of_two = [f"RANK={rank}", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "SHUNT_JOB_TOKEN=another"]
            return subprocess.run(self.on_host(name, rank, "env", *rank_of_two, RANK, "barrier"), capture_output=True, text=True).stdout

        self.assertRegex(second_job(1), "rank 1: invalid_argument: rank 0 at 10.77.0.1:29500 does not accept the token of rank 1")
        self.assertRegex(second_job(0), "rank 0: system: rank 0 can't listen at 10.77.0.1:29500: another program does, such as another job's rank 0")
        permit([5])
        while (line := job.stdout.readline()) != "shuffling\n":
            self.assertRegex(line, "^shunt: rank 0 refuses .* identifies as rank 1 but does not know the job's token")
        self.expect_to_continue(job)

    def test_a_slow_rank_is_no_fault(self):
        self.expect_success("slowly", 10)

    def test_a_rank_stopped_repeatedly_for_less_than_the_limit_is_no_fault(self):
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

    def test_a_rank_killed_during_a_dispatch_is_named_by_all_every_time(self):
        for repeat in range(int(os.environ.get("SHUNT_KILL_REPEATS", 6))):
            with self.subTest(repeat=repeat):
                chance = random.Random(repeat)
                victim = chance.randrange(6)
                job = self.shuffle("dispatches")
                process = self.processes(job)[victim][0]
                time.sleep(chance.uniform(0, 0.2))
                os.kill(process, signal.SIGKILL)
                printed, _ = self.finish(job)
                self.expect_all_name(printed, set(range(6)) - {victim}, {victim})
                self.assertEqual(len(re.findall("(?:was in|called) dispatch", printed)), 5, printed)

    def test_a_slow_link_is_no_fault(self):
        job = self.shuffle()
        victim, name = self.processes(job)[1]
        subprocess.run([TOOL, "link", "--cluster", name, "--host", "0", "100mbit"], check=True)
        time.sleep(4)
        self.assertIsNone(job.poll(), "the job goes on, slowly")
        os.kill(victim, signal.SIGKILL)
        printed, _ = self.finish(job)
        self.expect_all_name(printed, {0, 2, 3, 4, 5}, {1})


class Survival(Shuffling):
    """Survivors rebuild the world and shuffle on; results are compared bit for bit with the reference."""

    def shuffle(self, **options):
        return super().shuffle("survive", 20, options=["--grace", 60], SHUNT_JOIN_MS="20000", **options)

    def expect_survivors(self, printed, survivors):
        names = " ".join(map(str, survivors))
        for rank, former in enumerate(survivors):
            self.assertIn(f"rank {former} goes on as rank {rank} of {names}\n", printed)

    def test_continues_without_a_killed_rank(self):
        for victim in (0, 3):
            with self.subTest(victim=victim):
                job = self.shuffle()
                os.kill(self.processes(job)[victim][0], signal.SIGKILL)
                printed, _ = self.finish(job)
                self.expect_survivors(printed, [rank for rank in range(6) if rank != victim])

    def test_continues_without_a_killed_machine(self):
        job = self.shuffle()
        processes = self.processes(job)

        def send(what, ranks):
            for rank in ranks:
                os.kill(processes[rank][0], what)

        # The others are stopped meanwhile, so that they see one loss of two ranks, not two losses.
        send(signal.SIGSTOP, (2, 3, 4, 5))
        send(signal.SIGKILL, (0, 1))
        send(signal.SIGCONT, (2, 3, 4, 5))
        printed, _ = self.finish(job)
        self.expect_survivors(printed, [2, 3, 4, 5])

    def test_only_the_larger_side_of_a_partition_continues(self):
        job = self.shuffle()
        self.pull_cable(job, 0)
        printed, _ = self.finish(job)
        self.expect_survivors(printed, [2, 3, 4, 5])
        for rank in (0, 1):
            self.assertRegex(printed, rf"(?m)^rank {rank}: minority: only 2 of 6 ranks")

    def test_a_rank_that_resumes_later_has_no_effect(self):
        job = self.shuffle()
        sleeper = self.processes(job)[0][0]
        os.kill(sleeper, signal.SIGSTOP)
        printed = ""
        while "goes on" not in printed:
            line = job.stdout.readline()
            self.assertTrue(line, printed)
            printed += line
        os.kill(sleeper, signal.SIGCONT)
        rest = job.stdout.read()  # not communicate(), which loses the bytes that readline() has buffered
        job.wait(timeout=60)
        self.expect_survivors(printed + rest, [1, 2, 3, 4, 5])
        self.assertRegex(rest, r"(?m)^rank 0: minority: rank 0 finds none of the 5 other ranks")


if __name__ == "__main__":
    main()
