"""One shipped object: opened, told its settings, loaded, attached, read, and its own run time accounted."""

import ctypes
import errno
import functools
import os
import pathlib
import sys
from collections.abc import Iterator

from cotenant.kernel.bpf import libbpf
from cotenant.kernel.bpf.errors import BpfCallFailed

BPF_STATS_RUN_TIME = 0
_BATCH = 32
"""Entries that one call reads: a value holds histograms, some 7 KiB, and the buffers are kept."""


class ProgramInfo(ctypes.Structure):
    """``struct bpf_prog_info`` up to ``recursion_misses`` (Linux 5.12), of which the last three are read."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("_before", ctypes.c_uint8 * 184),
        ("run_time_ns", ctypes.c_uint64),
        ("run_count", ctypes.c_uint64),
        ("recursion_misses", ctypes.c_uint64),
    )


class Map:
    """One map of a loaded object. Keys and values are bytes in the machine's order."""

    def __init__(self, handle: int, name: str) -> None:
        self._lib = libbpf.library()
        self.name = name
        self.key_size: int = self._lib.bpf_map__key_size(handle)
        self.value_size: int = self._lib.bpf_map__value_size(handle)
        self._fd: int = self._lib.bpf_map__fd(handle)

    @functools.cached_property
    def _buffers(self) -> tuple[ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_char]]:
        return (
            ctypes.create_string_buffer(_BATCH * self.key_size),
            ctypes.create_string_buffer(_BATCH * self.value_size),
        )

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every entry of a hash map, a batch at a time; one that changes meanwhile may come early or late.

        :raises BpfCallFailed: if the kernel refuses.
        """
        keys, values = self._buffers
        # Where the next batch starts: a bucket's number in a hash map, a key in others.
        place = ctypes.create_string_buffer(max(8, self.key_size))
        first, done = True, False
        while not done:
            count = ctypes.c_uint32(_BATCH)
            result = self._lib.bpf_map_lookup_batch(
                self._fd, None if first else place, place, keys, values, ctypes.byref(count), None
            )
            if result < 0 and result != -errno.ENOENT:  # which says that this was the last batch
                raise BpfCallFailed(f"map {self.name}", -result)
            first, done = False, result < 0
            key_view, value_view = memoryview(keys), memoryview(values)
            for i in range(count.value):
                yield (
                    bytes(key_view[i * self.key_size : (i + 1) * self.key_size]),
                    bytes(value_view[i * self.value_size : (i + 1) * self.value_size]),
                )

    def lookup(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None where there is no entry."""
        value = ctypes.create_string_buffer(self.value_size)
        if self._lib.bpf_map_lookup_elem(self._fd, key, value) < 0:
            return None
        return value.raw

    def count(self, place: int) -> int:
        """Return the number at a place of an array of counters.

        :raises BpfCallFailed: if it cannot be read.
        """
        value = self.lookup(place.to_bytes(4, sys.byteorder))
        if value is None:
            raise BpfCallFailed(f"map {self.name}", ctypes.get_errno())
        return int.from_bytes(value, sys.byteorder)

    def update(self, key: bytes, value: bytes) -> None:
        """Set the value of a key.

        :raises BpfCallFailed: if the kernel refuses.
        """
        libbpf.check(self._lib.bpf_map_update_elem(self._fd, key, value, 0), f"map {self.name}")

    def delete(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        self._lib.bpf_map_delete_elem(self._fd, key)


class Object:
    """A shipped object, loaded and attached. Closing it, or the end of the process, takes it out of the kernel."""

    def __init__(self, name: str, settings: bytes, programs: frozenset[str]) -> None:
        """Load ``objects/NAME.bpf.o`` with its settings and attach those of its programs that are named.

        :raises BpfUnavailable: ``no_libbpf``.
        :raises BpfCallFailed: if the kernel refuses it; :attr:`reason` is ``permission`` or ``no_bpf``.
        """
        self._lib = libbpf.library()
        self.name = name
        self._links: list[int] = []
        self._programs: dict[str, int] = {}
        image = shipped(name)
        handle = self._lib.bpf_object__open_mem(image, len(image), None)
        self._handle: int | None = libbpf.check_pointer(handle, f"BPF object {name}")
        try:
            self._load(settings, programs)
        except BpfCallFailed:
            self.close()
            raise

    def _load(self, settings: bytes, wanted: frozenset[str]) -> None:
        found: dict[str, int] = {}
        program = self._lib.bpf_object__next_program(self._handle, None)
        while program:
            found[self._lib.bpf_program__name(program).decode()] = program
            program = self._lib.bpf_object__next_program(self._handle, program)
        for name, program in found.items():
            self._lib.bpf_program__set_autoload(program, name in wanted)
        self._programs = {name: found[name] for name in sorted(wanted)}
        what = f"settings of BPF object {self.name}"
        section = self._map_handle(".rodata.settings")
        libbpf.check(self._lib.bpf_map__set_initial_value(section, settings, len(settings)), what)
        libbpf.check(self._lib.bpf_object__load(self._handle), f"loading BPF object {self.name}")
        for name, program in self._programs.items():
            link = self._lib.bpf_program__attach(program)
            self._links.append(libbpf.check_pointer(link, f"attaching BPF program {name}"))

    def _map_handle(self, name: str) -> int:
        handle = self._lib.bpf_object__find_map_by_name(self._handle, name.encode())
        return libbpf.check_pointer(handle, f"map {name} of BPF object {self.name}")

    def map(self, name: str) -> Map:
        """Return a map by its name."""
        return Map(self._map_handle(name), name)

    def run_time_ns(self) -> tuple[int, int]:
        """Return how long the programs ran and how often, both only while some process keeps statistics on."""
        infos = [info for info, _ in self._infos()]
        return sum(info.run_time_ns for info in infos), sum(info.run_count for info in infos)

    def recursion_misses(self) -> int | None:
        """Return how often the kernel left a program out that was already running on that CPU, since it was loaded.

        None where the kernel does not tell (before 5.12). Programs at raw tracepoints are left out since 6.1.

        :raises BpfCallFailed: if the kernel refuses.
        """
        found = list(self._infos())
        if any(size < ctypes.sizeof(ProgramInfo) for _, size in found):
            return None
        return sum(int(info.recursion_misses) for info, _ in found)

    def _infos(self) -> Iterator[tuple[ProgramInfo, int]]:
        for name, program in self._programs.items():
            yield info_of(self._lib.bpf_program__fd(program), name)

    def close(self) -> None:
        """Detach and unload."""
        for link in self._links:
            self._lib.bpf_link__destroy(link)
        self._links.clear()
        self._programs.clear()
        if self._handle:
            self._lib.bpf_object__close(self._handle)
            self._handle = None


class Statistics:
    """The kernel's accounting of BPF run time, on while this is open. It ends with the process too."""

    def __init__(self) -> None:
        """:raises BpfCallFailed: if the kernel refuses (it wants CAP_SYS_ADMIN)."""
        self._fd = libbpf.check(libbpf.library().bpf_enable_stats(BPF_STATS_RUN_TIME), "BPF run-time statistics")

    def close(self) -> None:
        """Stop accounting, unless another process wants it too."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def info_of(fd: int, name: str) -> tuple[ProgramInfo, int]:
    """Return what the kernel tells of a program, and how many bytes of that it knows; the rest is 0.

    :raises BpfCallFailed: if the kernel refuses.
    """
    info = ProgramInfo()
    size = ctypes.c_uint32(ctypes.sizeof(info))
    result = libbpf.library().bpf_obj_get_info_by_fd(fd, ctypes.byref(info), ctypes.byref(size))
    libbpf.check(result, f"program {name}")
    return info, size.value


@functools.cache
def shipped(name: str) -> bytes:
    """Return a shipped object's bytes."""
    return (pathlib.Path(__file__).parent / "objects" / f"{name}.bpf.o").read_bytes()
