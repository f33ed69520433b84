"""What `make coverage` puts in front of solo/__init__.py in its copy of the source: every process notes which arcs it ran.

An arc is two lines that ran one after the other, as coverage.py has them: a negative one is the way into the function that
starts there, or out of it. Each is a byte of one file that all processes map, and it is there the moment the arc ran: neither
_exit(2), execve(2) nor SIGKILL loses it, a forked child has the same pages, and no descriptor, variable or signal is taken that
the launcher, the command or a test could see. Nothing is imported that is not built into Python.
"""

LINES = 1024  # more than any module has
SIZE = LINES * 2


def number(line: int) -> int:
    """Lines up to LINES; from there on those that are negative."""
    return line if line >= 0 else LINES - line


def start_tracing(path: str, modules: list):
    """Note the arcs of `modules`, files named .../solo/MODULE.py, in the file `path`, from here to the end of this process."""
    import posix
    import sys

    if "pytest" in sys.modules:
        return  # what a test calls by itself is not what a launcher ran
    try:
        import mmap

        file = posix.open(path, posix.O_RDWR | posix.O_CLOEXEC)
        copy = posix.dup(file)  # the number that mmap will take for its own
        posix.close(copy)
        arcs = mmap.mmap(file, len(modules) * SIZE * SIZE)
        posix.close(file)
        posix.close(copy)
    except (OSError, ValueError):
        return  # a scene without descriptors or memory is not changed by us
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
        last = number(frame.f_lineno) if words[frame.f_lasti + 1] else out  # a generator goes on where it was

        def follow(frame, event, _):
            nonlocal last
            at = frame.f_lasti
            if event == "line" and words[at] != caught:
                arcs[base + last * SIZE + frame.f_lineno] = 1
                last = frame.f_lineno
            elif event == "return" and entered not in words[at:at + 4:2]:  # else it is a yield
                arcs[base + last * SIZE + out] = 1
            return follow

        return follow

    sys.settrace(enter)
