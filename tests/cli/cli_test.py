"""Tests of the command line. Usage: cli_test.py PATH_TO_SHUNT [unittest arguments]"""
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SHUNT = sys.argv.pop(1)
SMALL_REAL_TRACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "moe64k8-small.trace")
SMALL = ["--tokens", "40", "--hidden", "48", "--experts", "10", "--topk", "3", "--iterations", "2", "--warmup", "0"]


def shunt(*arguments, **options):
    return subprocess.run([SHUNT, *arguments], capture_output=True, text=True, timeout=120, **options)


def shuffle(*arguments):
    """The JSON report of a small benchmark that must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        done = shunt("bench", "shuffle", *SMALL, *arguments, "--json", path)
        if done.returncode != 0:
            raise AssertionError(f"exit {done.returncode}: {done.stderr}")
        assert os.listdir(folder) == ["result.json"], os.listdir(folder)
        with open(path) as file:
            return json.load(file)


class Help(unittest.TestCase):
    def test_explains_routings_systems_and_examples(self):
        text = shunt("bench", "shuffle", "--help").stdout
        for word in ["--ranks", "--layout", "zipf:A", "trace:FILE", "--layer", "mpi_alltoallv", "mpirun -n 4", "-1 for a choice", "32 ranks per core",
                     "Any of shunt (always measured), mpi_alltoallv, unfused, wire and rotation"]:
            self.assertIn(word, text)

    def test_explains_exit_status(self):
        self.assertIn("Exit status: 0 done, 1 an error, 2 a command line that is wrong", shunt("--help").stdout)


class ExitStatus(unittest.TestCase):
    def expect_wrong_usage(self, *arguments, word):
        with self.subTest(arguments=arguments):
            done = shunt(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(word, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_of_a_typo_is_2(self):
        self.expect_wrong_usage("bench", "shuffle", "--tokns", "3", word="--tokns")
        for words in [["bench", "shufle"], ["shufle"], ["shufle", "--ranks", "2"]]:
            self.expect_wrong_usage(*words, word="shufle")

    def test_of_a_missing_option_is_2(self):
        self.expect_wrong_usage(word="subcommand is required")
        self.expect_wrong_usage("bench", word="subcommand is required")
        self.expect_wrong_usage("schedule", "--model", "tiny", word="--cluster is required")
        self.expect_wrong_usage("info", "--ranks", word="--ranks")

    def test_of_an_invalid_value_is_2(self):
        for arguments, expected in [
            (["bench", "shuffle", "--world", "mars"], "--world: mars"),
            (["bench", "shuffle", "--seed", "-1"], "--seed: '-1', expected a whole number from 0 to 18446744073709551615"),
            (["bench", "shuffle", "--seed", "99999999999999999999"], "--seed: '99999999999999999999', expected"),
            (["bench", "layer", "--seed", ""], "--seed: '', expected a whole number"),
            (["bench", "shuffle", "--ranks", ""], "--ranks: '', expected a whole number"),
            (["info", "--ranks", "2.5"], "--ranks: '2.5', expected a whole number"),
            (["bench", "shuffle", "--tokens", "99999999999999999999"], "--tokens: '99999999999999999999', expected"),
            (["place", "--seed", "-1"], "--seed: '-1', expected"),
            (["place", "--holdout", ""], "--holdout: '', expected a number"),
            (["place", "--replicas", "nan"], "--replicas: 'nan', expected a number"),
            (["schedule", "--memory", "x"], "--memory: 'x', expected a number"),
            (["schedule", "--memory", "nan"], "--memory: 'nan', expected a number"),
            (["schedule", "--memory", "-1"], "--memory"),
        ]:
            self.expect_wrong_usage(*arguments, word=expected)

    def test_of_an_error_is_1(self):
        for arguments in [["info", "--ranks", "0"], ["info", "--json", "/nonexistent/x.json"], ["schedule", "--model", "x", "--cluster", "v100x8"],
                          ["report", "/nonexistent"]]:
            with self.subTest(arguments=arguments):
                done = shunt(*arguments)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, r"^shunt: error \(\w+\): ")

    def test_of_help_and_version_is_0(self):
        for arguments in [["--help"], ["--version"], ["bench", "--help"], ["schedule", "--help"]]:
            with self.subTest(arguments=arguments):
                self.assertEqual(shunt(*arguments).returncode, 0)

    def test_of_a_file_beyond_the_size_limit_is_1_and_nothing_is_left(self):
        with tempfile.TemporaryDirectory() as folder:
            done = shunt("schedule", "--model", "tiny", "--cluster", "v100x8", "--trace", os.path.join(folder, "trace.json"),
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("trace.json: File too large", done.stderr)
            self.assertEqual(os.listdir(folder), [])

    def test_leading_zeros_are_ignored(self):
        done = shunt("info", "--ranks", "0100000")
        self.assertIn("--ranks 100000: expected", done.stderr)


class Info(unittest.TestCase):
    def test_lists_the_build_and_the_machine(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "info.json")
            done = shunt("info", "--json", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            for word in ["inproc", "shm", "ucx", "pmix", "mpi", "cuda", "cores", "memory"]:
                self.assertIn(word, done.stdout)
            with open(path) as file:
                report = json.load(file)
            self.assertGreaterEqual(report["machine"]["cores"], 1)
            self.assertLessEqual({"inproc", "shm", "ucx", "pmix", "mpi", "cuda", "nccl", "onednn"}, report["build"].keys())
            self.assertEqual(report["version"], shunt("--version").stdout.strip())

    def test_measures_rates_and_a_barrier(self):
        for ranks, words in [("1", "with 1 rank as"), ("2", "with 2 ranks as")]:
            done = shunt("info", "--measure", "--ranks", ranks)
            self.assertEqual(done.returncode, 0, done.stderr)
            for word in [words, "copy", "write", "read", "barrier"]:
                self.assertIn(word, done.stdout)

    def test_too_many_ranks_per_core_are_refused(self):
        done = shunt("info", "--measure", "--ranks", "100000")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"--ranks 100000: expected 1 to \d+ on this machine \(32 per core\)")

    def test_an_unwritable_json_file_is_an_error_before_measuring(self):
        done = shunt("info", "--measure", "--json", "/nonexistent/x.json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")


class FullDisk(unittest.TestCase):
    def expect_error(self, *arguments):
        with open("/dev/full", "w") as full:
            done = subprocess.run([SHUNT, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("can't write to standard output: No space left", done.stderr)

    def test_is_an_error_of_every_verb(self):
        self.expect_error("info")
        self.expect_error("schedule", "--model", "tiny", "--cluster", "v100x8")
        self.expect_error("--help")

    def test_is_an_error_however_ranks_are_started(self):
        for arguments in [["--world", "inproc"], ["--systems", "shunt"], []]:
            with self.subTest(arguments=arguments):
                self.expect_error("bench", "shuffle", *SMALL, *arguments)

    def test_does_not_change_the_exit_status_if_only_stderr_is_full(self):
        for expected, arguments in [(1, ["bench", "shuffle", "--tokens", "-1"]),
                                    (0, ["bench", "shuffle", *SMALL, "--world", "inproc", "--progress", "on"]),
                                    (0, ["bench", "shuffle", *SMALL, "--systems", "shunt", "--progress", "on"])]:
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                self.assertEqual(subprocess.run([SHUNT, *arguments], stdout=subprocess.DEVNULL, stderr=full, timeout=120).returncode, expected)

    def test_fails_if_stdout_and_stderr_are_full(self):
        for arguments in [["info"], ["bench", "shuffle", *SMALL, "--world", "inproc"]]:
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                self.assertEqual(subprocess.run([SHUNT, *arguments], stdout=full, stderr=full, timeout=120).returncode, 1)


class ClosedStreams(unittest.TestCase):
    def test_are_not_reused_for_shared_memory_or_pipes(self):
        for arguments in [["--world", "inproc"], ["--systems", "shunt"], []]:
            for closed in ["0<&- 2>&-", "0<&-", "2>&-"]:
                with self.subTest(arguments=arguments, closed=closed):
                    command = " ".join([str(SHUNT), "bench", "shuffle", *SMALL, *arguments, "--progress", "on", closed])
                    done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True, timeout=120)
                    self.assertEqual(done.returncode, 0)
                    self.assertIn("dispatch", done.stdout)


class Limits(unittest.TestCase):
    def expect_refused(self, *arguments, words):
        start = time.monotonic()
        done = shunt("bench", "shuffle", *arguments)
        self.assertLess(time.monotonic() - start, 10)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)  # one line: no ranks were started
        for word in words:
            self.assertIn(word, done.stderr)

    def test_low_latency_is_measured_on_devices(self):
        self.expect_refused("--low-latency", words=["--low-latency: expected --device cuda"])

    def test_runs_that_exceed_the_memory_are_refused_with_the_options_to_lower(self):
        for arguments in [["--tokens", "100000000"], ["--hidden", "500000000"], ["--tokens", "2000000", "--layout", "padded", "--topk", "1"],
                          ["--tokens", "100000000", "--world", "inproc", "--systems", "shunt"]]:
            with self.subTest(arguments=arguments):
                fewer = [] if "--systems" in arguments else ["fewer --systems"]
                self.expect_refused(*arguments, words=["GiB", "available", "--tokens", "--hidden", *fewer])

    def test_sizes_that_overflow_are_refused_by_name(self):
        largest = str(2**63 - 1)
        for option, value in [("--tokens", largest), ("--tokens", "1000000000"), ("--hidden", largest), ("--hidden", "1073741824"),
                              ("--experts", "2147483647")]:
            with self.subTest(option=option, value=value):
                self.expect_refused(option, value, words=[option])

    def test_too_many_ranks_per_core_are_refused(self):
        self.expect_refused("--ranks", "1025", "--world", "inproc", words=["--ranks 1025", "on this machine", "32 per core"])

    def launch(self, world_size, local_world_size):
        """Runs rank 0 of a job on several machines without the other ranks."""
        variables = {"RANK": 0, "WORLD_SIZE": world_size, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": local_world_size, "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": 29507, "SHUNT_INTERFACE": "lo", "SHUNT_JOB_TOKEN": "test", "SHUNT_JOIN_MS": 100}
        return shunt("bench", "shuffle", *SMALL, "--world", "env", env={**os.environ, **{name: str(value) for name, value in variables.items()}})

    def test_apply_only_to_ranks_of_this_machine(self):
        if "ucx     yes" not in shunt("info").stdout:
            self.skipTest("no UCX here")
        self.assertIn("rank 0 waited 100 ms in vain for these of 4000 ranks", self.launch(4000, 2).stderr)
        self.assertRegex(self.launch(4000, 2000).stderr, r"--ranks 2000: expected 1 to \d+ on this machine")

    @unittest.skipIf(os.environ.get("SHUNT_SANITIZE"), "sanitizers take memory of their own")
    def test_many_ranks_take_little_memory(self):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            shunt("info", "--json", file.name)
            machine = json.load(open(file.name))["machine"]
        buffers = 8 * max(64 << 20, 3 * machine["last_level_cache_bytes"]) * machine["last_level_caches"]
        job = subprocess.Popen([SHUNT, "bench", "shuffle", *SMALL, "--world", "inproc", "--systems", "shunt", "--ranks", "32"],
                               stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(job.pid, 0)
        job.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(job.returncode, 0)
        self.assertLess(usage.ru_maxrss << 10, buffers + (1 << 30))


class BenchShuffle(unittest.TestCase):
    def test_writes_the_documented_report(self):
        report = shuffle("--world", "inproc", "--ranks", "3")
        self.assertTrue(report["verified"])
        self.assertEqual(report["config"]["ranks"], 3)
        self.assertEqual(report["config"]["world"], "inproc")
        for key in ["ranks", "nodes", "tokens", "hidden", "experts", "topk", "dtype", "layout", "routing", "device", "world"]:
            self.assertIn(key, report["config"])
        for key in ["copy_ceiling_gbps", "dispatch_efficiency", "combine_efficiency"]:
            self.assertGreater(report[key], 0)
        self.assertEqual([system["name"] for system in report["systems"]], ["shunt", "unfused"])
        for system in report["systems"]:
            for key in ["plan_ms", "dispatch_ms", "combine_ms", "moved_bytes"]:
                self.assertGreater(system[key], 0)
            for key in ["cross_node_bytes", "wire_bytes"]:
                self.assertIn(key, system)

    def test_counts_the_bytes_that_cross(self):
        one = shuffle("--world", "inproc", "--ranks", "4", "--nodes", "1")["systems"][0]
        two = shuffle("--world", "inproc", "--ranks", "4", "--nodes", "2")["systems"][0]
        self.assertEqual(one["cross_node_bytes"], 0)
        self.assertGreater(two["cross_node_bytes"], 0)
        self.assertLess(two["cross_node_bytes"], two["wire_bytes"])
        self.assertEqual(one["moved_bytes"], 4 * 40 * (1 + 3) * 48 * 2)

    def test_verifies_every_layout_and_dtype(self):
        for layout in ["expert_major", "token_unique", "padded"]:
            for dtype in ["f32", "bf16", "f16", "fp8_e4m3"]:
                with self.subTest(layout=layout, dtype=dtype):
                    report = shuffle("--world", "inproc", "--ranks", "4", "--nodes", "2", "--layout", layout, "--dtype", dtype,
                                     "--systems", "shunt", "--iterations", "1")
                    self.assertTrue(report["verified"])

    def test_compares_fp8_rows_with_baselines_in_bf16(self):
        report = shuffle("--world", "inproc", "--ranks", "2", "--dtype", "fp8_e4m3")
        ours, unfused = report["systems"]
        self.assertEqual(2 * ours["wire_bytes"], unfused["wire_bytes"])

    def test_accepts_every_routing(self):
        for routing in ["uniform", "zipf:1.2", "node-local", "bimodal", "hot-ranks:3", "clustered:3"]:
            with self.subTest(routing=routing):
                report = shuffle("--world", "inproc", "--ranks", "4", "--nodes", "2", "--routing", routing, "--systems", "shunt",
                                 "--iterations", "1")
                self.assertEqual(report["config"]["routing"], routing)

    def test_an_invalid_routing_is_refused_before_anything_starts(self):
        for routing in ["zipf:inf", "zipf:nan", "zipf:1e9", "zipf:-1", "zipf:", "clustered:2.5", "clustered:11", "clustered:0", "hot-ranks:0.5", "node-local"]:
            with self.subTest(routing=routing):
                done = shunt("bench", "shuffle", *SMALL, "--ranks", "4", "--nodes", "4", "--routing", routing)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"--routing {routing}", done.stderr)
                self.assertEqual(done.stderr.count("shunt: error"), 1)

    def test_the_steepest_zipf_still_draws_distinct_experts(self):
        report = shuffle("--world", "inproc", "--ranks", "2", "--routing", "zipf:10", "--experts", "4096", "--systems", "shunt")
        self.assertTrue(report["verified"])

    def test_node_local_touches_one_node_per_token(self):
        report = shuffle("--world", "inproc", "--ranks", "2", "--nodes", "2", "--routing", "node-local", "--layout", "token_unique",
                         "--systems", "shunt")
        # A node is one rank here, so a token is sent at most once.
        self.assertLessEqual(report["systems"][0]["wire_bytes"], 2 * 40 * 48 * 2)

    def test_runs_ranks_as_processes_beside_mpi(self):
        if not shutil.which("mpirun") or "mpi     yes" not in shunt("info").stdout:
            self.skipTest("no MPI here")
        report = shuffle("--ranks", "3")
        self.assertEqual(report["config"]["world"], "shm")
        self.assertEqual([system["name"] for system in report["systems"]], ["shunt", "mpi_alltoallv", "unfused"])

    def test_runs_ranks_as_processes_without_mpi(self):
        report = shuffle("--ranks", "3", "--systems", "shunt,unfused")
        self.assertEqual(report["config"]["world"], "shm")

    def test_ranks_without_tokens_and_more_ranks_than_experts(self):
        self.assertTrue(shuffle("--world", "inproc", "--ranks", "7", "--experts", "3", "--topk", "2")["verified"])

    def test_wrong_options_are_named(self):
        for option, value in [("--ranks", "0"), ("--ranks", "100000"), ("--nodes", "9"), ("--topk", "99"), ("--dtype", "int8"), ("--layout", "sideways"),
                              ("--routing", "zipf:steep"), ("--routing", "lottery"), ("--systems", "magic"), ("--world", "mars"),
                              ("--sms", "-1"), ("--sms", "20")]:
            with self.subTest(option=option, value=value):
                done = shunt("bench", "shuffle", *SMALL[:8], "--world", "inproc", option, value)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(value if option == "--dtype" else option.lstrip("-") if option == "--layout" else option,
                              done.stderr + done.stdout)

    def test_an_unwritable_json_file_is_an_error(self):
        done = shunt("bench", "shuffle", *SMALL, "--world", "inproc", "--systems", "shunt", "--json", "/nonexistent/x.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/x.json", done.stderr)

    def test_an_unwritable_json_file_is_an_error_before_measuring(self):
        for path in ["/nonexistent/x.json", "/"]:
            done = shunt("bench", "shuffle", *SMALL, "--iterations", "1000000000", "--json", path)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_world_env_without_a_launcher_is_refused(self):
        done = shunt("bench", "shuffle", *SMALL, "--world", "env", "--ranks", "4")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--world env: no launcher", done.stderr)

    def test_a_number_of_ranks_other_than_the_launchers_is_refused(self):
        launched = {**os.environ, "SHUNT_RANK": "0", "SHUNT_WORLD_SIZE": "1", "SHUNT_JOB": "test"}
        done = shunt("bench", "shuffle", *SMALL, "--world", "env", "--ranks", "4", env=launched)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--ranks 4: shunt has started 1", done.stderr)
        self.assertEqual(shunt("bench", "shuffle", *SMALL, "--world", "env", env=launched).returncode, 0)

    def test_prints_singular_and_planning_only_after_warm_up(self):
        cold = shunt("bench", "shuffle", *SMALL, "--world", "inproc", "--ranks", "1").stdout
        self.assertIn("1 rank (", cold)
        self.assertNotIn("planning", cold)
        self.assertIn("planning", shunt("bench", "shuffle", *SMALL, "--world", "inproc", "--warmup", "1").stdout)

    def test_a_pipe_is_written_to_and_a_link_is_followed(self):
        with tempfile.TemporaryDirectory() as folder:
            real, link, pipe = (os.path.join(folder, name) for name in ("real.json", "link.json", "pipe"))
            with open(real, "w") as file:
                file.write("old")
            os.symlink(real, link)
            os.mkfifo(pipe)
            self.assertEqual(shunt("info", "--json", link).returncode, 0)
            self.assertTrue(os.path.islink(link))
            with open(real) as file:
                self.assertIn("machine", json.load(file))
            reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
            self.assertEqual(shunt("info", "--json", pipe).returncode, 0)
            self.assertIn("machine", json.loads(reader.communicate(timeout=20)[0]))


class Trace(unittest.TestCase):
    def run_trace(self, text, *arguments):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(text)
            file.flush()
            done = shunt("bench", "shuffle", *SMALL, "--world", "inproc", "--systems", "shunt", *arguments, "--routing",
                         f"trace:{file.name}")
            return done.returncode, done.stderr.replace(file.name, "FILE")

    def test_is_replayed(self):
        self.assertEqual(self.run_trace("# recorded\n0 1 2\n\n7 8 9 3\n")[0], 0)

    def test_errors_name_file_and_line(self):
        for text, expected in [("0 1 2\n0 1 99\n", "FILE:2: expert 99"), ("0 1 1\n", "FILE:1: expert 1 is listed twice"),
                               ("0 1\n", "FILE:1: 2 experts"), ("0 1 two\n", "FILE:1: expected expert numbers"),
                               ("", "FILE: holds no tokens"), ("0 1 2\n0 1 -2\n", "FILE:2: expert -2"),
                               ("0 1 2\n3 4", "FILE:2: the line has no line break"), ("0 1 99999999999\n", "FILE:1:")]:
            with self.subTest(text=text):
                code, error = self.run_trace(text)
                self.assertEqual(code, 1)
                self.assertIn(expected, error)


    def test_dropped_choices_are_not_sent(self):
        text = "0 -1 2\n-1 -1 -1\n5 6 -1\n"
        for layout in ["expert_major", "token_unique", "padded"]:
            with self.subTest(layout=layout):
                code, error = self.run_trace(text, "--systems", "unfused", "--layout", layout)
                self.assertEqual(code, 0, error)

    def test_a_layer_of_a_routing_trace_is_replayed(self):
        replay = ["--routing", f"trace:{SMALL_REAL_TRACE}", "--experts", "64", "--topk", "8", "--ranks", "4", "--systems", "shunt,unfused"]
        for layout in ["expert_major", "token_unique", "padded"]:
            with self.subTest(layout=layout):
                report = shuffle(*replay, "--layer", "7", "--layout", layout)
                self.assertTrue(report["verified"])
                self.assertEqual(report["config"]["layer"], 7)
        done = shunt("bench", "shuffle", *replay, "--layer", "8")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--layer 8", done.stderr)
        self.assertIn("has layers 0 to 7", done.stderr)

    def test_path_that_is_no_file_is_refused(self):
        loop = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "loop")
        os.symlink(loop, loop)
        for path, expected in [("", "--routing trace"), ("/", "no regular file"), ("/nonexistent", "can't be opened: No such file"),
                               (loop, "can't be opened: Too many levels of symbolic links")]:
            with self.subTest(path=path):
                done = shunt("bench", "shuffle", *SMALL, "--routing", f"trace:{path}")
                self.assertEqual(done.returncode, 1)
                self.assertIn(expected, done.stderr)


if __name__ == "__main__":
    unittest.main()
