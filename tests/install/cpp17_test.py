"""Including a header with an older C++ gives one clear error."""
import os
import pathlib
import subprocess
import unittest

INCLUDE = pathlib.Path(__file__).parent.parent.parent / "include"


class OlderLanguages(unittest.TestCase):
    def test_end_at_one_error_that_names_the_requirement(self):
        for header in sorted(INCLUDE.glob("shunt/*.hpp")):
            with self.subTest(header=header.name):
                done = subprocess.run([os.environ["CXX"], "-std=c++17", "-fsyntax-only", "-I", INCLUDE, "-x", "c++", "-"],
                                      input=f"#include <shunt/{header.name}>\n", capture_output=True, text=True)
                errors = [line for line in done.stderr.splitlines() if "error: " in line]
                self.assertEqual(len(errors), 1, done.stderr)
                self.assertIn("shunt needs C++20", errors[0])


if __name__ == "__main__":
    unittest.main()
