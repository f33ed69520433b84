"""Find the program of a command's first word, and make the names of a job without -n."""

import posix

from solo.errors import NotExecutable, NotFound
from solo.kernel import IS_DIRECTORY, IS_REGULAR, TYPE_MASK, decode, encode, read_file

NAME_LENGTH = 200  # bytes, of 255 that a directory's name may have
DEFAULT_PATH = "/bin:/usr/bin"  # of execvp(3) without PATH


def find_command(word: str, search: "bytes | None", following: str = "") -> str:
    """Return the path that execvp(3) would execute for `word`. Raises NotFound, NotExecutable.

    `search` is the bytes of PATH, or None if it is not set; `following` is the next word, for a
    hint.
    """
    folders, candidates = "", [word]
    if "/" not in word:
        folders = decode(search) if search is not None else DEFAULT_PATH
        candidates = [f"{folder or '.'}/{word}" for folder in folders.split(":")]
    refused = None
    for path in candidates:
        try:
            kind = posix.stat(path).st_mode & TYPE_MASK
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = refused or error.strerror
            continue
        if kind == IS_REGULAR and posix.access(path, posix.X_OK, effective_ids=True):
            return path
        refused = refused or ("Is a directory" if kind == IS_DIRECTORY else "Permission denied")
    from solo.text import hints

    hint = hints.explain_lock_file(word, following)
    if refused and word:
        hint = hint or hints.explain_refused_command(word)
        raise NotExecutable(f"{word}: {refused}{hint}")
    hint = hint or hints.explain_missing_command(word, folders, following)
    why = "no such file" if "/" in word else "command not found"
    raise NotFound(f"{word}: {why}{hint}")


def explain_interpreter(path: str) -> str:
    """Return why the kernel will not execute a script, "" if its interpreter is there, or it names
    none. Raises OSError.
    """
    start = read_file(path)
    if start[:2] != b"#!":
        return ""
    line = start[2:].partition(b"\n")[0].partition(b"\0")[0].replace(b"\t", b" ")
    interpreter = line.strip(b" ").partition(b" ")[0]
    is_missing = interpreter and not posix.access(interpreter, posix.F_OK)
    return f"its interpreter {decode(interpreter)} was not found" if is_missing else ""


def make_names(path: str, command: "list[str]") -> "list[str]":
    """Return the names of a job without -n: that of its words as typed, then that of its program's
    real path; one if they are the same. Raises NotExecutable.

    The same line has the first name wherever PATH or a link leads, the same program the second by
    whatever link.
    """
    word = command[0]
    try:
        if "/" in word:
            word = word if word[0] == "/" else f"{posix.readlink('/proc/self/cwd')}/{word}"
            word = "/" + "/".join([part for part in word.split("/") if part not in ("", ".")])
        fd = posix.open(path, posix.O_PATH | posix.O_CLOEXEC)
        real = posix.readlink(f"/proc/self/fd/{fd}")
        posix.close(fd)
    except OSError as error:
        raise NotExecutable(f"{path}: {error.strerror}") from None
    return list(dict.fromkeys([make_name(program, command[1:]) for program in (word, real)]))


def make_name(program: str, arguments: "list[str]", default: str = "command") -> str:
    """Return a name like `backup.sh-1f0c2a9e`. The digits are the CRC-32 of the program and the
    arguments.
    """
    from binascii import crc32

    digest = crc32(b"\0".join(map(encode, [program, *arguments])))
    base = program.rpartition("/")[2].lstrip(".-=")
    return f"{decode(encode(base)[:NAME_LENGTH]) or default}-{digest:08x}"
