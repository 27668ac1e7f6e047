"""Ranks of several machines: right results and constant memory with various machines, nodes and links."""
import json
import pathlib
import re
import subprocess
import tempfile

from cluster import RANK, SHUNT, Hosts, main


class Results(Hosts):
    def test_ranks_detect_their_machine(self):
        printed = self.expect_success("barrier", hosts=3, ranks_per_host=2)
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

    def test_send_the_bytes_that_the_planner_counts(self):
        planned, sent, transmitted = self.count_bytes()
        self.assertEqual(sent, planned)
        self.assertGreater(transmitted, planned)
        # Headers of shunt, and one Ethernet, IP and TCP header per segment of up to 64 KiB (segmentation offload).
        self.assertLess(transmitted, 1.02 * planned)
        print(f"interfaces: {transmitted / planned:.4f} of the planner's bytes")

    def test_use_all_interfaces_equally_if_every_rank_has_all(self):
        planned, _, transmitted = self.count_bytes(options=["--nics-per-host", 2], SHUNT_NET_DEVICES="eth0,eth1")
        self.assertAlmostEqual(transmitted / planned, 0.5, delta=0.1)

    def test_use_only_the_given_interface(self):
        planned, _, transmitted = self.count_bytes(options=["--nics-per-host", 2], SHUNT_NET_DEVICES="eth1")
        self.assertLess(transmitted, 0.02 * planned)

    def test_are_the_same_on_several_rails(self):
        self.expect_success("cases", 0, 20, options=["--nics-per-host", 2], SHUNT_NET_DEVICES="eth0,eth1")

    def test_are_the_same_over_ucx(self):
        if "ucx     yes" not in subprocess.run([SHUNT, "info"], capture_output=True, text=True).stdout:
            self.skipTest("this build has no UCX")
        self.expect_success("cases", 0, 20, SHUNT_NETWORK="ucx")

    def test_two_thousand_shuffles_use_constant_memory(self):
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
        printed = self.expect_success("barrier", SHUNT_TOPOLOGY=self.file(nodes), **options)
        return [int(line.split()[-1]) for line in sorted(printed.splitlines())]

    def expect_error_on_all(self, error, *words, **options):
        printed, status = self.finish(self.start(*words, hosts=2, ranks_per_host=2, **options))
        self.assertEqual(status, 3, printed)
        for rank in range(4):
            self.assertRegex(printed, f"(?m)^rank {rank}: {error}")

    def test_follow_the_file_on_one_machine_and_on_several(self):
        self.assertEqual(self.nodes_seen([[3, 1], [0, 2]], hosts=1, ranks_per_host=4), [1, 0, 1, 0])
        self.assertEqual(self.nodes_seen([[2, 3], [0, 1]], hosts=2, ranks_per_host=2), [1, 1, 0, 0])
        self.assertEqual(self.nodes_seen([[0], [2, 3], [1]], hosts=2, ranks_per_host=2), [0, 2, 1, 1])

    def test_smaller_than_machines_give_the_results_of_the_reference(self):
        self.expect_success("cases", 0, 40, hosts=2, ranks_per_host=3, SHUNT_TOPOLOGY=self.file([[0, 2], [1], [3], [4, 5]]))

    def test_that_span_machines_are_refused(self):
        error = "invalid_argument: SHUNT_TOPOLOGY: node 1 has rank 1 on host0 and rank 2 on host1"
        self.expect_error_on_all(error, "barrier", SHUNT_TOPOLOGY=self.file([[0], [1, 2], [3]]))

    def test_with_a_wrong_number_of_ranks_are_refused(self):
        self.expect_error_on_all("invalid_argument: rank 0 on host0: .*: nodes: 3 ranks, but the world has 4", "barrier", SHUNT_TOPOLOGY=self.file([[0, 1], [2]]))

    def test_that_differ_between_ranks_are_a_mismatch(self):
        for other, error in ((f"export SHUNT_TOPOLOGY={self.file([[0], [1], [2], [3]])}", "mismatch: rank 3 on host1 has other nodes than rank 0 on host0"),
                             ("unset SHUNT_TOPOLOGY", "mismatch: rank 3 on host1 has other nodes than rank 0 on host0"),
                             ("export SHUNT_TOPOLOGY=/nonexistent", "invalid_argument: rank 3 on host1: /nonexistent: can't be opened")):
            with self.subTest(other=other):
                script = f"[ $RANK != 3 ] || {other}; exec {RANK} barrier"
                self.expect_error_on_all(error, "-c", script, program="sh", SHUNT_TOPOLOGY=self.file([[0], [1], [2, 3]]))


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
        # All experts of a token are on one node: shunt sends it there at most once, MPI once per expert (eight times).
        self.assertEqual(mpi["cross_node_bytes"], 8 * shunt["cross_node_bytes"])
        self.assertEqual(wire["cross_node_bytes"], shunt["cross_node_bytes"])


    def test_reports_that_the_busiest_link_reaches_the_lower_bound(self):
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
                if routing == "bimodal":  # a sixth of all bytes if NICs are balanced, a third if only machines are
                    self.assertLess(4 * shunt["heaviest_link_bytes"], shunt["cross_node_bytes"])


class BenchLayer(Hosts):
    def test_compares_whole_layers_over_the_same_links(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            words = ["bench", "layer", "--world", "env", "--tokens", 48, "--hidden", 64, "--ffn", 40, "--experts", 16, "--topk", 4, "--routing", "node-local",
                     "--verify", 48, "--iterations", 2, "--json", path]
            printed, status = self.finish(self.start(*words, program=SHUNT, hosts=4, ranks_per_host=1))
            if "neither oneDNN" in printed:
                self.skipTest(printed.strip())
            self.assertEqual(status, 0, printed)
            report = json.loads(path.read_text())
        self.assertTrue(report["verified"])
        self.assertEqual((report["config"]["world"], report["config"]["nodes"]), ("hosts", 4))
        conventional, expert_major, token_unique = report["systems"]
        # All four experts of a token are on one node: it is sent once, conventionally once per expert.
        self.assertEqual(conventional["cross_node_bytes"], 4 * token_unique["cross_node_bytes"])
        self.assertEqual(expert_major["cross_node_bytes"], token_unique["cross_node_bytes"])


if __name__ == "__main__":
    main()
