"""The layers of the design, as rules on #include lines."""
import re

# module → other modules that it may include. Public headers obey the same table.
ALLOWED = {
    "core": set(),
    "plan": {"core"},
    "transport": {"core"},
    "kernels": {"core"},
    "graph": {"core"},
    "placement": {"plan", "core"},
    "engine": {"plan", "transport", "kernels", "core"},
    "layer": {"engine", "plan", "kernels", "core"},
    "runtime": {"graph", "layer", "engine", "plan", "core"},
    "sim": {"plan", "placement", "graph", "core"},
}
BELOW = set(ALLOWED)
ALLOWED["bench"] = BELOW
ALLOWED["capi"] = BELOW
ALLOWED["umbrella"] = BELOW
ALLOWED["cli"] = BELOW | {"bench", "capi", "umbrella"}

PUBLIC_HEADERS = {
    "core": ["copy_choice.hpp", "dtype.hpp", "environment.hpp", "error.hpp", "expert_map.hpp", "expert_map_file.hpp",
             "float_formats.hpp", "ids.hpp", "language.hpp", "log.hpp", "machine.hpp", "routing.hpp", "routing_trace.hpp",
             "shuffle_volume.hpp", "stream.hpp", "tensor.hpp", "topology.hpp"],
    "plan": ["plan.hpp", "pruning.hpp", "traffic.hpp"],
    "transport": ["bootstrap.hpp", "mpi_bootstrap.hpp"],
    "engine": ["engine.hpp", "rows.hpp", "ticket.hpp", "trace_recorder.hpp", "world.hpp"],
    "capi": ["shunt.h"],
    "umbrella": ["shunt.hpp"],
}
MODULE_OF = {header: module for module, headers in PUBLIC_HEADERS.items() for header in headers}

SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(path):
    """(line number, is quoted, path) of every include."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1] == '"', match[2]


def target_module(include):
    """The module of an included header; None for a third-party header or an unlisted one of ours."""
    folder, _, rest = include.partition("/")
    if folder == "shunt":
        return MODULE_OF.get(rest)
    return folder if folder in ALLOWED else None


def check_module(module, path):
    for number, quoted, include in includes(path):
        target = target_module(include)
        if target is None:
            if quoted and not include.startswith(("../", "shunt/")):
                yield f"{number}: \"{include}\": ours are written \"module/file\" or \"shunt/file\", others' <so>"
        elif target != module and target not in ALLOWED[module]:
            yield f"{number}: {module} may not include {target} ({include})"


def check_example(path):
    for number, _, include in includes(path):
        if not include.startswith("shunt/") and target_module(include):
            yield f"{number}: examples include public headers only, not {include}"


def check(root, path):
    """Yields the problems of one file's includes."""
    if path.suffix not in SUFFIXES:
        return
    for number, _, include in includes(path):
        if include.startswith("../"):
            yield f"{number}: includes start at src/ or include/, not at ../"

    match path.relative_to(root).parts:
        case ("src", module, _, *_) if module in ALLOWED:
            yield from check_module(module, path)
        case ("src", _, _, *_):
            yield "its module is not in the table of tools/check_includes.py"
        case ("include", "shunt", *rest) if "/".join(rest) in MODULE_OF:
            yield from check_module(MODULE_OF["/".join(rest)], path)
        case ("include", *_):
            yield "no module of tools/check_includes.py lists this public header"
        case ("examples", *_):
            yield from check_example(path)
