"""What files hold because of cotenant now, whichever of its processes wrote them: the journal beside the files."""

from cotenant.kernel import journal, paths
from cotenant.model.enforcement import HeldFile


def read(root: paths.Root, without: frozenset[str] = frozenset()) -> list[HeldFile]:
    """Return the files of this boot that we wrote and have not put back, those of some strategies left out."""
    book = journal.Journal(root)
    book.refresh()
    found = []
    for entry in book.of_this_boot():
        line = entry.line
        if line.op != "write" or line.aside or line.strategy in without or not entry.values:
            continue
        actual = _text(root, entry.path)
        if actual is None:
            continue  # the group is gone, and what it held with it
        found.append(
            HeldFile(
                path=entry.path,
                target=entry.values[-1].strip(),
                actual=actual,
                strategy=line.strategy,
                reason=line.reason,
                original=None if entry.own is None else entry.own.strip(),
            )
        )
    return sorted(found, key=lambda held: held.path)


def _text(root: paths.Root, path: str) -> str | None:
    try:
        return (root.directory / path).read_text(errors="replace").strip()
    except OSError:
        return None
