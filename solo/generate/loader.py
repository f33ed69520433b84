"""Import solo from the one file that bundle.py makes. The file stays open: a run meets no version
of solo but its own.

The script of an installation executes this module before any other of solo, so it imports only what
costs nothing.
"""

import marshal
import posix
import sys
from _frozen_importlib import ModuleSpec
from fcntl import F_DUPFD_CLOEXEC, fcntl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType


class Loader:
    """Imports the modules of `index`, {name: (place, size, path of its source)}, from the file open
    as `fd`.

    A place counts from `base`, in bytes.
    """

    def __init__(self, fd: int, base: int, index: "dict[str, tuple[int, int, str]]") -> None:
        self.fd = fd
        self.base = base
        self.index = index

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> "ModuleSpec | None":
        if name not in self.index:
            return None
        source = self.index[name][2]
        spec = ModuleSpec(name, self, origin=source)  # type: ignore[arg-type]
        spec.has_location = True
        if source.endswith("/__init__.py"):
            spec.submodule_search_locations = [source.rpartition("/")[0]]
        return spec

    def create_module(self, spec: "ModuleSpec") -> None:
        """Leave it to Python."""

    def exec_module(self, module: "ModuleType") -> None:
        exec(self.get_code(module.__name__), vars(module))

    def get_code(self, name: str) -> "CodeType":
        place, size, _ = self.index[name]
        code: CodeType = marshal.loads(posix.pread(self.fd, size, self.base + place))
        return code


def start(
    fd: int,
    base: int,
    index: "dict[str, tuple[int, int, str]]",
    hot: "list[tuple[str, str, CodeType]]",
) -> None:
    """Execute the modules `hot`, (name, path of its source, code), which every run needs; import
    the others later.
    """
    if fd <= 2:  # the caller closed a standard descriptor, which the command must not get from us
        low, fd = fd, fcntl(fd, F_DUPFD_CLOEXEC, 3)
        posix.close(low)
    sys.meta_path.insert(0, Loader(fd, base, index))
    for name, source, code in hot:
        module = sys.modules[name] = type(sys)(name)
        module.__file__ = source
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
        else:
            module.__path__ = [source.rpartition("/")[0]]
        exec(code, vars(module))
    sys.modules["solo.kernel"].program = fd  # type: ignore[attr-defined]
