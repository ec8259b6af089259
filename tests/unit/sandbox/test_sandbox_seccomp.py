"""The filter's program, run by an interpreter of classic BPF, for both machines."""

import struct

import pytest
from dressage.sandbox import commands, landlock
from dressage.sandbox.seccomp import ABSENT, DENIED, build_filter
from dressage.sandbox.syscalls import MACHINES

PID = 4242
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
ENOTTY, EINVAL, ENOMEM, EOPNOTSUPP = 0x00050019, 0x00050016, 0x0005000C, 0x0005005F
THREAD = 0x3D0F00  # the flags glibc makes threads with
MUSL_THREAD = 0x7D0F00
COMMANDS = {
    "clone",
    "kill",
    "tgkill",
    "prlimit64",
    "prctl",
    "fcntl",
    "ioctl",
    "mmap",
    "madvise",
    "fadvise64",
    "fallocate",
    "close_range",
}


def verdict(machine, name_or_number, *arguments, arch=None, gpu=False):
    number = machine.numbers[name_or_number] if isinstance(name_or_number, str) else name_or_number
    padded = [argument & (2**64 - 1) for argument in (*arguments, *[0] * 6)][:6]
    data = struct.pack("<IIQ6Q", number, machine.audit_arch if arch is None else arch, 0, *padded)
    program = build_filter(machine, PID, gpu=gpu)
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
    assert set(machine.numbers) == {*DENIED, *ABSENT, *COMMANDS} & set(machine.numbers)
    assert set(machine.numbers) >= COMMANDS


def test_threads_but_no_processes(machine):
    assert verdict(machine, "clone", THREAD) == verdict(machine, "clone", MUSL_THREAD) == ALLOW
    own_descriptors, own_folder = THREAD & ~0x400, THREAD & ~0x200
    others = (17, 0, 0x4111, THREAD & ~0x10000, THREAD | 0x10000000, THREAD | 0x20000, 0x10000)
    for flags in (*others, own_descriptors, own_folder):
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


ALLOWED_COMMANDS = {
    # Name: position of the command, the answer to others, what is allowed, and what is refused by name.
    "prctl": (0, EPERM, [15, 16, 38, 0x53564D41], [1, 4, 8, 22, 24, 29, 35, 36, 40, 59, 62, 67, 0x59616D61]),
    "fcntl": (1, EPERM, [0, 1, 2, 3, 4, 1030], [5, 6, 7, 8, 10, 15, 36, 37, 38, 1024, 1026, 1031, 1033, 1036]),
    "ioctl": (
        1,
        ENOTTY,
        [0x5401, 0x5413, 0x541B, 0x5421, 0x5451],
        [0x40086602, 0x401C5820, 0x5452, 0x5412, 0x80086601],
    ),
    "madvise": (2, EINVAL, [0, 4, 8, 14, 16], [5, 9, 12, 13, 20, 21, 24, 100, 101]),
    "fadvise64": (3, EINVAL, [0, 1, 2, 3, 5], [4, 6]),
    "fallocate": (1, EOPNOTSUPP, [0], [1, 2, 3, 0x10, 0x40]),
    "close_range": (2, EINVAL, [0, 4], [2, 6]),
}


@pytest.mark.parametrize("name", ALLOWED_COMMANDS)
def test_calls_with_commands_allow_those_that_are_listed(machine, name):
    position, refusal, allowed, refused = ALLOWED_COMMANDS[name]
    for gpu in (False, True):
        results = {
            command: verdict(machine, name, *[0] * position, command, gpu=gpu)
            for command in (*allowed, *refused, 2**31)
        }
        assert results == {**dict.fromkeys(allowed, ALLOW), **dict.fromkeys((*refused, 2**31), refusal)}


def test_a_gpu_has_requests_of_its_own(machine):
    requests = [0xC020462A, 0xC00846C8, 0x30000001, 0x30000002, 1, 39, *commands.IOCTL.values()]
    assert {verdict(machine, "ioctl", 3, request, gpu=True) for request in requests} == {ALLOW}
    assert {verdict(machine, "ioctl", 3, request) for request in requests[:6]} == {ENOTTY}


def test_memory_that_is_not_counted_cannot_be_mapped(machine):
    private, shared, anonymous, huge, fixed = 0x02, 0x01, 0x20, 0x40000, 0x10
    results = [
        verdict(machine, "mmap", 0, 4096, 3, flags)
        for flags in (
            private,
            shared,
            private | anonymous | fixed,
            shared | anonymous,
            0x03 | anonymous,
            private | huge,
        )
    ]
    assert results == [ALLOW, ALLOW, ALLOW, EPERM, EPERM, ENOMEM]
    assert verdict(machine, "mmap", 0, 4096, 3, shared | anonymous, gpu=True) == ALLOW
    assert verdict(machine, "mmap", 0, 4096, 3, private | huge, gpu=True) == ENOMEM


def test_unknown_calls_and_other_architectures(machine):
    assert verdict(machine, machine.last_known + 1) == ENOSYS
    assert verdict(machine, 0x40000000 + 39) == ENOSYS
    assert verdict(machine, 39 if machine.name == "x86_64" else 172, arch=0x40000003) == KILL


def test_ordinary_calls_pass():
    for name, numbers in {
        "x86_64": (0, 1, 10, 202, 228, 257, 318),
        "aarch64": (63, 64, 226, 98, 113, 56, 278),
    }.items():
        assert {verdict(MACHINES[name], number) for number in numbers} == {ALLOW}


def test_landlock_asks_for_what_each_abi_has():
    files = [landlock.handled_rights(version)[0] for version in range(1, 8)]
    assert [bin(mask).count("1") for mask in files] == [13, 14, 15, 15, 16, 16, 16]
    assert [landlock.handled_rights(version)[1:] for version in (3, 4, 6)] == [(0, 0), (3, 0), (3, 3)]
