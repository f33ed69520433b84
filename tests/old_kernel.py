"""Run a program without pidfds, by a seccomp filter: `python old_kernel.py
kernel|filter|prctl|yield PROGRAM [ARG]...`.

kernel: as on Linux 4.18, all later system calls fail with ENOSYS: pidfd_open(2), clone3(2),
close_range(2) and others. filter: as below an old container engine, those from pidfd_send_signal(2)
to pidfd_open(2) fail with EPERM. prctl, yield: prctl(2), or sched_yield(2), fails with EPERM.
"""

import ctypes
import errno
import os
import struct
import sys

PIDFD_SEND_SIGNAL, PIDFD_OPEN, HIGHEST = (
    424,
    434,
    0xFFFFFFFF,
)  # the same numbers on all architectures
PRCTL, SCHED_YIELD = {"x86_64": (157, 24), "aarch64": (167, 124)}[os.uname().machine]
REFUSED = {  # the first call, the last one, the error
    "kernel": (PIDFD_SEND_SIGNAL, HIGHEST, errno.ENOSYS),
    "filter": (PIDFD_SEND_SIGNAL, PIDFD_OPEN, errno.EPERM),
    "prctl": (PRCTL, PRCTL, errno.EPERM),
    "yield": (SCHED_YIELD, SCHED_YIELD, errno.EPERM),
}
LOAD_NUMBER, IS_LEAST, IS_MORE, RETURN = (
    0x20,
    0x35,
    0x25,
    0x06,
)  # BPF_LD|W|ABS, BPF_JMP|JGE|K, BPF_JMP|JGT|K, BPF_RET|K
REFUSE, ALLOW = 0x00050000, 0x7FFF0000  # SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def refuse_calls(first: int, last: int, error: int):
    """Refuse the system calls from `first` to `last`, here and in all processes below. Raises
    OSError.
    """
    steps = (
        (LOAD_NUMBER, 0, 0, 0),
        (IS_LEAST, 0, 2, first),
        (IS_MORE, 1, 0, last),
        (RETURN, 0, 0, REFUSE | error),
        (RETURN, 0, 0, ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    library = ctypes.CDLL(None, use_errno=True)
    for words in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0),
    ):
        if library.prctl(*words):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse_calls(*REFUSED[sys.argv[1]])
    os.execvp(sys.argv[2], sys.argv[2:])
