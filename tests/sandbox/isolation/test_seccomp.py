"""The filter's bytes, run on a small machine of our own: every call on both machine types."""

import errno
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.sandbox.isolation.seccomp import AUDIT_ARCH, NEW_NAMESPACES, TIOCSTI, filter_bytes
from farflung.sandbox.isolation.syscall_numbers import ALLOWED, CHANGING, CLONE, CLONE3, IOCTL, SOCKETPAIR

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
REFUSED = ERRNO | errno.EPERM
MACHINES = (0, 1)


def verdict(machine: int, number: int, *arguments: int, arch: int | None = None, read_only: bool = False) -> int:
    """What the kernel would do: classic BPF over struct seccomp_data."""
    words = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number, AUDIT_ARCH[machine] if arch is None else arch, 0, *words)
    code = list(struct.iter_unpack("=HBBI", filter_bytes(machine, read_only=read_only)))
    accumulator, place = 0, 0
    while True:
        operation, if_true, if_false, constant = code[place]
        place += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, constant)
            case 0x15:
                place += if_true if accumulator == constant else if_false
            case 0x45:
                place += if_true if accumulator & constant else if_false
            case 0x06:
                return int(constant)
            case _:
                raise AssertionError(f"unknown operation {operation:#x}")


@pytest.mark.parametrize("machine", MACHINES)
def test_exactly_the_listed_calls_are_allowed(machine: int) -> None:
    listed = {numbers[machine] for numbers in ALLOWED.values()} - {None}
    special = {CLONE[machine], CLONE3[machine], SOCKETPAIR[machine], IOCTL[machine]}
    assert not listed & special
    for number in set(range(600)) - special:
        assert verdict(machine, number) == (ALLOW if number in listed else REFUSED), number


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("flag", [1 << bit for bit in range(32) if NEW_NAMESPACES >> bit & 1])
def test_clone_makes_processes_but_no_namespaces(machine: int, flag: int) -> None:
    assert verdict(machine, CLONE[machine], 17) == ALLOW
    assert verdict(machine, CLONE[machine], 17 | flag) == REFUSED
    assert verdict(machine, CLONE3[machine]) == ERRNO | errno.ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_socket_pairs_are_local_and_terminals_are_not_typed_into(machine: int) -> None:
    assert verdict(machine, SOCKETPAIR[machine], 1) == ALLOW
    assert verdict(machine, SOCKETPAIR[machine], 2) == REFUSED
    assert verdict(machine, IOCTL[machine], 0, TIOCSTI) == REFUSED
    assert verdict(machine, IOCTL[machine], 0, 0x5401) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_a_filter_for_reading_opens_files_for_reading_only(machine: int) -> None:
    listed = {name: numbers[machine] for name, numbers in ALLOWED.items() if numbers[machine] is not None}
    assert set(ALLOWED) > CHANGING
    for name, number in listed.items():
        assert verdict(machine, number or 0, read_only=True) == (REFUSED if name in CHANGING else ALLOW), name
    for flags in (os.O_RDONLY | os.O_CLOEXEC, os.O_RDONLY | os.O_NONBLOCK):
        assert verdict(machine, listed["openat"] or 0, 0, 0, flags, read_only=True) == ALLOW
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_RDWR | os.O_APPEND):
        assert verdict(machine, listed["openat"] or 0, 0, 0, flags, read_only=True) == REFUSED
        assert verdict(machine, listed["openat"] or 0, 0, 0, flags) == ALLOW
    if "open" in listed:
        assert verdict(machine, listed["open"] or 0, 0, os.O_RDWR, read_only=True) == REFUSED


@pytest.mark.parametrize("machine", MACHINES)
@given(number=st.integers(0, 2**32 - 1))
def test_calls_of_another_architecture_end_the_process(machine: int, number: int) -> None:
    assert verdict(machine, number, arch=0x40000003) == KILL


@given(number=st.integers(0x40000000, 2**32 - 1))
def test_x32_calls_and_calls_of_the_future_are_refused(number: int) -> None:
    assert verdict(0, number) == REFUSED
