"""tools/trace_from_npz and the C++ reader agree. Usage: trace_from_npz_test.py PRINT_TRACE [unittest arguments]"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
    import xxhash  # noqa: F401, the tool needs it
except ImportError as error:
    print(f"SKIPPED: {sys.executable} has no module {error.name}")
    sys.exit(77)

PRINT_TRACE = sys.argv.pop(1)
TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "trace_from_npz"


def random_experts(random, layers, tokens, topk, experts, dtype):
    return random.random((layers, tokens, experts)).argsort(axis=2)[:, :, :topk].astype(dtype)


class TraceFromNpz(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.random = np.random.default_rng(1)

    def save(self, name, **arrays):
        np.savez(self.folder / name, **arrays)
        return self.folder / name

    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60)

    def read(self, *arguments):
        """Runs the tool and returns the file's contents as read by the C++ reader."""
        out = self.folder / "out.trace"
        done = self.run_tool(*arguments, out)
        self.assertEqual(done.returncode, 0, done.stderr)
        printed = subprocess.run([PRINT_TRACE, out], capture_output=True, text=True, timeout=60)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        return json.loads(printed.stdout)

    def check_layer(self, layer, experts, weights=None, scores=None):
        self.assertEqual(layer["experts"], experts.reshape(-1).tolist())
        self.assertEqual(layer["weights"], [] if weights is None else weights.astype(np.float32).reshape(-1).tolist())
        self.assertEqual(layer["scores"], [] if scores is None else scores.astype(np.float32).reshape(-1).tolist())

    def refuse(self, expected, *arguments):
        out = self.folder / "refused.trace"
        before = sorted(os.listdir(self.folder))
        done = self.run_tool(*arguments, out)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(expected, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_holds_the_arrays(self):
        experts = random_experts(self.random, 3, 9000, 4, 20, np.uint8)
        weights = self.random.random(experts.shape).astype(np.float16)
        scores = self.random.random((2, 3000, 20)).astype(np.float16)
        trace = self.read(self.save("in.npz", experts=experts, weights=weights, domain=np.zeros(3)),
                          self.save("scores.npz", scores=scores, layers=np.array([2, 0])))
        self.assertEqual((trace["experts"], trace["topk"], len(trace["layers"])), (20, 4, 3))
        for layer, of_layer in enumerate([scores[1], None, scores[0]]):
            self.check_layer(trace["layers"][layer], experts[layer], weights[layer], of_layer)

    def test_codes_experts_of_every_width_and_drops(self):
        for num_experts in [5, 255, 256, 257]:
            for has_drops in [False, True]:
                with self.subTest(num_experts=num_experts, has_drops=has_drops):
                    experts = random_experts(self.random, 2, 1000, 5, num_experts, np.int32)
                    if has_drops:
                        experts[self.random.random(experts.shape) < 0.2] = -1
                    experts[0, 0] = [num_experts - 1, -1 if has_drops else 0, 1, 2, 3]
                    weights = np.where(experts < 0, np.nan, 0.5)
                    trace = self.read(self.save("in.npz", experts=experts, weights=weights))
                    for layer in range(2):
                        self.check_layer(trace["layers"][layer], experts[layer], np.where(experts < 0, 0, 0.5)[layer])

    def test_cuts_tokens_layers_and_scores(self):
        experts = random_experts(self.random, 4, 100, 2, 8, np.int64)
        scores = self.random.random((2, 50, 8)).astype(np.float16)
        files = [self.save("in.npz", experts=experts), self.save("s.npz", scores=scores, layers=np.array([1, 3]))]
        trace = self.read(*files, "--tokens", "20:70", "--layers", "3,0", "--scored-tokens", "25")
        self.assertEqual(len(trace["layers"]), 2)
        self.check_layer(trace["layers"][0], experts[3, 20:70], None, scores[1, 20:45])
        self.check_layer(trace["layers"][1], experts[0, 20:70])
        trace = self.read(files[0], "--tokens", "30")
        self.check_layer(trace["layers"][2], experts[2, :30])

    def test_the_number_of_experts_can_be_given(self):
        experts = np.array([[[0, 1]]])
        self.assertEqual(self.read(self.save("in.npz", experts=experts))["experts"], 2)
        self.assertEqual(self.read(self.save("in.npz", experts=experts), "--experts", "64")["experts"], 64)

    def test_large_values_become_the_largest_f16(self):
        weights = np.array([[[1e6, -1e6]]])
        trace = self.read(self.save("in.npz", experts=np.array([[[0, 1]]]), weights=weights))
        self.assertEqual(trace["layers"][0]["weights"], [65504, -65504])

    def test_errors_are_clear_and_leave_no_file(self):
        good = np.array([[[0, 1], [2, 1]]])
        good_file = self.save("good.npz", experts=good)
        scores = np.zeros((1, 2, 3))
        weights = np.zeros(good.shape)

        def arrays(**named):
            return self.save("bad.npz", **named)

        np.save(self.folder / "one.npy", good)
        (self.folder / "text").write_text("0 1\n")
        self.refuse("No such file", self.folder / "none.npz")
        self.refuse("can't be read as .npz", self.folder / "text")
        self.refuse("one array, expected an .npz file", self.folder / "one.npy")
        self.refuse("bad.npz: no array 'experts', only weights", arrays(weights=weights))
        self.refuse("'experts' is float64 [1, 2, 2], expected whole numbers", arrays(experts=good * 1.0))
        self.refuse("'experts' is int64 [2, 2], expected whole numbers [layers, tokens, topk]", arrays(experts=good[0]))
        self.refuse("'weights' is float64 [2, 2], expected floating point [1, 2, 2]", arrays(experts=good, weights=weights[0]))
        self.refuse("layer 0: expert -2", arrays(experts=np.array([[[0, -2]]])))
        self.refuse("layer 0: token 1 of those chosen names an expert twice", arrays(experts=np.array([[[0, 1], [3, 3]]])))
        self.refuse("layer 0: a weight is not finite", arrays(experts=good, weights=weights + np.inf))
        self.refuse("70000 experts, expected 1 to 65535", arrays(experts=np.array([[[69999, 1]]])))
        self.refuse("no array 'layers'", good_file, arrays(scores=scores))
        self.refuse("'layers' holds 1, expected each of 0 to 0", good_file, arrays(scores=scores, layers=np.array([1])))
        self.refuse("there are scores of 2 experts", good_file, arrays(scores=scores[:, :, :2], layers=np.array([0])))
        self.refuse("layer 0: a score is not finite", good_file, arrays(scores=scores * np.nan, layers=np.array([0])))
        self.refuse("--experts 2: the arrays are of at least 3 experts", good_file, "--experts", "2")
        self.refuse("--tokens 3: expected some of the 2 tokens", good_file, "--tokens", "3")
        self.refuse("--tokens many", good_file, "--tokens", "many")
        self.refuse("--layers 0,1: expected each of 0 to 0", good_file, "--layers", "0,1")
        self.refuse("--scored-tokens: expected SCORES.npz", good_file, "--scored-tokens", "1")

    def test_an_unwritable_output_is_named(self):
        done = self.run_tool(self.save("in.npz", experts=np.array([[[0, 1]]])), self.folder / "none" / "out.trace")
        self.assertEqual(done.returncode, 1)
        self.assertIn("can't write", done.stderr)

    def test_a_missing_output_name_does_not_overwrite_an_input(self):
        arrays = self.save("in.npz", experts=np.array([[[0, 1]]]))
        content = arrays.read_bytes()
        done = self.run_tool(arrays, arrays)
        self.assertEqual(done.returncode, 1)
        self.assertIn("would replace arrays", done.stderr)
        self.assertEqual(arrays.read_bytes(), content)

    def test_help_shows_examples(self):
        text = self.run_tool("--help").stdout
        for word in ["IN.npz", "SCORES.npz", "--tokens", "--layers", "--experts", "--scored-tokens", "Examples:"]:
            self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
