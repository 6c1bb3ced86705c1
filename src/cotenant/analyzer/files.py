"""Reports in a file, for trying things out without a cluster: what ``cotenant scheduler --reports`` reads."""

import os
import pathlib

import msgspec

from cotenant.api import report


class FileSink:
    """Keeps all reports and writes them as one List, in place of the file, whenever told to."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._reports: dict[str, report.NodeInterferenceReport] = {}

    async def write(self, name: str, value: report.NodeInterferenceReport) -> None:
        """Keep one report; it is in the file after the next :meth:`flush`."""
        self._reports[name] = value

    def flush(self) -> None:
        """Write the file.

        :raises OSError: if it cannot be written.
        """
        listed = {"apiVersion": "v1", "kind": "List", "items": [self._reports[name] for name in sorted(self._reports)]}
        new = self._path.with_name(f".{self._path.name}.new")
        new.write_bytes(msgspec.json.encode(listed))
        os.replace(new, self._path)
