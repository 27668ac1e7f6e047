"""`shunt bench layer` with maps, copies of experts and pruning. Usage: layer_placement_test.py PATH_TO_SHUNT [unittest arguments]"""
import json
import os
import pathlib
import tempfile

from device_bench import Bench, LayerOnHost, main
from expert_maps import contiguous, map_of

TRACE = pathlib.Path(__file__).parent.parent / "data/moe64k8-small.trace"  # 6,144 tokens; 3,072 of them have scores in layers 4 and 7
SYSTEMS = ["conventional", "expert_major", "token_unique"]
TOKENS, HIDDEN, ROW_BYTES = 64, 24, 48
PLACED = Bench("layer", ["--world", "inproc", "--ranks", "4", "--tokens", str(TOKENS), "--hidden", str(HIDDEN), "--ffn", "16", "--iterations", "2", "--warmup", "0"])


class Placement(LayerOnHost):
    bench = PLACED

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(content)
        return path

    def write_map(self, name, placement, layers=8):
        return self.write(name, json.dumps(map_of(*[placement] * layers, experts=max(max(rank) for rank in placement) + 1)))

    def map_of_evens(self):
        """64 experts on 4 ranks; experts with equal remainders share a rank."""
        return self.write_map("map.json", [list(range(rank, 64, 4)) for rank in range(4)])

    def map_with_copies(self):
        return self.write_map("copies.json", [sorted({*range(rank, 64, 4), *range(8), rank * 3 + 20}) for rank in range(4)])

    def real(self, *arguments, layer="4"):
        return self.measure("--routing", f"trace:{TRACE}", "--layer", layer, *arguments)

    def names(self, *arguments):
        return [system["name"] for system in self.real(*arguments)[0]["systems"]]

    def test_has_the_requested_systems(self):
        placed, copies = self.map_of_evens(), self.map_with_copies()
        self.assertEqual(self.names(), SYSTEMS)
        self.assertEqual(self.names("--map", placed), SYSTEMS + ["map"])
        self.assertEqual(self.names("--prune", "2"), SYSTEMS + ["pruned"])
        self.assertEqual(self.names("--replica-map", copies, "--prune", "2"), SYSTEMS + ["replicas", "pruned"])
        self.assertEqual(self.names("--map", placed, "--replica-map", copies, "--prune", "2"), SYSTEMS + ["map", "replicas", "pruned"])
        self.assertEqual(self.names("--systems", "conventional", "--map", placed), ["conventional", "map"])

    def test_every_system_agrees_with_plain_loops(self):
        for nodes, dtype in [("1", "f32"), ("2", "bf16"), ("4", "f32")]:
            with self.subTest(nodes=nodes, dtype=dtype):
                report, _ = self.real("--nodes", nodes, "--dtype", dtype, "--map", self.map_of_evens(), "--replica-map", self.map_with_copies(),
                                      "--prune", "2", "--verify", str(TOKENS))
                self.assertTrue(report["verified"])
                for system in report["systems"]:
                    self.assertLess(system["largest_error"], 1e-5 if dtype == "f32" else 8e-3)

    def test_compares_each_system_with_the_first_and_the_previous(self):
        report, text = self.real("--map", self.map_of_evens(), "--prune", "2", "--iterations", "3")
        systems = report["systems"]
        self.assertNotIn("speedup_over_previous", systems[0])
        for before, system in zip(systems, systems[1:]):
            self.assertEqual(system["speedup"]["over"], "conventional")
            self.assertEqual(system["speedup_over_previous"]["over"], before["name"])
            for ratio in (system["speedup"], system["speedup_over_previous"]):
                self.assertTrue(0 < ratio["least"] <= ratio["median"] <= ratio["most"])
        for word in ["than the row before", "C_T", "pruned by score to at most 2 ranks", "scores of all experts known"]:
            self.assertIn(word, text)

    def test_figures_follow_from_the_tokens_and_the_map(self):
        trace = self.write("trace.txt", "0 2 4\n1 3 5\n")
        arguments = ["--ranks", "2", "--nodes", "2", "--experts", "6", "--topk", "3", "--routing", f"trace:{trace}"]
        placed = self.write_map("two.json", [[0, 2, 4], [1, 3, 5]], layers=1)
        report, _ = self.measure(*arguments, "--map", placed)
        of = {system["name"]: system for system in report["systems"]}
        # With experts in order, token 0 2 4 has its last expert on the other rank, token 1 3 5 its last two.
        self.assertEqual([of[name]["c_t"] for name in SYSTEMS + ["map"]], [2, 2, 2, 1])
        self.assertEqual([of[name]["c_t_node"] for name in SYSTEMS + ["map"]], [2, 2, 2, 1])
        self.assertEqual({system["load"] for system in report["systems"]}, {1})
        self.assertEqual(of["conventional"]["wire_bytes"], 2 * TOKENS // 2 * 3 * ROW_BYTES)
        self.assertEqual(of["token_unique"]["wire_bytes"], 2 * TOKENS * ROW_BYTES)
        # A token with only even or only odd experts uses one rank, and half of the tokens are on that rank already.
        self.assertEqual((of["map"]["wire_bytes"], of["map"]["cross_node_bytes"]), (TOKENS * ROW_BYTES, TOKENS * ROW_BYTES))

    def test_copies_reduce_the_ranks_per_token(self):
        trace = self.write("trace.txt", "0 1\n2 3\n")
        arguments = ["--ranks", "2", "--experts", "4", "--topk", "2", "--routing", f"trace:{trace}"]
        placed = self.write_map("apart.json", [[0, 2], [1, 3]], layers=1)
        copies = self.write_map("copies.json", [[0, 1, 2], [1, 2, 3]], layers=1)
        report, _ = self.measure(*arguments, "--map", placed, "--replica-map", copies)
        self.assertEqual([(system["name"], system["c_t"]) for system in report["systems"]][2:], [("token_unique", 1), ("map", 2), ("replicas", 1)])

    def test_routing_does_not_depend_on_the_map(self):
        """`bimodal` depends on the map, but systems must differ by their maps only."""
        report, _ = self.measure("--routing", "bimodal", "--map", self.write_map("one.json", [list(range(61)), [61], [62], [63]], layers=1))
        loads = [system["load"] for system in report["systems"]]
        self.assertLess(max(loads[:3]), 2)
        self.assertGreater(loads[3], 3.5)

    def test_pruning_replaces_by_scores_if_all_tokens_have_them(self):
        for layer in ["4", "7"]:
            report, _ = self.real("--map", self.map_of_evens(), "--prune", "2", layer=layer)
            before, pruned = report["systems"][-2:]
            figures = pruned["pruning"]
            self.assertNotIn("pruning", before)
            self.assertEqual((figures["limit"], figures["level"], figures["by"], figures["scores"]), (2, "ranks", "score", "all experts"))
            self.assertEqual((figures["c_t_before"], figures["c_t_after"]), (before["c_t"], pruned["c_t"]))
            self.assertGreater(before["c_t"], 2)
            self.assertLessEqual(pruned["c_t"], 2)
            self.assertTrue(0.7 < figures["mass_kept"] < 1)
            self.assertTrue(0.5 < figures["share_changed"] <= 1)
            self.assertEqual((figures["num_dropped"], pruned["rows"]), (0, before["rows"]))
            self.assertLess(pruned["wire_bytes"], before["wire_bytes"])
            self.assertEqual(report["pruning"], figures)

    def test_pruning_limits_ranks_of_the_chosen_copies(self):
        report, _ = self.real("--replica-map", self.map_with_copies(), "--prune", "2", "--tokens", "512", "--verify", "1")
        before, pruned = report["systems"][-2:]
        self.assertGreater(before["c_t"], 2)
        self.assertLessEqual(pruned["c_t"], 2)
        self.assertLessEqual(pruned["wire_bytes"], 2 * 4 * 512 * ROW_BYTES)
        # A few tokens lose an expert because the copies are on different ranks.
        self.assertLess(pruned["pruning"]["num_dropped"], 4 * 512 * 8 // 100)

    def test_pruning_drops_if_some_token_has_no_scores(self):
        with_scores = self.real("--prune", "2", "--first-token", str(3072 - 4 * TOKENS))[0]["pruning"]
        self.assertEqual((with_scores["scores"], with_scores["num_dropped"]), ("all experts", 0))
        for arguments in [["--first-token", str(3073 - 4 * TOKENS)], ["--layer", "0"]]:
            report, text = self.real("--prune", "2", *arguments)
            figures = report["pruning"]
            self.assertEqual(figures["scores"], "own experts")
            self.assertGreater(figures["num_dropped"], 0)
            self.assertEqual(report["systems"][-2]["rows"] - report["systems"][-1]["rows"], figures["num_dropped"])
            self.assertLess(figures["mass_kept"], with_scores["mass_kept"])
            self.assertIn("only weights of a token's own experts known", text)

    def test_pruning_by_similarity_and_by_node(self):
        by_score, by_similarity = (self.real("--prune", "2", "--prune-by", by, "--dtype", "f32")[0]["pruning"] for by in ["score", "similarity"])
        self.assertEqual(by_similarity["by"], "similarity")
        self.assertLess(by_similarity["mass_kept"], by_score["mass_kept"])
        report, text = self.real("--nodes", "2", "--prune", "1", "--prune-level", "nodes")
        self.assertEqual((report["c_t_node"], report["pruning"]["level"]), (1, "nodes"))
        self.assertGreater(report["c_t"], 1)
        self.assertIn("at most 1 nodes per token", text)
        # A limit above the number of ranks changes nothing.
        report, _ = self.real("--prune", "4")
        self.assertEqual((report["pruning"]["mass_kept"], report["pruning"]["share_changed"]), (1, 0))
        self.assertEqual(report["systems"][-1]["wire_bytes"], report["systems"][-2]["wire_bytes"])

    def test_ranks_use_runs_from_the_first_token_on(self):
        trace = self.write("trace.txt", "0 1\n" * TOKENS + "0 2\n" * TOKENS + "0 1\n" * TOKENS)
        arguments = ["--ranks", "2", "--experts", "4", "--topk", "2", "--routing", f"trace:{trace}", "--systems", "token_unique"]
        self.assertEqual([self.measure(*arguments, "--first-token", str(first))[0]["c_t"] for first in [0, TOKENS // 2, 2 * TOKENS]], [1.5, 1.5, 1])
        self.assertEqual(self.measure(*arguments, "--first-token", "1")[0]["config"]["first_token"], 1)
        self.expect_refused(*arguments, "--first-token", str(3 * TOKENS), words=[f"--first-token {3 * TOKENS}", trace, f"tokens 0 to {3 * TOKENS - 1}"])

    def test_invalid_options_are_refused_by_name(self):
        self.expect_refused("--prune", "0", words=["--prune: expected at least 1"])
        self.expect_refused("--prune", "-2", words=["--prune: expected at least 1"])
        self.expect_refused("--prune-by", "similarity", words=["--prune-by: expected --prune with it"])
        self.expect_refused("--prune-level", "nodes", words=["--prune-level: expected --prune with it"])
        self.expect_refused("--first-token", "3", words=["--first-token: expected --routing trace:FILE with it"])
        self.expect_refused("--routing", f"trace:{TRACE}", "--first-token", "-1", words=["--first-token: expected at least 0"])
        for routing in ["uniform", f"trace:{TRACE}"]:
            self.expect_refused("--routing", routing, "--prune", "2", "--prune-by", "similarity", words=["--prune-by similarity", routing, "no scores of layer 0"])
        self.expect_refused("--replica-map", self.map_of_evens(), words=["--replica-map", "map.json", "no expert of layer 0 has a second copy"])
        self.expect_refused("--replica-map", self.map_with_copies(), "--ranks", "2", words=["--replica-map", "for 4 ranks, but there are 2"])
        self.expect_refused("--device", "cuda", "--replica-map", self.map_with_copies(), words=["--replica-map", "--device cuda"])

    def test_unknown_words_are_refused(self):
        for arguments, word in [(["--prune"], "--prune"), (["--prune", "two"], "--prune"), (["--prune", "2", "--prune-level", "racks"], "--prune-level"),
                                (["--prune", "2", "--prune-by", "luck"], "--prune-by")]:
            done = PLACED.run(*PLACED.small, *arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    main()
