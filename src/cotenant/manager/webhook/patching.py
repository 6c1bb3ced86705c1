"""JSON Patch (RFC 6902): the operations that turn one document into another."""

from typing import Any

Operation = dict[str, Any]


def difference(before: Any, after: Any) -> list[Operation]:
    """Return the operations that make ``before`` into ``after``; none where they are equal."""
    operations: list[Operation] = []
    _compare("", before, after, operations)
    return operations


def _compare(path: str, before: Any, after: Any, operations: list[Operation]) -> None:
    if _same(before, after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        _compare_maps(path, before, after, operations)
    elif isinstance(before, list) and isinstance(after, list):
        _compare_lists(path, before, after, operations)
    else:
        operations.append({"op": "replace", "path": path, "value": after})


def _compare_maps(path: str, before: dict[str, Any], after: dict[str, Any], operations: list[Operation]) -> None:
    operations.extend({"op": "remove", "path": f"{path}/{_escaped(key)}"} for key in before if key not in after)
    for key, value in after.items():
        place = f"{path}/{_escaped(key)}"
        if before.get(key) is None:  # "add" replaces a null that is there as well
            if key not in before or value is not None:
                operations.append({"op": "add", "path": place, "value": value})
        else:
            _compare(place, before[key], value, operations)


def _compare_lists(path: str, before: list[Any], after: list[Any], operations: list[Operation]) -> None:
    """Compare item by item where nothing was taken out or moved; else replace the whole list."""
    kept = len(before)
    if len(after) < kept or (len(after) > kept and not all(map(_same, before, after))):
        operations.append({"op": "replace", "path": path, "value": after})
        return
    for index in range(kept):
        _compare(f"{path}/{index}", before[index], after[index], operations)
    operations.extend({"op": "add", "path": f"{path}/-", "value": value} for value in after[kept:])


def _same(before: Any, after: Any) -> bool:
    """Return whether two documents are equal; for Python ``1 == True``, which JSON tells apart."""
    if type(before) is not type(after):
        return False
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(_same(before[key], after[key]) for key in before)
    if isinstance(before, list):
        return len(before) == len(after) and all(map(_same, before, after))
    return bool(before == after)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
