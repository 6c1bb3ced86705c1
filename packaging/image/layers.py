"""Layers: tar archives of a merged-/usr root, byte-identical for the same content."""

import io
import pathlib
import tarfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO

MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders that are links below /usr; a package that ships a file there means the one below /usr."""
FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var")
EXECUTABLE = 0o755
PLAIN = 0o644

Entry = tuple[tarfile.TarInfo, bytes | None]
Keep = Callable[[str], bool]


def skeleton(usr_lib64: bool) -> Iterator[Entry]:
    """Yield the folders and links that every root has; ``usr_lib64``: the processor's loader is in /lib64."""
    for folder in FOLDERS:
        yield folder_entry(folder, 0o1777 if folder == "tmp" else EXECUTABLE)
    for name in ("bin", "sbin", "lib", *(("lib64",) if usr_lib64 else ())):
        yield folder_entry(f"usr/{name}")
        yield link_entry(name, f"usr/{name}")


def of_package(data: IO[bytes], keep: Keep) -> Iterator[Entry]:
    """Yield what a Debian package's data archive holds, at its place below a merged /usr; no devices, no hard links."""
    with tarfile.open(fileobj=data, mode="r|") as archive:
        for member in archive:
            path = merged(member.name)
            if not path or path in MERGED or not keep(path):
                continue
            if member.isdir():
                yield folder_entry(path)
            elif member.issym():
                yield link_entry(path, member.linkname)
            elif member.isfile():
                content = archive.extractfile(member)
                yield file_entry(path, content.read() if content else b"", member.mode & 0o111 != 0)


def of_folder(folder: pathlib.Path, target: str, keep: Keep) -> Iterator[Entry]:
    """Yield a folder's files at ``target``."""
    for path in sorted(folder.rglob("*")):
        name = f"{target}/{path.relative_to(folder).as_posix()}"
        if path.is_file() and keep(name):
            yield file_entry(name, path.read_bytes(), path.stat().st_mode & 0o111 != 0)


def merged(path: str) -> str:
    """Return an archive's path without ``./``, moved below /usr where Debian has merged it."""
    name = path.removeprefix("./").rstrip("/")
    return f"usr/{name}" if "/" in name and name.split("/", 1)[0] in MERGED else name.removeprefix(".")


def file_entry(path: str, content: bytes, executable: bool = False) -> Entry:
    """Return a file that root owns."""
    info = tarfile.TarInfo(path)
    info.size, info.mode = len(content), EXECUTABLE if executable else PLAIN
    return info, content


def folder_entry(path: str, mode: int = EXECUTABLE) -> Entry:
    """Return a folder that root owns."""
    info = tarfile.TarInfo(path)
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info, None


def link_entry(path: str, target: str) -> Entry:
    """Return a symbolic link."""
    info = tarfile.TarInfo(path)
    info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
    return info, None


def archive(entries: Iterable[Entry], time_seconds: int) -> bytes:
    """Return the archive: sorted, every path once (the last wins), each folder before what is in it, one time."""
    kept: dict[str, Entry] = {}
    for info, content in entries:
        for parent in reversed(pathlib.PurePosixPath(info.name).parents):
            if str(parent) != "." and str(parent) not in kept:
                kept[str(parent)] = folder_entry(str(parent))
        kept[info.name] = (info, content)
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(kept):
            info, content = kept[name]
            info.mtime = time_seconds
            tar.addfile(info, None if content is None else io.BytesIO(content))
    return output.getvalue()
