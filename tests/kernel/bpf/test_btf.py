"""What is read from kernel type information, on types made by hand: kernels older and newer than this one."""

import struct

import pytest

from cotenant.kernel.bpf import block, btf, run_queue
from cotenant.kernel.bpf.errors import BpfCallFailed, BpfUnavailable

pytestmark = pytest.mark.usefixtures("needs_libbpf")

INT, PTR, STRUCT, TYPEDEF, FUNC_PROTO = 1, 2, 4, 8, 13


class Blob:
    """Kernel type information made by hand: types in the order they are added, numbered from 1 (0 is void)."""

    def __init__(self) -> None:
        self._strings = b"\0"
        self._types: list[bytes] = []

    def _name(self, name: str) -> int:
        if not name:
            return 0
        offset = len(self._strings)
        self._strings += name.encode() + b"\0"
        return offset

    def add(self, name: str, kind: int, length: int, size_or_type: int, rest: bytes = b"") -> int:
        self._types.append(struct.pack("=III", self._name(name), kind << 24 | length, size_or_type) + rest)
        return len(self._types)

    def integer(self, name: str = "int") -> int:
        """Add a 32-bit integer."""
        return self.add(name, INT, 0, 4, struct.pack("=I", 32))

    def tracepoint(self, name: str, arguments: int) -> int:
        """Add ``btf_trace_NAME``: a typedef of a pointer to a function of its own data and these arguments."""
        pointer = self.add("", PTR, 0, 0)
        parameters = b"".join(struct.pack("=II", 0, pointer) for _ in range(arguments + 1))
        function = self.add("", FUNC_PROTO, arguments + 1, 0, parameters)
        return self.add(f"btf_trace_{name}", TYPEDEF, 0, self.add("", PTR, 0, function))

    def struct(self, name: str, *members: str) -> int:
        """Add a struct of integers."""
        number = self.integer()
        packed = b"".join(struct.pack("=III", self._name(m), number, 32 * i) for i, m in enumerate(members))
        return self.add(name, STRUCT, len(members), 4 * len(members), packed)

    def bytes(self) -> bytes:
        """Return the blob."""
        types = b"".join(self._types)
        header = struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(self._strings))
        return header + types + self._strings


def kernel(arguments: int, *, without: tuple[str, ...] = (), stamped: bool = True) -> bytes:
    """Return the types of a kernel whose request events pass so many arguments."""
    blob = Blob()
    for name in ("block_rq_issue", "block_rq_requeue"):
        if name not in without:
            blob.tracepoint(name, arguments)
    for name, number in (("block_rq_complete", 3), ("sched_switch", 4), ("sched_wakeup", 1), ("sched_wakeup_new", 1)):
        if name not in without:
            blob.tracepoint(name, number)
    blob.struct("sched_info", "pcount", *(["last_queued"] if stamped else []))
    blob.struct("cfs_rq", "load", "rq")
    blob.struct("task_struct", "pid", "sched_info")
    return blob.bytes()


ALL = frozenset({"rq_issue", "rq_complete", "rq_requeue"})


@pytest.mark.parametrize(
    ("types", "programs", "request_argument"),
    [
        (kernel(1), ALL, 0),
        (kernel(2), ALL, 1),
        (kernel(2, without=("block_rq_requeue",)), ALL - {"rq_requeue"}, 1),
    ],
    ids=["request alone, since 5.11", "queue and request, before", "no event of requeueing"],
)
def test_argument_lists(types, programs, request_argument):
    with btf.Btf.parse(types) as parsed:
        assert block.attachable(parsed) == (programs, request_argument)


def test_a_kernel_without_the_events_says_so():
    with btf.Btf.parse(kernel(1, without=("block_rq_issue",))) as parsed:
        with pytest.raises(BpfUnavailable, match="block_rq_issue") as caught:
            block.attachable(parsed)
        assert caught.value.reason == "no_bpf"
    with btf.Btf.parse(kernel(1, without=("sched_wakeup",))) as parsed, pytest.raises(BpfUnavailable, match="wakeup"):
        run_queue.choose_method(parsed)


@pytest.mark.parametrize(("stamped", "method"), [(True, "stamped"), (False, "tracked")])
def test_the_schedulers_own_stamp_is_used_where_there_is_one(stamped, method):
    with btf.Btf.parse(kernel(1, stamped=stamped)) as parsed:
        assert run_queue.choose_method(parsed) == method


def test_names_that_are_not_tracepoints():
    blob = Blob()
    blob.add("btf_trace_odd", TYPEDEF, 0, blob.integer())
    with btf.Btf.parse(blob.bytes()) as parsed:
        assert parsed.tracepoint_arguments("odd") is None
        assert parsed.tracepoint_arguments("absent") is None
        assert not parsed.has_member("absent", "x")


def test_a_blob_that_is_not_btf():
    with pytest.raises(BpfCallFailed):
        btf.Btf.parse(b"not type information at all")
