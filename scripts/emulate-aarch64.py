"""Runs a static program for 64-bit Arm Linux: emulate-aarch64.py PROGRAM [ARGUMENT…]. See scripts/aarch64."""

import functools
import struct
import sys

from qiling import Qiling
from qiling.arch.arm64 import QlArchARM64
from qiling.const import QL_VERBOSE
from unicorn import UC_ARCH_ARM64, UC_MODE_ARM, Uc, UcError
from unicorn.arm64_const import UC_CPU_ARM64_MAX

# Entry of the auxiliary vector that says which instructions there are, and its bits for floating point, NEON, atomics and the
# dot product.
AT_HWCAP = 16
HWCAP = 1 << 0 | 1 << 1 | 1 << 8 | 1 << 20


def processor(_):
    """The emulator's default is older than the dot product."""
    uc = Uc(UC_ARCH_ARM64, UC_MODE_ARM)
    uc.ctl_set_cpu_model(UC_CPU_ARM64_MAX)
    return uc


def words(ql, at):
    """The stack, word by word."""
    while True:
        try:
            yield at, struct.unpack("<Q", ql.mem.read(at, 8))[0]
        except UcError:
            return
        at += 8


def say_what_there_is(ql):
    """The auxiliary vector comes behind the arguments and the environment, each with a zero at its end."""
    stack = words(ql, ql.arch.regs.arch_sp + 8)
    for _ in range(2):
        while next(stack)[1]:
            pass
    for at, key in stack:
        next(stack)
        if key == AT_HWCAP:
            ql.mem.write(at + 8, struct.pack("<Q", HWCAP))
            return
    sys.exit("emulate-aarch64.py: the program was given no auxiliary vector")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    QlArchARM64.uc = functools.cached_property(processor)
    QlArchARM64.uc.__set_name__(QlArchARM64, "uc")
    ql = Qiling(sys.argv[1:], "/", verbose=QL_VERBOSE.OFF, multithread=True)
    say_what_there_is(ql)
    ql.run()
    sys.exit(ql.os.exit_code)


main()
