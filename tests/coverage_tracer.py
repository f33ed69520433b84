"""The tracer that `make coverage` adds to solo/__init__.py in its copy of the source: it records the arcs of every process.

An arc is a pair of lines that ran one after the other, in coverage.py's format: a negative line means entry to, or exit from, the
function that starts there. Each arc is one byte of a file that all processes map, set the moment the arc runs. So _exit(2),
execve(2) and SIGKILL lose nothing, and a forked child shares the pages. The tracer uses no descriptor, variable or signal that the
launcher, the command or a test could see. It imports only modules that are built into Python.
"""

LINES = 1024  # more than any module has
SIZE = LINES * 2


def number(line: int) -> int:
    """Return an index for a line: negative lines follow the positive ones."""
    return line if line >= 0 else LINES - line


def start_tracing(path: str, modules: list):
    """Record the arcs of `modules`, files named .../solo/MODULE.py, in the file `path` until this process ends."""
    import posix
    import sys

    if "pytest" in sys.modules:
        return  # a test's own calls are no run of a launcher
    try:
        import mmap

        file = posix.open(path, posix.O_RDWR | posix.O_CLOEXEC)
        copy = posix.dup(file)  # the number of mmap's own copy
        posix.close(copy)
        arcs = mmap.mmap(file, len(modules) * SIZE * SIZE)
        posix.close(file)
        posix.close(copy)
    except (OSError, ValueError):
        return  # never change a test that lacks descriptors or memory
    from opcode import opmap

    entered, caught = opmap["RESUME"], opmap["PUSH_EXC_INFO"]
    bases = {}

    def find_base(name: str) -> int:
        folder, _, module = name.removesuffix(".py").rpartition("/")
        known = folder.rpartition("/")[2] == "solo" and module in modules
        return modules.index(module) * SIZE * SIZE if known else -1

    def enter(frame, event, _):
        code = frame.f_code
        name = code.co_filename
        if name not in bases:
            bases[name] = find_base(name)
        base, words, out = bases[name], code.co_code, number(-code.co_firstlineno)
        if base < 0:
            return None
        last = number(frame.f_lineno) if words[frame.f_lasti + 1] else out  # a generator continues at its last line

        def follow(frame, event, _):
            nonlocal last
            at = frame.f_lasti
            if event == "line" and words[at] != caught:
                arcs[base + last * SIZE + frame.f_lineno] = 1
                last = frame.f_lineno
            elif event == "return" and entered not in words[at : at + 4 : 2]:  # else it is a yield
                arcs[base + last * SIZE + out] = 1
            return follow

        return follow

    sys.settrace(enter)
