"""The filter's program, run by an interpreter of classic BPF, for both machines."""

import struct

import pytest
from dressage.sandbox import landlock
from dressage.sandbox.seccomp import ABSENT, DENIED, build_filter
from dressage.sandbox.syscalls import MACHINES

PID = 4242
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
THREAD = 0x3D0F00  # the flags glibc makes threads with


def verdict(machine, name_or_number, *arguments, arch=None):
    number = machine.numbers[name_or_number] if isinstance(name_or_number, str) else name_or_number
    padded = [argument & (2**64 - 1) for argument in (*arguments, *[0] * 6)][:6]
    data = struct.pack("<IIQ6Q", number, machine.audit_arch if arch is None else arch, 0, *padded)
    program = build_filter(machine, PID)
    accumulator, at = 0, 0
    for _ in range(len(program) + 1):
        instruction = program[at]
        code, value = instruction.code, instruction.value
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x15:
            at += instruction.true if accumulator == value else instruction.false
        elif code == 0x25:
            at += instruction.true if accumulator > value else instruction.false
        elif code == 0x06:
            return value
        else:
            raise AssertionError(f"unknown opcode {code:#x}")
    raise AssertionError("the program does not end")


@pytest.fixture(params=sorted(MACHINES))
def machine(request):
    return MACHINES[request.param]


def test_every_denied_call_is_denied(machine):
    for name in DENIED:
        if name in machine.numbers:
            assert verdict(machine, name) == EPERM, name
    for name in ABSENT:
        assert verdict(machine, name) == ENOSYS, name


def test_every_listed_number_is_named_once(machine):
    numbers = list(machine.numbers.values())
    assert len(numbers) == len(set(numbers))
    handled = {*DENIED, *ABSENT, "clone", "kill", "tgkill", "prlimit64", "prctl", "fcntl"}
    assert set(machine.numbers) <= handled


def test_threads_but_no_processes(machine):
    assert verdict(machine, "clone", THREAD) == ALLOW
    for flags in (17, 0, 0x4111, THREAD & ~0x10000, THREAD | 0x10000000, THREAD | 0x20000, 0x10000):
        assert verdict(machine, "clone", flags) == EPERM, hex(flags)


def test_signals_to_itself_only(machine):
    assert verdict(machine, "kill", PID, 6) == ALLOW
    assert verdict(machine, "tgkill", PID, PID + 1, 6) == ALLOW
    for other in (0, -1, 1, PID - 1, -PID):
        assert verdict(machine, "kill", other, 9) == EPERM
        assert verdict(machine, "tgkill", other, PID, 9) == EPERM


def test_limits_may_be_read_not_set(machine):
    assert verdict(machine, "prlimit64", 0, 7, 0, 0x7FFF00000000) == ALLOW
    assert verdict(machine, "prlimit64", PID, 7, 0, 0x7FFF00000000) == ALLOW
    assert verdict(machine, "prlimit64", 0, 7, 0x7FFF00000000, 0) == EPERM
    assert verdict(machine, "prlimit64", 0, 7, 0x1000, 0) == EPERM
    assert verdict(machine, "prlimit64", 1, 7, 0, 0x7FFF00000000) == EPERM


def test_prctl_and_fcntl(machine):
    assert verdict(machine, "prctl", 15) == ALLOW
    assert verdict(machine, "prctl", 1, 0) == EPERM
    assert [verdict(machine, "fcntl", 3, command) for command in (1, 3, 4, 8, 10, 15)] == [ALLOW] * 3 + [EPERM] * 3


def test_unknown_calls_and_other_architectures(machine):
    assert verdict(machine, machine.last_known + 1) == ENOSYS
    assert verdict(machine, 0x40000000 + 39) == ENOSYS
    assert verdict(machine, 39 if machine.name == "x86_64" else 172, arch=0x40000003) == KILL


def test_ordinary_calls_pass():
    for name, numbers in {
        "x86_64": (0, 1, 9, 10, 202, 228, 257, 318),
        "aarch64": (63, 64, 222, 226, 98, 113, 56, 278),
    }.items():
        assert {verdict(MACHINES[name], number) for number in numbers} == {ALLOW}


def test_landlock_asks_for_what_each_abi_has():
    files = [landlock.handled_rights(version)[0] for version in range(1, 8)]
    assert [bin(mask).count("1") for mask in files] == [13, 14, 15, 15, 16, 16, 16]
    assert [landlock.handled_rights(version)[1:] for version in (3, 4, 6)] == [(0, 0), (3, 0), (3, 3)]
