"""Where the table comes from: files now, or the API server."""

import asyncio
import dataclasses
import logging
import pathlib
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import msgspec

from cotenant.api.errors import BadFile
from cotenant.api.objects import Node, RuntimeClass
from cotenant.api.reading import Row, row_of
from cotenant.api.report import KIND
from cotenant.scheduler.herd import Herd
from cotenant.scheduler.table import Table
from cotenant.units import plain
from cotenant.units.malformed import BAD_VALUES, problem, yaml_problem

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.5

Object = TypeVar("Object")


class Source(Protocol):
    """A table that is kept up to date, and what went wrong with that."""

    table: Table
    herd: Herd | None
    """Pods placed of late; None: not followed."""

    @property
    def malformed(self) -> int:
        """The number of objects that are not what they should be."""
        ...

    @property
    def errors(self) -> int:
        """The number of times that it could not be read."""
        ...

    async def keep(self) -> None:
        """Keep the table up to date until cancelled."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return where the table comes from and in which state that is."""
        ...


def read_objects(path: pathlib.Path) -> list[dict[str, Any]]:
    """Return the objects in a file: one object, a ``List``, or several YAML documents; JSON or YAML.

    :raises BadFile: if it cannot be read, or holds something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}; give a file that `kubectl get -o json` wrote") from None
    documents: list[Any]
    try:
        documents = [msgspec.json.decode(content)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as json_error:
        documents = _read_yaml(path, content, json_error)
    documents = [document for document in documents if document is not None]
    if not documents:  # as `kubectl … > FILE` leaves it until it has its answer: that is not "no reports"
        raise BadFile(f"{path}: empty; give a file that `kubectl get -o json` wrote")
    objects: list[dict[str, Any]] = []
    for document in documents:
        if not isinstance(document, dict):
            raise BadFile(f"{path}: holds {type(document).__name__}, not a Kubernetes object or a List of them")
        objects.extend(_objects_of(path, document))
    return objects


def _read_yaml(path: pathlib.Path, content: bytes, json_error: Exception) -> list[Any]:
    import yaml

    from cotenant.api import manifest

    if content.lstrip()[:1] in (b"{", b"["):
        raise BadFile(f"{path}: {json_error}; give a file that `kubectl get -o json` wrote")
    try:
        return list(manifest.documents(content))
    except (yaml.YAMLError, *BAD_VALUES) as error:
        raise BadFile(f"{path}: neither JSON nor YAML: {yaml_problem(error)}") from None


def _objects_of(path: pathlib.Path, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = document.get("kind")
    if "items" not in document:
        yield document
        return
    items = [] if document["items"] is None else document["items"]
    if not isinstance(items, list):
        raise BadFile(f"{path}: items is not a list; give a file that `kubectl get -o json` wrote")
    item_kind = kind.removesuffix("List") if isinstance(kind, str) else ""
    for item in items:
        if isinstance(item, dict):  # the API server leaves the kind out of the items of a typed list
            yield item if item.get("kind") or not item_kind else {**item, "kind": item_kind}


def read_rows(path: pathlib.Path) -> tuple[list[Row], int]:
    """Return the rows of a file of reports, and the number of items that are no report of a node.

    :raises BadFile: as :func:`read_objects`.
    """
    rows = []
    malformed = 0
    for item in read_objects(path):
        if (item.get("kind") or KIND) != KIND:
            malformed += 1
            continue
        row = row_of(item)
        if row is not None:
            rows.append(row)
        elif not isinstance(item.get("metadata"), dict) or item["metadata"].get("name") is None:
            malformed += 1
    return rows, malformed


def read_runtime(path: pathlib.Path) -> tuple[dict[str, Node], dict[str, RuntimeClass]]:
    """Return the Nodes and the RuntimeClasses in a file; other kinds are passed over.

    :raises BadFile: as :func:`read_objects`, and if one of them has a field of the wrong type.
    """
    nodes: dict[str, Node] = {}
    runtime_classes: dict[str, RuntimeClass] = {}
    for item in read_objects(path):
        try:
            if item.get("kind") == "Node":
                node = _converted(item, Node)
                nodes[node.metadata.name] = node
            elif item.get("kind") == "RuntimeClass":
                runtime_class = _converted(item, RuntimeClass)
                runtime_classes[runtime_class.metadata.name] = runtime_class
        except msgspec.ValidationError as error:
            kind: type[Node | RuntimeClass] = Node if item["kind"] == "Node" else RuntimeClass
            raise BadFile(f"{path}: {item['kind']}: {problem(error, item, kind)}") from None
    return nodes, runtime_classes


def _converted(item: dict[str, Any], kind: type[Object]) -> Object:
    """Return an object of a file; null is taken for a key that is not there."""
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        try:
            return msgspec.convert(plain.without_nulls(item, elements=True), kind)
        except RecursionError:  # a YAML file may hold itself
            raise error from None


@dataclasses.dataclass(frozen=True, slots=True)
class _Stamp:
    """What changes when a file's content does."""

    modified_ns: int
    size: int
    inode: int

    @classmethod
    def of(cls, path: pathlib.Path) -> "_Stamp | None":
        try:
            status = path.stat()
        except OSError:
            return None
        return cls(status.st_mtime_ns, status.st_size, status.st_ino)


class FileSource:
    """Reports, Nodes and RuntimeClasses from files, read again when one of them changes.

    The first read raises what is wrong; in a process that was ``restarted`` nothing is known until the files can be
    read. Later a file that cannot be read leaves the last good table in force, which loses its say by itself as its
    reports expire.
    """

    def __init__(self, reports: pathlib.Path, objects: pathlib.Path | None = None, *, restarted: bool = False) -> None:
        self.reports = reports
        self.objects = objects
        self.errors = 0
        self.herd: Herd | None = None
        self.last_error: str | None = None
        self._stamps = self._stamp()
        self.table, self.malformed = Table(), 0
        try:
            self.table, self.malformed = self._load()
        except BadFile as error:
            if not restarted:
                raise
            self._failed(error, "nothing is known for now")

    def _stamp(self) -> tuple[_Stamp | None, ...]:
        return tuple(_Stamp.of(path) for path in (self.reports, self.objects) if path is not None)

    def _load(self) -> tuple[Table, int]:
        rows, malformed = read_rows(self.reports)
        if self.objects is None:
            return Table(rows), malformed
        nodes, runtime_classes = read_runtime(self.objects)
        return Table(rows, nodes, runtime_classes), malformed

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "files",
            "reports": str(self.reports),
            "objects": str(self.objects) if self.objects else None,
            "lastError": self.last_error,
        }

    async def reload(self) -> bool:
        """Read the files again if one has changed; return whether the table is a new one."""
        stamps = await asyncio.to_thread(self._stamp)
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        try:
            self.table, self.malformed = await asyncio.to_thread(self._load)
        except BadFile as error:
            self._failed(error, "keeping the last good reports")
            return False
        self.last_error = None
        return True

    def _failed(self, error: BadFile, instead: str) -> None:
        self.errors += 1
        self.last_error = str(error)
        _log.warning("%s: %s", instead, error)

    async def keep(self) -> None:
        """Follow the files until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.reload()
