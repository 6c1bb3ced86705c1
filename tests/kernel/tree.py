"""A small plain-file machine for tests: mountinfo, hierarchies and groups, nothing more than is asked for."""

import pathlib

from cotenant.kernel import paths

V1 = "30 20 0:{n} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
V2 = "40 20 0:40 / {point} rw - cgroup2 cgroup2 rw\n"


class Tree:
    """A root under a temporary directory. Paths are relative to it, contents are given without the final newline."""

    def __init__(self, directory: pathlib.Path, v1: tuple[str, ...] = (), v2: str | None = None) -> None:
        self.directory = directory
        lines = [V1.format(n=30 + n, name=name) for n, name in enumerate(v1)]
        if v2 is not None:
            lines.append(V2.format(point=v2))
        self.file("proc/self/mountinfo", "".join(lines).rstrip("\n"))
        self.file("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555")
        for name in v1:
            (directory / "sys/fs/cgroup" / name).mkdir(parents=True)
        if v2 is not None:
            (directory / v2.lstrip("/")).mkdir(parents=True, exist_ok=True)
        (directory / "sys/fs").mkdir(parents=True, exist_ok=True)

    @property
    def root(self) -> paths.Root:
        return paths.Root(str(self.directory))

    def file(self, path: str, text: str = "") -> pathlib.Path:
        target = self.directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")
        return target

    def read(self, path: str) -> str:
        return (self.directory / path).read_text()

    def contents(self) -> dict[str, bytes]:
        """Return every file below ``proc`` and ``sys`` with its bytes."""
        found = {}
        for top in ("proc", "sys"):
            for path in sorted((self.directory / top).rglob("*")):
                if path.is_file():
                    found[str(path.relative_to(self.directory))] = path.read_bytes()
        return found
