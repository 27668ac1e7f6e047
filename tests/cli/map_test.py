"""Benchmarks with experts placed by a map. Usage: map_test.py PATH_TO_SHUNT [unittest arguments]"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import expert_maps

SHUNT = sys.argv.pop(1)
EXPERTS, TOKENS, HIDDEN, TOPK = 10, 40, 48, 3
SMALL = ["--tokens", str(TOKENS), "--hidden", str(HIDDEN), "--experts", str(EXPERTS), "--topk", str(TOPK), "--iterations", "1", "--warmup", "0"]
FIGURES = ["name", "cross_node_bytes", "wire_bytes", "moved_bytes"]


def map_of(*layers, **options):
    return expert_maps.map_of(*layers, experts=EXPERTS, **options)


def contiguous(ranks):
    return expert_maps.contiguous(EXPERTS, ranks)


def shuffled(seed, ranks, replicas=0):
    return expert_maps.shuffled(seed, EXPERTS, ranks, replicas)


class WithMap(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, content, name="map.json"):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def run_shuffle(self, *arguments):
        return subprocess.run([SHUNT, "bench", "shuffle", *SMALL, *arguments], capture_output=True, text=True, timeout=120)

    def shuffle(self, *arguments):
        """Runs a benchmark that must succeed; returns its report."""
        path = os.path.join(self.folder, "result.json")
        done = self.run_shuffle(*arguments, "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path) as file:
            report = json.load(file)
        self.assertTrue(report["verified"])
        return report

    def figures(self, *arguments):
        return [[system[key] for key in FIGURES] for system in self.shuffle(*arguments)["systems"]]


class Map(WithMap):
    def test_of_experts_in_order_changes_no_figure(self):
        path = self.write(map_of(contiguous(4)))
        for arguments in [[], ["--nodes", "2", "--layout", "token_unique"], ["--nodes", "2", "--routing", "node-local"],
                          ["--routing", "bimodal"], ["--layout", "padded"]]:
            with self.subTest(arguments=arguments):
                arguments += ["--world", "inproc", "--ranks", "4"]
                self.assertEqual(self.figures(*arguments), self.figures(*arguments, "--map", path))

    def test_of_any_kind_gives_verified_results(self):
        for seed in range(3):
            for replicas in [0, 7]:
                path = self.write(map_of(shuffled(seed, 4, replicas)))
                for layout in ["expert_major", "token_unique", "padded"]:
                    with self.subTest(seed=seed, replicas=replicas, layout=layout):
                        report = self.shuffle("--world", "inproc", "--ranks", "4", "--nodes", "2", "--layout", layout, "--map", path)
                        self.assertEqual([system["name"] for system in report["systems"]], ["shunt", "unfused"])
                        self.assertEqual(report["config"]["map"], path)

    def test_is_verified_with_every_routing_and_quantised_rows(self):
        path = self.write(map_of([[0, 1, 2, 3, 4, 5], [4, 5, 6, 7], [0, 1, 8, 9], [2, 5, 6, 7, 8, 9]], nodes=2))
        for routing in ["zipf:1.2", "node-local", "bimodal", "hot-ranks:3", "clustered:3"]:
            with self.subTest(routing=routing):
                self.shuffle("--world", "inproc", "--ranks", "4", "--nodes", "2", "--routing", routing, "--map", path, "--dtype", "fp8_e4m3")

    def test_works_with_ranks_as_processes(self):
        path = self.write(map_of(shuffled(5, 3, 4)))
        systems = ["shunt", "unfused"]
        if shutil.which("mpirun") and "mpi     yes" in subprocess.run([SHUNT, "info"], capture_output=True, text=True).stdout:
            systems.insert(1, "mpi_alltoallv")
        report = self.shuffle("--ranks", "3", "--systems", ",".join(systems), "--map", path)
        self.assertEqual([system["name"] for system in report["systems"]], systems)

    def test_is_the_map_of_the_layer(self):
        layers = [contiguous(4), shuffled(1, 4), shuffled(2, 4, 6)]
        path = self.write(map_of(*layers))
        arguments = ["--world", "inproc", "--ranks", "4", "--systems", "shunt", "--layout", "token_unique"]
        figures = [self.figures(*arguments, "--map", path, "--layer", str(layer)) for layer in range(3)]
        alone = [self.figures(*arguments, "--map", self.write(map_of(layer), "alone.json")) for layer in layers]
        self.assertEqual(figures, alone)
        self.assertEqual(figures[0], self.figures(*arguments, "--map", path))
        self.assertEqual(len({str(each) for each in figures}), 3)

    def test_that_groups_experts_saves_the_expected_bytes(self):
        trace = os.path.join(self.folder, "trace.txt")
        with open(trace, "w") as file:
            file.write("0 2 4\n1 3 5\n")
        arguments = ["--world", "inproc", "--ranks", "2", "--systems", "shunt", "--layout", "token_unique", "--routing", f"trace:{trace}"]
        path = self.write(map_of([[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]))
        row_bytes, tokens = 2 * HIDDEN, 2 * TOKENS
        # A token is read once and written once per rank that it is sent to; half of the tokens are on that rank already.
        [[_, _, wire, moved]] = self.figures(*arguments, "--map", path)
        self.assertEqual((wire, moved), (tokens // 2 * row_bytes, 2 * tokens * row_bytes))
        # Without the map, experts 0, 2 and 4 are on rank 0, and so are 1 and 3 but not 5.
        [[_, _, wire, moved]] = self.figures(*arguments)
        self.assertEqual((wire, moved), (tokens // 2 * row_bytes + tokens // 4 * row_bytes, (2 * tokens + tokens // 2) * row_bytes))

    def test_is_used_for_pruning(self):
        path = self.write(map_of(shuffled(3, 4)))
        for layout in ["expert_major", "token_unique"]:
            report = self.shuffle("--world", "inproc", "--ranks", "4", "--layout", layout, "--map", path, "--prune", "1")
            self.assertEqual((report["pruning"]["scores"], report["pruning"]["c_t_after"], report["c_t"]), ("own experts", 1, 1))
            self.assertGreater(report["pruning"]["c_t_before"], 1.5)
            self.assertGreater(report["pruning"]["num_dropped"], 0)


class WrongMap(WithMap):
    def expect_refused(self, content, expected, *arguments):
        path = self.write(content)
        for world in ["inproc", "shm"]:
            done = self.run_shuffle("--world", world, "--ranks", "4", "--map", path, *arguments)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)  # one line: no ranks were started
            self.assertIn(expected, done.stderr.replace(path, "FILE"))

    def test_for_other_ranks_or_experts_is_refused_with_both_numbers(self):
        self.expect_refused(map_of(contiguous(3)), "--map FILE: for 3 ranks, but there are 4 (--ranks)")
        self.expect_refused(map_of(contiguous(4)), "--map FILE: for 10 experts, but there are 12 (--experts)", "--experts", "12")

    def test_without_the_layer_is_refused(self):
        self.expect_refused(map_of(contiguous(4), contiguous(4)), "--layer 2: FILE has layers 0 to 1", "--layer", "2")
        self.expect_refused(map_of(contiguous(4)), "--layer -1: FILE has layers 0 to 0", "--layer", "-1")
        done = self.run_shuffle("--layer", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--layer: expected --map or --routing trace:FILE with it", done.stderr)

    def test_file_is_refused_with_line_or_key(self):
        for content, expected in [("", "FILE:1: no JSON"), ("{\n}", "FILE: no file of expert maps"),
                                  (json.dumps(map_of(contiguous(4)))[:-20], "FILE:1: no JSON"),
                                  ({**map_of(contiguous(4)), "shunt_map": 2}, "FILE: shunt_map: version 2"),
                                  ({**map_of(contiguous(4)), "hash": "0"}, "FILE: hash: \"0\", but these maps have"),
                                  (map_of([[0], [1], [2], [3]]), "FILE: layers[0].ranks: expert map: expert 4 is on no rank")]:
            with self.subTest(expected=expected):
                self.expect_refused(content, expected)

    def test_path_that_is_no_file_is_refused(self):
        for path, expected in [("/", "no regular file"), ("/nonexistent", "can't be opened")]:
            done = self.run_shuffle("--map", path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(expected, done.stderr)


if __name__ == "__main__":
    unittest.main()
