"""The example in README is the same code that is compiled and run."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).parents[2]


def words(text):
    return re.sub(r"\s+", " ", text)


class Readme(unittest.TestCase):
    def test_example_is_the_compiled_one(self):
        blocks = re.findall(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        self.assertEqual(len(blocks), 1)
        body, end = blocks[0].rstrip().rsplit("\n", 1)
        self.assertEqual(end, "});")
        self.assertIn(words(body), words((ROOT / "examples/first_shuffle.cpp").read_text()))


if __name__ == "__main__":
    unittest.main()
