"""Breaks a small tree in each way that lint forbids, and expects the right message."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Lint(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        shutil.copytree(ROOT / "tools", self.tree / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / ".clang-format", self.tree)
        for folder in ("bench", "examples", "include", "src", "tests"):
            (self.tree / folder).mkdir()
        self.write("include/shunt/plan.hpp", '#include "shunt/ids.hpp"\n')
        self.write("src/plan/CMakeLists.txt", "")
        self.write("src/plan/README.md", "Planning; see [the rules](../../tools/lint).\n")
        self.write("src/plan/plan.cpp", '#include "shunt/plan.hpp"\n\n#include <fmt/format.h>\n\n#include "core/fail.hpp"\n')
        self.write("examples/shuffle.cpp", "#include <shunt/plan.hpp>\n")

    def write(self, path, text):
        file = self.tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def lint(self):
        run = subprocess.run([self.tree / "tools" / "lint"], capture_output=True, text=True)
        return run.returncode, run.stdout + run.stderr

    def test_accepts_a_clean_tree(self):
        self.assertEqual(self.lint(), (0, ""))

    def test_rejects_each_broken_tree(self):
        breaks = {
            # (file, its text): message of lint
            ("src/plan/up.cpp", '#include "engine/engine.hpp"\n'): "plan may not include engine",
            ("src/plan/up.hpp", "#include <shunt/engine.hpp>\n"): "plan may not include engine",
            ("include/shunt/ids.hpp", '#include "shunt/plan.hpp"\n'): "core may not include plan",
            ("include/shunt/new.hpp", ""): "lists this public header",
            ("src/plan/beside.cpp", '#include "plan.hpp"\n'): 'written "module/file"',
            ("src/plan/back.cpp", '#include "../core/fail.hpp"\n'): "not at ../",
            ("src/magic/CMakeLists.txt", ""): "this module has no README.md",
            ("src/magic/magic.cpp", ""): "its module is not in the table",
            ("examples/inside.cpp", '#include "core/fail.hpp"\n'): "public headers only",
            ("src/plan/long.cpp", "\n" * 701): "701 lines",
            ("src/plan/plan_utils.cpp", ""): "name does not say",
            ("src/plan/plan_v2.cpp", ""): "name does not say",
            ("tests/legacy/CMakeLists.txt", ""): "name does not say",
            ("src/plan/tab.cpp", "// a\tb\n"): "1: tab",
            ("docs/trailing.md", "word \n"): "1: trailing whitespace",
            ("src/plan/later.cpp", "// TO" "DO: later\n"): "names its issue",
            ("docs/link.md", "[gone](gone.md#part)\n"): "link to gone.md#part",
            ("tools/broken", "#!/usr/bin/env bash\nif\n"): "bash can't read it",
            ("src/plan/format.cpp", "int  x;\n"): "clang-formatted",
            ("src/plan/cuda/format.cu", "int  x;\n"): "clang-formatted",
            ("src/plan/cuda/up.cuh", '#include "engine/cuda/tag.hpp"\n'): "plan may not include engine",
        }
        for (path, text), message in breaks.items():
            with self.subTest(path):
                self.write(path, text)
                status, output = self.lint()
                (self.tree / path).unlink()
                self.assertEqual(status, 1)
                self.assertIn(path, output)
                self.assertIn(message, output)

    def test_accepts_code_that_only_looks_forbidden(self):
        self.write("src/plan/tracked.cpp", "// TO" "DO(#12): later\n")
        self.write("docs/code.md", "`[](World&)`\n```cpp\n[](World&) {}\n```\n[web](https://example.org/x)\n")
        self.write("docs/uncommon.md", "")
        self.assertEqual(self.lint(), (0, ""))


if __name__ == "__main__":
    unittest.main()
