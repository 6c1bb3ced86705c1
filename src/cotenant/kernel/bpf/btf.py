"""What the running kernel's type information (BTF) says about the places our programs attach to."""

import ctypes
import os
from typing import Self

from cotenant.kernel.bpf import libbpf
from cotenant.kernel.bpf.errors import BpfUnavailable

KIND_PTR = 2
KIND_STRUCT = 4
KIND_TYPEDEF = 8
KIND_FUNC_PROTO = 13


class _Type(ctypes.Structure):
    _fields_ = (("name_off", ctypes.c_uint32), ("info", ctypes.c_uint32), ("size_or_type", ctypes.c_uint32))


class _Member(ctypes.Structure):
    _fields_ = (("name_off", ctypes.c_uint32), ("type", ctypes.c_uint32), ("offset", ctypes.c_uint32))


class Btf:
    """One kernel's types. Close it after use: a kernel's BTF takes some megabytes."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        self._lib = libbpf.library()

    @classmethod
    def of_kernel(cls) -> Self:
        """Return the running kernel's types.

        :raises BpfUnavailable: ``no_btf`` if this kernel was built without, ``no_libbpf`` without the library.
        """
        handle = libbpf.library().btf__load_vmlinux_btf()
        if not handle:
            number = ctypes.get_errno()
            raise BpfUnavailable("no_btf", f"kernel type information (BTF): {os.strerror(number)}")
        return cls(handle)

    @classmethod
    def parse(cls, blob: bytes) -> Self:
        """Return the types of a BTF blob.

        :raises errors.BpfCallFailed: if it is not BTF.
        """
        handle = libbpf.library().btf__new(blob, len(blob))
        return cls(libbpf.check_pointer(handle, "BTF blob"))

    def close(self) -> None:
        """Free the types."""
        if self._handle:
            self._lib.btf__free(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tracepoint_arguments(self, name: str) -> int | None:
        """Return how many arguments a tracepoint passes, or None where the kernel does not have it."""
        found = self._find(f"btf_trace_{name}", KIND_TYPEDEF)
        for kind in (KIND_TYPEDEF, KIND_PTR):
            if found is None or found[1] != kind:
                return None
            found = self._type(found[0].size_or_type)
        if found is None or found[1] != KIND_FUNC_PROTO:
            return None
        # The first parameter is the tracepoint's own data, which programs do not see.
        return max(_length(found[0]) - 1, 0)

    def has_member(self, struct: str, member: str) -> bool:
        """Return whether the kernel has this struct with this member in it (not in an unnamed part of it)."""
        found = self._find(struct, KIND_STRUCT)
        if found is None:
            return False
        first = ctypes.addressof(found[0]) + ctypes.sizeof(_Type)
        members = (_Member * _length(found[0])).from_address(first)
        wanted = member.encode()
        return any(self._lib.btf__name_by_offset(self._handle, m.name_off) == wanted for m in members)

    def _find(self, name: str, kind: int) -> tuple[_Type, int] | None:
        number = self._lib.btf__find_by_name_kind(self._handle, name.encode(), kind)
        return self._type(number) if number > 0 else None

    def _type(self, number: int) -> tuple[_Type, int] | None:
        address = self._lib.btf__type_by_id(self._handle, number)
        if not address:
            return None
        found = _Type.from_address(address)
        return found, found.info >> 24 & 0x1F


def _length(type_: _Type) -> int:
    return int(type_.info & 0xFFFF)
