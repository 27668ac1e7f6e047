"""The installed libshunt.so needs only the C and C++ libraries and those beside it, and a program finds it by pkg-config. Usage: library_test.py PREFIX"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PREFIX = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path()
CONSUMER = pathlib.Path(__file__).with_name("consumer") / "main.cpp"
DEVICE_CONSUMER = pathlib.Path(__file__).parents[2] / "examples" / "first_device_shuffle.cpp"
ALLOWED = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0", "libhwy.so.1"}


def needed(library):
    printed = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"NEEDED.*\[(.+)\]", printed))


class Library(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = next(PREFIX.glob("**/libshunt.so")).parent

    def test_needs_no_other_libraries(self):
        self.assertLessEqual(needed(self.folder / "libshunt.so"), ALLOWED)

    def test_exports_nothing_of_header_only_libraries(self):
        printed = subprocess.run(["nm", "-DC", "--defined-only", self.folder / "libshunt.so"], check=True, capture_output=True, text=True).stdout
        self.assertIn("shunt::Engine::dispatch", printed)
        self.assertEqual([line for line in printed.splitlines() if re.search("fmt::v|nlohmann::", line)], [])

    def test_has_backends_that_export_only_their_entry_point(self):
        for backend in self.folder.glob("libshunt_*.so"):
            printed = subprocess.run(["nm", "-D", "--defined-only", backend], check=True, capture_output=True, text=True).stdout
            shown = {line.split()[2] for line in printed.splitlines() if line.split()[1] in "TD"}
            self.assertEqual(shown, {"shunt_backend"}, backend)

    def test_installs_highway(self):
        self.assertTrue((self.folder / "libhwy.so.1").exists())
        printed = subprocess.run(["ldd", self.folder / "libshunt.so"], check=True, capture_output=True, text=True).stdout
        self.assertIn(f"libhwy.so.1 => {self.folder}", printed)

    def build(self, source, scratch):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.folder / "pkgconfig")}
        words = subprocess.run(["pkg-config", "--cflags", "--libs", "shunt"], check=True, capture_output=True, text=True, env=environment).stdout
        program = pathlib.Path(scratch) / "consumer"
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", source, "-o", program, *words.split()], check=True)
        return program

    def test_is_found_by_pkg_config(self):
        with tempfile.TemporaryDirectory() as scratch:
            program = self.build(CONSUMER, scratch)
            subprocess.run([program], check=True, timeout=60)
            self.assertIn("libshunt.so.0", needed(program))

    def test_loads_the_device_library_from_its_own_folder(self):
        if not (self.folder / "libshunt_cuda.so").exists():
            self.skipTest("this build is without CUDA")
        with tempfile.TemporaryDirectory() as scratch:
            done = subprocess.run([self.build(DEVICE_CONSUMER, scratch)], capture_output=True, text=True, timeout=60)
            self.assertRegex(done.stdout + done.stderr, "rows here: 4, out: 1.00 0.50|can't find a device")


if __name__ == "__main__":
    unittest.main(verbosity=2)
