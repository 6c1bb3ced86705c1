"""libbpf 1.x by ctypes: only the calls that cotenant makes."""

import ctypes
import functools
from ctypes import POINTER, c_bool, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p

from cotenant.kernel.bpf.errors import BpfCallFailed, BpfUnavailable

LIBRARY = "libbpf.so.1"
OLD_LIBRARY = "libbpf.so.0"

_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "libbpf_set_print": (c_void_p, (c_void_p,)),
    "btf__load_vmlinux_btf": (c_void_p, ()),
    "btf__new": (c_void_p, (c_void_p, c_uint32)),
    "btf__free": (None, (c_void_p,)),
    "btf__find_by_name_kind": (c_int, (c_void_p, c_char_p, c_uint32)),
    "btf__type_by_id": (c_void_p, (c_void_p, c_uint32)),
    "btf__name_by_offset": (c_char_p, (c_void_p, c_uint32)),
    "bpf_object__open_mem": (c_void_p, (c_char_p, c_size_t, c_void_p)),
    "bpf_object__load": (c_int, (c_void_p,)),
    "bpf_object__close": (None, (c_void_p,)),
    "bpf_object__next_program": (c_void_p, (c_void_p, c_void_p)),
    "bpf_object__find_map_by_name": (c_void_p, (c_void_p, c_char_p)),
    "bpf_program__name": (c_char_p, (c_void_p,)),
    "bpf_program__set_autoload": (c_int, (c_void_p, c_bool)),
    "bpf_program__attach": (c_void_p, (c_void_p,)),
    "bpf_program__fd": (c_int, (c_void_p,)),
    "bpf_link__destroy": (c_int, (c_void_p,)),
    "bpf_map__fd": (c_int, (c_void_p,)),
    "bpf_map__key_size": (c_uint32, (c_void_p,)),
    "bpf_map__value_size": (c_uint32, (c_void_p,)),
    "bpf_map__set_initial_value": (c_int, (c_void_p, c_void_p, c_size_t)),
    "bpf_map_lookup_elem": (c_int, (c_int, c_void_p, c_void_p)),
    "bpf_map_update_elem": (c_int, (c_int, c_void_p, c_void_p, c_uint64)),
    "bpf_map_delete_elem": (c_int, (c_int, c_void_p)),
    "bpf_map_lookup_batch": (
        c_int,
        (c_int, c_void_p, c_void_p, c_void_p, c_void_p, POINTER(c_uint32), c_void_p),
    ),
    "bpf_obj_get_info_by_fd": (c_int, (c_int, c_void_p, POINTER(c_uint32))),
    "bpf_enable_stats": (c_int, (c_int,)),
}


@functools.cache
def library() -> ctypes.CDLL:
    """Return the library, loaded once.

    :raises BpfUnavailable: ``no_libbpf`` if it is not installed, or is older than 1.0.
    """
    try:
        loaded = ctypes.CDLL(LIBRARY, use_errno=True)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        found = f"only {OLD_LIBRARY}, older than 1.0" if _loads(OLD_LIBRARY) else "not installed"
        raise BpfUnavailable("no_libbpf", f"{LIBRARY}: {found} ({error})") from None
    # It prints verifier logs on stderr otherwise; what we need of an error is its number.
    loaded.libbpf_set_print(None)
    return loaded


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def check(result: int, what: str) -> int:
    """Return what a call returned when that is not negative.

    :raises BpfCallFailed: with the errno that libbpf returned.
    """
    if result < 0:
        raise BpfCallFailed(what, -result)
    return result


def check_pointer(result: int | None, what: str) -> int:
    """Return the address that a call returned.

    :raises BpfCallFailed: with errno, when it returned none.
    """
    if not result:
        raise BpfCallFailed(what, ctypes.get_errno())
    return result
