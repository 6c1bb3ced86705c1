"""What is in the kernel while we run, beside another one of us, and after we are gone."""

import ctypes
import os
import signal
import subprocess
import sys

import pytest
from tests import process
from tests.waiting import PATIENCE_SECONDS, await_true

from cotenant.kernel import paths
from cotenant.kernel.bpf import libbpf
from cotenant.kernel.bpf.tracer import BpfTracer
from cotenant.kernel.tracing import GroupTrace

pytestmark = pytest.mark.real

OURS = {"rq_issue", "rq_complete", "rq_requeue", "switch_stamped"}
INFO_BYTES, NAME_AT = 80, 64
"""The part of ``struct bpf_prog_info`` that ends with the name."""
HOLDER = """
import time
from cotenant.kernel import paths
from cotenant.kernel.bpf.tracer import BpfTracer
tracer = BpfTracer(paths.Root())
print([program.missing for program in tracer.programs], flush=True)
time.sleep(900)
"""


def loaded_by(pid: int) -> set[str]:
    """Return the names of our programs that a process holds, by its descriptors' own account."""
    found = set()
    directory = paths.Root().proc / str(pid)
    for descriptor in os.listdir(directory / "fd"):
        try:
            if "bpf-prog" in os.readlink(directory / "fd" / descriptor):
                text = (directory / "fdinfo" / descriptor).read_text()
                found.add(next(line.split()[1] for line in text.splitlines() if line.startswith("prog_id")))
        except FileNotFoundError:
            continue
    return found


def in_kernel(number: str) -> str | None:
    """Return the name of a program in the kernel, or None where no program has this id (any more)."""
    library = libbpf.library()
    fd = library.bpf_prog_get_fd_by_id(int(number))
    if fd < 0:
        return None
    try:
        info = ctypes.create_string_buffer(INFO_BYTES)
        libbpf.check(library.bpf_obj_get_info_by_fd(fd, info, ctypes.byref(ctypes.c_uint32(INFO_BYTES))), number)
        return info.raw[NAME_AT:].split(b"\0")[0].decode()
    finally:
        os.close(fd)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_behind(tracer, how):
    tracer.close()
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.next_line(holder).strip() == "[None, None]"
        held = loaded_by(holder.pid)
        assert {in_kernel(number) for number in held} == OURS
    finally:
        holder.send_signal(how)
        holder.wait(timeout=PATIENCE_SECONDS)
        holder.stdout.close()
    # The kernel frees programs a grace period after the last user is gone.
    await_true(lambda: not any(map(in_kernel, held)), "our programs are gone", pause_seconds=0.1)


def test_two_at_the_same_time_see_the_same(tracer, group, file_on_disk):
    other = BpfTracer(paths.Root())
    try:
        writer = group("blkio", "io")
        script = "import os,mmap,sys\nb=mmap.mmap(-1,4096)\nf=os.open(sys.argv[1],os.O_RDWR|os.O_DIRECT)\n"
        script += "for i in range(50): os.pwrite(f,b,i*65536)"
        for _ in range(20):  # a busy kernel may leave out events
            process.run([sys.executable, "-c", script, file_on_disk], preexec_fn=writer.enter, check=True)
            first, second = (one.read().block_groups.get(writer.inode, GroupTrace()) for one in (tracer, other))
            if first.writes == second.writes == 50:
                break
        assert (first.writes, first.write_bytes) == (second.writes, second.write_bytes) == (50, 50 * 4096)
    finally:
        other.close()


def test_closing_twice(tracer):
    tracer.close()
    tracer.close()


def test_without_privilege_the_reason_is_permission(tracer):
    del tracer
    # The files are read before the change: nobody may not see where a developer's tree is.
    script = (
        "import os\nfrom cotenant.kernel import paths\nfrom cotenant.kernel.bpf import libbpf, program\n"
        "from cotenant.kernel.bpf.tracer import BpfTracer\n"
        "libbpf.library(), program.shipped('block'), program.shipped('run_queue')\n"
        "os.setresgid(65534, 65534, 65534)\nos.setresuid(65534, 65534, 65534)\n"
        "print(BpfTracer(paths.Root()).read())"
    )
    if os.geteuid() != 0:
        pytest.skip("needs root to become nobody")
    done = process.run([sys.executable, "-c", script], check=True)
    assert done.stdout.strip() == "permission"
