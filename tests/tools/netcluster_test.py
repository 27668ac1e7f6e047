"""Runs small programs on clusters of namespaces and checks what they see, link rates, and the cleanup."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "netcluster"
CLUSTERS = pathlib.Path("/run/shunt-netcluster")
sys.path.insert(0, str(TOOL.parent))
from cluster import folder  # noqa: E402
NOT_PERMITTED = SKIPPED = 77

# The beginning of every rank's program.
PRELUDE = """
import json, os, pathlib, socket, subprocess, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
shared = pathlib.Path(os.environ["SHARED"])
addresses = [host.split(",") for host in os.environ["NETCLUSTER_ADDRESSES"].split(";")]

def tool(*words):
    return subprocess.run([os.environ["NETCLUSTER_TOOL"], *words], check=True, capture_output=True, text=True).stdout

def barrier(name):
    (shared / f"{name}.{rank}").touch()
    while not all((shared / f"{name}.{other}").exists() for other in range(size)):
        time.sleep(0.01)

def listen(nic=0):
    return socket.create_server((addresses[rank][nic], 5000))

def connect(to, nic=0, own_nic=0):
    return socket.create_connection((addresses[to][nic], 5000), 1, (addresses[rank][own_nic], 0))

def drain(connection):
    buffer, received = bytearray(1 << 20), 0
    while size := connection.recv_into(buffer):
        received += size
    return received
"""


def command(*options, program=None, words=None):
    return [TOOL, *map(str, options), "--", *(words or [sys.executable, "-c", PRELUDE + program])]


class Netcluster(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.shared = pathlib.Path(folder.name)
        self.environment = {**os.environ, "SHARED": folder.name}

    def run_cluster(self, *options, program=None, words=None, status=0, environment={}):
        """Runs a cluster; returns its output."""
        done = subprocess.run(command(*options, program=program, words=words), capture_output=True, text=True, timeout=60,
                              env={**self.environment, **environment})
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout

    def reports(self, *options, **how):
        """The output of each rank, a JSON object with its rank, in the order of ranks."""
        reports = map(json.loads, self.run_cluster(*options, **how).splitlines())
        return sorted(reports, key=lambda report: report["rank"])


class Launch(Netcluster):
    def test_each_rank_gets_its_variables(self):
        program = "print(json.dumps({'rank': rank, 'host': socket.gethostname(), 'environment': dict(os.environ)}))"
        reports = self.reports("--hosts", 2, "--ranks-per-host", 3, "--nics-per-host", 2, program=program)
        self.assertEqual([report["host"] for report in reports], ["host0"] * 3 + ["host1"] * 3)
        environments = [report["environment"] for report in reports]
        for name, values in {
            "RANK": "012345", "WORLD_SIZE": "666666", "LOCAL_RANK": "012012", "LOCAL_WORLD_SIZE": "333333",
            "SHUNT_INTERFACE": ["eth0,eth1"] * 6, "MASTER_ADDR": ["10.77.0.1"] * 6, "MASTER_PORT": ["29500"] * 6,
            "NETCLUSTER_HOST": "000111", "NETCLUSTER_HOSTS": ["host0,host1"] * 6, "NETCLUSTER_NICS": ["eth0,eth1"] * 6,
            "NETCLUSTER_ADDRESSES": ["10.77.0.1,10.77.1.1;10.77.0.2,10.77.1.2"] * 6,
            "NETCLUSTER_BRIDGE_ENDS": ["host0-eth0,host0-eth1;host1-eth0,host1-eth1"] * 6,
        }.items():
            self.assertEqual([environment[name] for environment in environments], list(values), name)
        tokens = {environment["SHUNT_JOB_TOKEN"] for environment in environments}
        self.assertEqual([len(token) for token in tokens], [32])

    def test_keeps_the_job_token(self):
        words = ["sh", "-c", "echo $SHUNT_JOB_TOKEN"]
        self.assertEqual(self.run_cluster("--hosts", 1, words=words, environment={"SHUNT_JOB_TOKEN": "mine"}), "mine\n")

    def test_labels_lines_only_if_requested(self):
        words = ["sh", "-c", "echo out; printf end"]
        self.assertEqual(self.run_cluster("--hosts", 1, words=words), "out\nend")
        self.assertEqual(self.run_cluster("--hosts", 1, "--label", words=words), "[0] out\n[0] end\n")

    def test_lines_of_ranks_do_not_mix(self):
        program = "for letter in 'line\\n' * 20: print(letter, end='', flush=True); time.sleep(0.001)"
        self.assertEqual(set(self.run_cluster("--hosts", 2, "--ranks-per-host", 2, program=program).splitlines()), {"line"})

    def test_two_clusters_run_at_once(self):
        program = """
listener = listen()
(shared / f"{os.environ['NETCLUSTER_NAME']}.{rank}").touch()
while len(list(shared.iterdir())) < 4:
    time.sleep(0.01)
"""
        runs = [subprocess.Popen(command("--hosts", 2, program=program), env=self.environment) for _ in range(2)]
        self.assertEqual([run.wait(timeout=30) for run in runs], [0, 0])

    def test_refuses_invalid_options(self):
        for option, value in (("--rate", "5bit"), ("--rate", "fast"), ("--grace", "-1"), ("--grace", "nan"), ("--hosts", "0"), ("--nics-per-host", "17")):
            with self.subTest(f"{option} {value}"):
                done = subprocess.run([TOOL, f"{option}={value}", "--", "true"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(value, done.stderr.splitlines()[-1])

    def test_reports_why_it_is_not_possible(self):
        done = subprocess.run(["setpriv", "--bounding-set=-sys_admin", *command(words=["true"])], capture_output=True, text=True)
        self.assertEqual(done.returncode, NOT_PERMITTED)
        self.assertRegex(done.stderr, r"\Anetcluster: not possible here: .*not permitted\n\Z")


class Isolation(Netcluster):
    def test_hosts_share_files_but_no_memory(self):
        program = """
import ctypes
CREATE, KEY = 0o1000, 0x5483
path = pathlib.Path("/dev/shm/netcluster_test")
if rank == 0:
    path.touch()
    assert ctypes.CDLL(None).shmget(KEY, 4096, CREATE | 0o600) >= 0
barrier("written")
print(json.dumps({"rank": rank, "file": path.exists(), "sysv": ctypes.CDLL(None).shmget(KEY, 0, 0) >= 0,
                  "boot": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(),
                  "namespaces": [os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "uts", "ipc", "mnt", "pid")],
                  "nics": sorted(os.listdir("/sys/class/net"))}))
"""
        reports = self.reports("--hosts", 2, "--ranks-per-host", 2, program=program)
        for kind in ("file", "sysv"):
            self.assertEqual([report[kind] for report in reports], [True, True, False, False], kind)
        for report in reports:
            self.assertEqual(report["nics"], ["eth0", "lo"])
        for own, same, other, _ in zip(*(report["namespaces"] + [report["boot"]] for report in reports)):
            self.assertEqual(own, same)
            self.assertNotEqual(own, other)

    def test_the_network_of_the_machine_does_not_change(self):
        network = subprocess.check_output(["ip", "-oneline", "link"])
        with subprocess.Popen(command(program="print(flush=True); time.sleep(60)"), env=self.environment, stdout=subprocess.PIPE) as run:
            run.stdout.readline()
            self.assertEqual(subprocess.check_output(["ip", "-oneline", "link"]), network)
            run.terminate()


class Links(Netcluster):
    def ratio(self, senders, receivers):
        """Measured bytes per second from `senders` to `receivers`, over the rate."""
        program = f"""
senders, receivers, seconds = {senders}, {receivers}, 0.7
if rank in receivers:
    listener = listen()
barrier("listening")
if rank in senders:
    connections = [connect(receiver) for receiver in receivers]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for connection in connections:
            connection.sendall(bytes(1 << 18))
elif rank in receivers:
    import threading
    received, begin = [], time.monotonic()
    threads = [threading.Thread(target=lambda c=listener.accept()[0]: received.append(drain(c))) for _ in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({{"rank": rank, "rate": sum(received) * 8 / (time.monotonic() - begin)}}))
"""
        for file in self.shared.iterdir():
            file.unlink()
        reports = self.reports("--hosts", len(senders) + len(receivers), "--rate", "1gbit", program=program)
        return sum(report["rate"] for report in reports) / 1e9

    def test_rate_holds_in_both_directions(self):
        for name, senders, receivers in (("one flow", [0], [1]), ("sent by one", [0], [1, 2]), ("received by one", [0, 1], [2])):
            for attempt in range(4):  # machines are noisy
                ratio = self.ratio(senders, receivers)
                print(f"{name}: {ratio:.3f} of the rate", flush=True)
                if 0.7 <= ratio <= 1.1:
                    break
            else:
                self.fail(f"{name}: never between 0.7 and 1.1 of the rate")

    def test_link_changes_the_rate(self):
        program = """
def limits():
    return [tool("exec", "--host", str(host), "--", "tc", "qdisc", "show", "dev", "eth0").split() for host in range(2)]
def rates():
    return [words[words.index("rate") + 1] if "tbf" in words else None for words in limits()]
seen = [rates()]
for host, rate in (("1", "250mbit"), ("all", "2gbit"), ("0", "none")):
    tool("link", "--host", host, rate)
    seen.append(rates())
print(json.dumps({"rank": rank, "seen": seen}))
"""
        words = [sys.executable, "-c", f"import os\nif os.environ['RANK'] == '0':\n  exec({PRELUDE + program!r})"]
        seen = self.reports("--hosts", 2, "--rate", "auto", words=words)[0]["seen"]
        self.assertEqual(seen, [[None, None], [None, "250Mbit"], ["2Gbit", "2Gbit"], [None, "2Gbit"]])

    def test_a_busy_link_may_become_slow(self):
        program = """
if rank == 1:
    listener = listen()
barrier("listening")
if rank == 0:
    connection = connect(1)
    slower = subprocess.Popen([os.environ["NETCLUSTER_TOOL"], "link", "--host", "0", "100mbit"])
    connection.settimeout(10)
    while slower.poll() is None:
        connection.sendall(bytes(1 << 20))
    connection.sendall(bytes(1 << 22))
    print(json.dumps({"rank": rank, "is_slow": slower.returncode == 0}))
else:
    drain(listener.accept()[0])
"""
        for _ in range(3):
            for file in self.shared.iterdir():
                file.unlink()
            self.assertEqual(self.reports("--hosts", 2, "--rate", "1gbit", program=program), [{"rank": 0, "is_slow": True}])

    def test_link_goes_down_and_up(self):
        program = """
listener = listen()
barrier("listening")
def reaches(other):
    try:
        return bool(connect(other))
    except TimeoutError:
        return False
if rank == 0:
    seen = [[reaches(1), reaches(2)]]
    for state in ("down", "up"):
        tool("link", "--host", "host1", state)
        seen.append([reaches(1), reaches(2)])
    print(json.dumps({"rank": rank, "seen": seen}))
barrier("seen")
"""
        seen = self.reports("--hosts", 3, program=program)[0]["seen"]
        self.assertEqual(seen, [[True, True], [False, True], [True, True]])

    def test_counters_name_the_nic_that_has_the_bound_address(self):
        program = """
NUM_BYTES = 5_000_000
if rank == 1:
    listener = listen(nic=0)
barrier("listening")
if rank == 0:
    with connect(1, nic=0, own_nic=1) as connection:
        connection.sendall(bytes(NUM_BYTES))
else:
    assert drain(listener.accept()[0]) == NUM_BYTES
barrier("received")
if rank == 0:
    print(tool("counters"))
"""
        counters = json.loads(self.run_cluster("--hosts", 2, "--nics-per-host", 2, program=program))
        large = {(host, nic, way) for host, nics in counters.items() for nic, ways in nics.items()
                 for way, num_bytes in ways.items() if 5_000_000 <= num_bytes <= 5_500_000}
        self.assertEqual(large, {("host0", "eth1", "tx_bytes"), ("host1", "eth0", "rx_bytes")})
        rest = sum(num_bytes for nics in counters.values() for ways in nics.values() for num_bytes in ways.values())
        self.assertLess(rest, 2 * 5_500_000 + 1_000_000)  # acknowledgements


class End(Netcluster):
    # Prints the cluster and one of its namespaces, leaves an orphan in a session of its own, and keeps running.
    STAY = """
subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
print(json.dumps([os.environ["NETCLUSTER_NAME"], os.readlink("/proc/self/ns/net")]), flush=True)
time.sleep(1000)
"""

    def start(self):
        """(the run, the name of its cluster, the network namespaces of its hosts)"""
        run = subprocess.Popen(command("--hosts", 2, program=self.STAY), env=self.environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        reports = [json.loads(run.stdout.readline()) for _ in range(2)]
        return run, reports[0][0], {namespace for _, namespace in reports}

    def processes_in(self, namespaces):
        found = []
        for link in pathlib.Path("/proc").glob("[0-9]*/ns/net"):
            try:
                found += [link] if os.readlink(link) in namespaces else []
            except OSError:  # the process has ended
                pass
        return found

    def test_an_interrupt_removes_everything(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                run, name, namespaces = self.start()
                self.assertTrue(self.processes_in(namespaces))
                self.assertTrue((CLUSTERS / name).exists())
                run.send_signal(number)
                self.assertEqual(run.wait(timeout=10), 128 + number)
                self.assertEqual(self.processes_in(namespaces), [])
                self.assertFalse((CLUSTERS / name).exists())

    def test_a_kill_ends_the_ranks_and_the_next_run_removes_the_rest(self):
        run, killed, namespaces = self.start()
        _, alive, _ = self.start()
        run.kill()
        deadline = time.monotonic() + 10
        while self.processes_in(namespaces):
            self.assertLess(time.monotonic(), deadline, "ranks outlive netcluster")
            time.sleep(0.01)
        self.run_cluster("--hosts", 1, words=["true"])
        self.assertFalse((CLUSTERS / killed).exists())
        self.assertTrue((CLUSTERS / alive).exists())

    def test_a_cluster_that_ends_during_the_removal_of_stale_ones_is_no_error(self):
        with tempfile.TemporaryDirectory() as name:
            clusters = pathlib.Path(name)
            stale, gone = clusters / "stale", clusters / "gone"
            stale.mkdir()
            with unittest.mock.patch.object(folder, "ALL") as all_clusters:
                all_clusters.iterdir.return_value = [gone, stale]
                folder.remove_stale()
            self.assertFalse(stale.exists())

    def test_the_status_is_that_of_the_first_failure(self):
        program = "time.sleep(0.5 if rank == 0 else 0); sys.exit(5 - rank)"
        self.run_cluster("--hosts", 2, program=program, status=4)
        self.run_cluster("--hosts", 1, program="os.kill(os.getpid(), 9)", status=128 + 9)
        self.run_cluster("--hosts", 1, words=["/does/not/exist"], status=127)

    def test_after_a_failure_the_others_get_the_grace_time(self):
        program = "time.sleep({} if rank == 0 else 0); print(rank); sys.exit(3 * rank)"
        self.assertEqual(self.run_cluster("--hosts", 2, program=program.format(0.5), status=3), "1\n0\n")
        begin = time.monotonic()
        self.assertEqual(self.run_cluster("--hosts", 2, "--grace", 0.2, program=program.format(1000), status=3), "1\n")
        self.assertLess(time.monotonic() - begin, 10)

    def test_a_rank_that_ignores_the_request_to_end_is_killed(self):
        program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); barrier('deaf'); rank or sys.exit(3); time.sleep(1000)"
        self.run_cluster("--hosts", 2, "--grace", 0, program=program, status=3)


@unittest.skipUnless(shutil.which("mpirun"), "mpirun is not installed")
class Mpi(Netcluster):
    def test_mpirun_reaches_every_host(self):
        words = ["mpirun", "sh", "-c", "echo $(hostname) $(readlink /proc/self/ns/net) $NETCLUSTER_HOST"]
        lines = self.run_cluster("--hosts", 2, "--ranks-per-host", 2, "--mpi", words=words).splitlines()
        self.assertEqual(sorted((host, number) for host, _, number in map(str.split, lines)),
                         [("host0", "0")] * 2 + [("host1", "1")] * 2)
        self.assertEqual(len({line.split()[1] for line in lines}), 2)

    def test_files_of_mpirun_are_removed_with_the_cluster(self):
        words = ["mpirun", "sh", "-c", "echo $PMIX_SERVER_TMPDIR"]
        for folder in self.run_cluster("--hosts", 2, "--mpi", words=words).splitlines():
            self.assertTrue(pathlib.Path(folder).is_relative_to(CLUSTERS), folder)


def setUpModule():
    probe = subprocess.run(command("--hosts", 1, words=["true"]), stderr=subprocess.PIPE, text=True)
    if probe.returncode == NOT_PERMITTED:
        raise unittest.SkipTest(probe.stderr.strip())


if __name__ == "__main__":
    result = unittest.main(verbosity=2, exit=False).result
    sys.exit(1 if not result.wasSuccessful() else SKIPPED if result.skipped else 0)
