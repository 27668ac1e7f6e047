"""Rules on files: names, size, characters, and links that must exist."""
import re
import subprocess

import check_includes

MAX_LINES = 700
CODE_SUFFIXES = check_includes.SUFFIXES | {".py", ".cmake"}
VAGUE_NAME = re.compile(r"(^|[_.-])(utils?|helpers?|managers?|common|v2|legacy)([_.-]|$)")
UNTRACKED_WORK = re.compile(r"\b(TO[D]O|FIX[M]E)\b(?!\(#\d+\))")
CODE_BLOCK = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def check_lines(path, text):
    lines = text.splitlines()
    if path.suffix in CODE_SUFFIXES and len(lines) > MAX_LINES:
        yield f"{len(lines)} lines; past {MAX_LINES} it is two files"
    for number, line in enumerate(lines, 1):
        if "\t" in line and path.name != "Makefile":
            yield f"{number}: tab"
        if line != line.rstrip():
            yield f"{number}: trailing whitespace"
        if UNTRACKED_WORK.search(line):
            yield f"{number}: unfinished work names its issue, as in (#12)"


def check_links(path, text):
    for target in LINK.findall(CODE_BLOCK.sub("", text)):
        file = target.partition("#")[0]
        if file and "://" not in file and not file.startswith("mailto:") and not (path.parent / file).exists():
            yield f"link to {target}, which does not exist"


def check(root, path):
    """Yields the problems of one file."""
    relative = path.relative_to(root)
    if any(VAGUE_NAME.search(part) for part in relative.parts):
        yield "the name does not say what the file is about"
    if relative.match("src/*/CMakeLists.txt") and not (path.parent / "README.md").exists():
        yield "this module has no README.md"
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    yield from check_lines(path, text)
    if path.suffix == ".md":
        yield from check_links(path, text)
    if text.startswith("#!/usr/bin/env bash"):
        syntax = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
        if syntax.returncode:
            yield f"bash can't read it: {syntax.stderr.strip()}"
