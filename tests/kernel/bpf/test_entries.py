"""Changes of a map between reads, on a map that is a dictionary."""

from cotenant.kernel.bpf.entries import Entries


class Table:
    def __init__(self) -> None:
        self.content: dict[bytes, bytes] = {}

    def items(self):
        return iter(dict(self.content).items())

    def delete(self, key: bytes) -> None:
        del self.content[key]


def key(number: int) -> bytes:
    return number.to_bytes(8, "little")


def test_only_changes_are_told():
    table = Table()
    entries = Entries(table)
    table.content = {key(1): b"a", key(2): b"b"}
    assert sorted(entries.changed()) == [(1, b"a", None), (2, b"b", None)]
    assert list(entries.changed()) == []
    table.content[key(2)] = b"c"
    assert list(entries.changed()) == [(2, b"c", b"b")]


def test_what_is_idle_for_long_is_removed_and_starts_anew():
    table = Table()
    entries = Entries(table, idle_reads=3)
    table.content = {key(1): b"a"}
    for _ in range(3):
        list(entries.changed())
        assert key(1) in table.content
    assert list(entries.changed()) == []
    assert key(1) not in table.content
    table.content[key(1)] = b"x"
    assert list(entries.changed()) == [(1, b"x", None)]
