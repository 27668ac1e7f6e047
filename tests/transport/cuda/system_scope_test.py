"""Kernels that wait for other ranks do so in system scope, by their machine code. Usage: system_scope_test.py OBJECT ...

Peers' memory lies on other devices, so the signals between ranks must be released and acquired in system scope. With
device scope every test on one GPU would still pass. What is looked for in each kernel of KERNELS, for each architecture
(LD and ST also as LDG and STG, predicated or not):
- a release: ST….STRONG.SYS, and before it MEMBAR.….SYS with no other access to global memory between;
- an acquire: LD….STRONG.SYS, and next CCTL.IVALL, which drops what the multiprocessor has cached;
- no load, store or fence of a narrower scope (STRONG.GPU, STRONG.SM, MEMBAR.….GPU). Atomics may have one: they count a
  rank's own blocks and faults. So may one store and one fence of the kernel that counts its blocks.
"""
import collections
import re
import shutil
import subprocess
import sys
import unittest

Kernel = collections.namedtuple("Kernel", "releases acquires counts_blocks", defaults=(False,))
KERNELS = {
    "meeting_kernelILNS0_11MeetingPartE0": Kernel(True, True),  # whole
    "meeting_kernelILNS0_11MeetingPartE1": Kernel(True, False),  # saying
    "meeting_kernelILNS0_11MeetingPartE2": Kernel(False, True),  # waiting
    "regrouping_kernel": Kernel(True, True),
    "count_exchange_kernel": Kernel(True, True),
    "send_and_meet_kernel": Kernel(True, True, counts_blocks=True),
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


def has_release(opcodes):
    is_fenced = False
    for opcode in opcodes:
        if re.match(r"STG?\..*STRONG\.SYS", opcode) and is_fenced:
            return True
        if re.match(r"MEMBAR\..*SYS", opcode):
            is_fenced = True
        elif ACCESS.match(opcode):
            is_fenced = False
    return False


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
                self.assertEqual(has_release(opcodes), kernel.releases, "releases in system scope")
                self.assertEqual(has_acquire(opcodes), kernel.acquires, "acquires in system scope")
                narrow = sorted(opcode for opcode in opcodes if NARROW.match(opcode))
                allowed = ["MEMBAR.ALL.GPU", "ST.E.STRONG.GPU"] if kernel.counts_blocks else []
                self.assertEqual(narrow, allowed, "accesses and fences of a narrower scope")


if __name__ == "__main__":
    OBJECTS = sys.argv[1:]
    CUOBJDUMP = shutil.which("cuobjdump") or shutil.which("cuobjdump", path="/usr/local/cuda/bin")
    if not CUOBJDUMP or not shutil.which("nvdisasm", path=CUOBJDUMP.rsplit("/", 1)[0]):
        print("SKIPPED: no cuobjdump with its nvdisasm, which are part of the CUDA toolkit")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
