"""Which directories a directory holds, without listing it each time."""

import os


class Directories:
    """The directories below directories of a tree that is looked at again and again.

    A directory of the cgroup file system says by its link count how many groups it holds, so one ``stat`` tells that
    it has to be listed anew; ``live`` False (plain files) lists each time. What is not asked for between two calls of
    :meth:`turn` is forgotten.
    """

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._before: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._now: dict[str, tuple[int, tuple[str, ...]]] = {}

    def turn(self) -> None:
        """Begin another look at the tree."""
        self._before, self._now = self._now, {}

    def forget(self) -> None:
        """List every directory anew."""
        self._before, self._now = {}, {}

    def below(self, directory: str) -> tuple[str, ...]:
        """Return the names of the directories in a directory, sorted.

        One that came in the same instant as another went is not noticed; :meth:`standing` does.

        :raises OSError: if it cannot be looked at.
        """
        links = os.stat(directory).st_nlink
        known = self._now.get(directory) or self._before.get(directory)
        if not self._live or known is None or known[0] != links:
            known = links, _listed(directory)
        self._now[directory] = known
        return known[1]

    def is_unchanged(self) -> bool:
        """Return whether all that was asked for since the last turn would be answered in the same way."""
        try:
            return (
                self._live
                and bool(self._now)
                and all(os.stat(path).st_nlink == links for path, (links, _) in self._now.items())
            )
        except OSError:
            return False

    def standing(self, directory: str) -> tuple[str, ...]:
        """Return the same, each of them looked for.

        :raises OSError: if the directory cannot be looked at.
        """
        names = self.below(directory)
        if self._live and not all(os.access(f"{directory}/{name}", os.F_OK) for name in names):
            self._now.pop(directory)
            self._before.pop(directory, None)
            return self.below(directory)
        return names


def _listed(directory: str) -> tuple[str, ...]:
    with os.scandir(directory) as entries:
        return tuple(sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False)))
