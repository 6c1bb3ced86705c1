"""The kernel counts where it leaves out a program that is running already on that CPU, and we read it there.

Our own programs do not come across themselves on this machine, so one is made that always does: it runs at each page
fault of the kernel, and causes one.
"""

import ctypes
import mmap
import os
import platform
import struct

import pytest
from tests.waiting import await_true

from cotenant.kernel.bpf import program

pytestmark = pytest.mark.real

RAW_TRACEPOINT = 17
"""BPF_PROG_TYPE_RAW_TRACEPOINT"""
PROBE_READ_KERNEL = 113
UNMAPPED = 0xFFFF_8000_0000_0000
"""The guard hole of x86-64: a kernel address where nothing ever is."""


def instruction(code: int, registers: int, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhI", code, registers, offset, value)


FAULTING = (
    instruction(0xBF, 0xA1)  # r1 = r10
    + instruction(0x07, 0x01, value=0xFFFF_FFF8)  # r1 += -8
    + instruction(0xB7, 0x02, value=8)  # r2 = 8
    + instruction(0x18, 0x03, value=UNMAPPED & 0xFFFF_FFFF)  # r3 = UNMAPPED
    + instruction(0, 0, value=UNMAPPED >> 32)
    + instruction(0x85, 0, value=PROBE_READ_KERNEL)
    + instruction(0xB7, 0x00)  # r0 = 0
    + instruction(0x95, 0)  # return
)


@pytest.fixture
def faulting(needs_libbpf):
    """A program at the kernel's page faults that causes one: its descriptor."""
    if platform.machine() != "x86_64":
        pytest.skip("only x86-64 has a trace point at page faults of the kernel")
    load = needs_libbpf.bpf_prog_load
    load.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)
    fd = load(RAW_TRACEPOINT, b"faulting", b"GPL", FAULTING, len(FAULTING) // 8, None)
    if fd < 0:
        pytest.skip(f"no BPF here: {os.strerror(-fd)}")
    link = needs_libbpf.bpf_raw_tracepoint_open(b"page_fault_kernel", fd)
    try:
        if link < 0:
            pytest.skip(f"no trace point page_fault_kernel: {os.strerror(-link)}")
        yield fd
    finally:
        for descriptor in (link, fd):
            if descriptor >= 0:
                os.close(descriptor)


def misses(fd: int) -> int:
    info, size = program.info_of(fd, "faulting")
    if size < ctypes.sizeof(program.ProgramInfo):
        pytest.skip("this kernel does not count recursion (before 5.12)")
    return info.recursion_misses


def test_a_program_that_comes_across_itself_is_counted(faulting):
    def counted() -> bool:
        # The kernel writes into a page that is not there yet.
        with mmap.mmap(-1, mmap.PAGESIZE) as page, open("/dev/zero", "rb", buffering=0) as zero:
            zero.readinto(page)
        return misses(faulting) > 0

    await_true(counted, "a run that the kernel left out")


def test_our_programs_are_asked_for_it(tracer):
    for loaded in tracer.objects:
        assert loaded.recursion_misses() is not None
    told = {(loss.program, loss.reason) for loss in tracer.losses}
    assert {("block", "recursion"), ("run_queue", "recursion"), ("block", "unseen"), ("block", "no_room")} <= told
