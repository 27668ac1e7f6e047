"""Kernels that wait for other ranks do so in system scope, by their machine code. Usage: system_scope_test.py FOLDERS OBJECT ...

Peers' memory lies on other devices, so the signals between ranks must be released and acquired in system scope. With
device scope every test on one GPU would still pass. What is looked for in each kernel of KERNELS, for each architecture
(LD and ST also as LDG and STG, predicated or not):
- releases, of signals and of records of faults: ST….STRONG.SYS, and before it MEMBAR.….SYS with no other access to global memory between;
- an acquire: LD….STRONG.SYS, and next CCTL.IVALL, which drops what the multiprocessor has cached;
- no load, store or fence of a narrower scope (STRONG.GPU, STRONG.SM, MEMBAR.….GPU). Atomics may have one: they count a
  rank's own blocks and faults. So may one store and one fence of the kernel that counts its blocks.
"""
import collections
import glob
import os
import re
import shutil
import subprocess
import sys
import unittest

Kernel = collections.namedtuple("Kernel", "releases acquires counts_blocks", defaults=(False,))
KERNELS = {
    "barrier_kernelILNS0_11BarrierPartE0": Kernel(3, True),  # whole
    "barrier_kernelILNS0_11BarrierPartE1": Kernel(1, False),  # saying
    "barrier_kernelILNS0_11BarrierPartE2": Kernel(2, True),  # waiting
    "regrouping_kernel": Kernel(3, True),
    "count_exchange_kernel": Kernel(6, True),
    "send_and_arrive_kernel": Kernel(1, False, counts_blocks=True),
}

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)")
ACCESS = re.compile(r"(LD|ST)G?\.|(ATOM|RED)G?\.")
NARROW = re.compile(r"(LD|ST)G?\..*STRONG\.(?!SYS)|MEMBAR\..*(?<!\.SYS)$")


def kernels_in(objects):
    """The opcodes of each of KERNELS, as often as it is there."""
    found = []
    for path in objects:
        text = subprocess.run([CUOBJDUMP, "-sass", path], check=True, capture_output=True, text=True).stdout
        for function in text.split("Function : ")[1:]:
            name = function.split("\n", 1)[0]
            found += [(key, INSTRUCTION.findall(function)) for key in KERNELS if key in name]
    return found


def num_releases(opcodes):
    releases, is_fenced = 0, False
    for opcode in opcodes:
        if re.match(r"STG?\..*STRONG\.SYS", opcode) and is_fenced:
            releases, is_fenced = releases + 1, False
        elif re.match(r"MEMBAR\..*SYS", opcode):
            is_fenced = True
        elif ACCESS.match(opcode):
            is_fenced = False
    return releases


def has_acquire(opcodes):
    return any(re.match(r"LDG?\..*STRONG\.SYS", load) and after == "CCTL.IVALL"
               for load, after in zip(opcodes, opcodes[1:]))


class SystemScope(unittest.TestCase):
    def test_signals_between_ranks_have_it(self):
        found = kernels_in(OBJECTS)
        self.assertEqual({name for name, _ in found}, set(KERNELS), "kernels that the objects hold")
        for name, opcodes in found:
            with self.subTest(kernel=name):
                kernel = KERNELS[name]
                self.assertGreaterEqual(num_releases(opcodes), kernel.releases, "releases in system scope")
                self.assertEqual(has_acquire(opcodes), kernel.acquires, "acquires in system scope")
                narrow = sorted(opcode for opcode in opcodes if NARROW.match(opcode))
                allowed = ["MEMBAR.ALL.GPU", "ST.E.STRONG.GPU"] if kernel.counts_blocks else []
                self.assertEqual(narrow, allowed, "accesses and fences of a narrower scope")


if __name__ == "__main__":
    OBJECTS = sys.argv[2:]
    FOLDERS = [bin for folder in sys.argv[1].split(":")
               for bin in [folder, *glob.glob(folder + "/lib/python3*/site-packages/nvidia/*/bin")]]
    CUOBJDUMP = shutil.which("cuobjdump", path=":".join(FOLDERS))
    if not CUOBJDUMP or not shutil.which("nvdisasm", path=os.path.dirname(CUOBJDUMP)):
        print("skipped: no cuobjdump with its nvdisasm; tools/setup_python installs them from PyPI")
        sys.exit(77)
    os.environ["PATH"] = os.path.dirname(CUOBJDUMP) + ":" + os.environ["PATH"]  # it calls nvdisasm
    unittest.main(argv=sys.argv[:1])
