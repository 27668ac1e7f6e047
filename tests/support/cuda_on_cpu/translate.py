#!/usr/bin/env python3
"""Turns CUDA C++ into C++: what the macros and functions of device_code.hpp can't say.

    translate.py SOURCE RESULT

A kernel's launch becomes an operator (launch.hpp), an array of dynamic shared memory a pointer, and all blocks run on
multiprocessor 0. Nothing else changes, and no line moves.
"""
import pathlib
import re
import sys

DYNAMIC_SHARED = re.compile(r"extern\s+__shared__\s+(?:__align__\(\w+\)\s+|alignas\(\w+\)\s+)?([\w:]+(?:\s*<[^;\[]*>)?)\s+(\w+)\[\];")
MULTIPROCESSOR = re.compile(r'asm volatile\("mov\.u32 %0, %%smid;" : "=r"\((.*?)\)\);')
LAUNCH = re.compile(r"<<<(.*?)>>>\s*\(", re.DOTALL)


def translate(text):
    text = DYNAMIC_SHARED.sub(r"auto* const \2 = static_cast<\1*>(::cuda_on_cpu::dynamic_shared_memory());", text)
    text = MULTIPROCESSOR.sub(r"\1 = 0;", text)
    return LAUNCH.sub(r" ->* ::cuda_on_cpu::Configuration(\1)(", text)


def main():
    source, result = map(pathlib.Path, sys.argv[1:])
    result.parent.mkdir(parents=True, exist_ok=True)
    # Errors and debuggers point to the source.
    result.write_text(f'#line 1 "{source}"\n' + translate(source.read_text()))


if __name__ == "__main__":
    main()
