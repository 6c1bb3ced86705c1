"""Strategic merge patches of pods, as a profile's ``patch`` holds them.

Maps merge key by key and null removes a key. Lists that Kubernetes merges by a key (containers by name, ports by
number …) merge item by item; every other list is replaced. Of the directives, ``$patch``, ``$retainKeys`` and
``$deleteFromPrimitiveList/…`` are understood; a patch with another one is refused when its profile is.
"""

import copy
from typing import Any

Path = tuple[str, ...]

_CONTAINER_LISTS = {
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
MERGE_KEYS: dict[Path, str] = {
    ("metadata", "ownerReferences"): "uid",
    ("spec", "volumes"): "name",
    ("spec", "imagePullSecrets"): "name",
    ("spec", "hostAliases"): "ip",
    ("spec", "topologySpreadConstraints"): "topologyKey",
    ("spec", "schedulingGates"): "name",
    ("spec", "resourceClaims"): "name",
    **{("spec", name): "name" for name in _CONTAINERS},
    **{("spec", name, "*", field): key for name in _CONTAINERS for field, key in _CONTAINER_LISTS.items()},
}
"""The lists whose items are told apart by a key, by their path (``*``: any item)."""
_PRIMITIVES: frozenset[Path] = frozenset({("metadata", "finalizers")})
"""The lists of plain values that are merged as sets."""
DIRECTIVE, RETAIN_KEYS, DELETE_FROM = "$patch", "$retainKeys", "$deleteFromPrimitiveList/"
_TOP = frozenset({"apiVersion", "kind", "metadata", "spec"})
_METADATA = frozenset({"labels", "annotations", "finalizers", "ownerReferences"})


def problems(patch: Any) -> list[str]:
    """Return what keeps a profile's patch from being applied; empty where it can be."""
    if not isinstance(patch, dict):
        return ["spec.patch: must be an object, a strategic merge patch of a pod"]
    found = [f"spec.patch.{key}: a profile changes metadata and spec only" for key in sorted(patch.keys() - _TOP)]
    metadata = patch.get("metadata")
    if isinstance(metadata, dict):
        outside = sorted(key for key in metadata.keys() - _METADATA if not key.startswith("$"))
        found += [f"spec.patch.metadata.{key}: a profile cannot change this" for key in outside]
    for key in ("metadata", "spec"):
        if key in patch and not isinstance(patch[key], dict):
            found.append(f"spec.patch.{key}: must be an object")
    if isinstance(patch.get("spec"), dict) and "priority" in patch["spec"]:
        found.append("spec.patch.spec.priority: the API server computes it; set spec.priorityClassName")
    if not found:
        _inspect(patch, (), "spec.patch", found)
    return found


def merge(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the document with a patch, in which there are no :func:`problems`, merged in; neither is changed."""
    wanted = {key: value for key, value in patch.items() if key not in ("apiVersion", "kind")}
    return _merge_map(document, wanted, ())


def _inspect(patch: Any, path: Path, place: str, found: list[str]) -> None:
    if isinstance(patch, dict):
        for key, value in patch.items():
            where = f"{place}.{key}"
            if key == DIRECTIVE:
                if value not in ("replace", "merge", "delete"):
                    found.append(f"{where}: {value!r}: give replace, merge or delete")
            elif key == RETAIN_KEYS or key.startswith(DELETE_FROM):
                if not isinstance(value, list):
                    found.append(f"{where}: must be a list")
            elif key.startswith("$"):
                found.append(f"{where}: this directive is not supported; leave it out")
            else:
                _inspect(value, (*path, key), where, found)
    elif isinstance(patch, list):
        _inspect_list(patch, path, place, found)


def _inspect_list(patch: list[Any], path: Path, place: str, found: list[str]) -> None:
    key = MERGE_KEYS.get(path)
    for index, item in enumerate(patch):
        where = f"{place}[{index}]"
        whole_list = isinstance(item, dict) and item.keys() == {DIRECTIVE}
        if key is None and isinstance(item, dict) and DIRECTIVE in item:
            found.append(f"{where}.{DIRECTIVE}: this list is replaced as a whole")
        elif key is not None and not whole_list and not (isinstance(item, dict) and item.get(key) is not None):
            found.append(f"{where}: must be an object with {key}, by which items of this list are told apart")
        else:
            _inspect(item, (*path, "*"), where, found)


def _merge_map(document: dict[str, Any], patch: dict[str, Any], path: Path) -> dict[str, Any]:
    directive = patch.get(DIRECTIVE)
    if directive == "delete":
        return {}
    merged = {} if directive == "replace" else dict(document)
    for key, value in patch.items():
        if key.startswith(DELETE_FROM):
            _delete_values(merged, key.removeprefix(DELETE_FROM), value)
        elif key.startswith("$"):
            continue
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_value(merged.get(key), value, (*path, key))
    if RETAIN_KEYS in patch:
        merged = {key: value for key, value in merged.items() if key in patch[RETAIN_KEYS]}
    return merged


def _merge_value(document: Any, patch: Any, path: Path) -> Any:
    if isinstance(patch, dict):
        return _merge_map(document if isinstance(document, dict) else {}, patch, path)
    if isinstance(patch, list):
        present = document if isinstance(document, list) else []
        if path in MERGE_KEYS:
            return _merge_list(present, patch, path)
        if path in _PRIMITIVES:
            return [*present, *(value for value in patch if value not in present)]
    return copy.deepcopy(patch)


def _merge_list(document: list[Any], patch: list[Any], path: Path) -> list[Any]:
    key = MERGE_KEYS[path]
    whole = next((item[DIRECTIVE] for item in patch if item.keys() == {DIRECTIVE}), None)
    items = [] if whole in ("replace", "delete") else list(document)
    for item in patch:
        if item.keys() == {DIRECTIVE}:
            continue
        at = next((index for index, old in enumerate(items) if _is(old, key, item[key])), None)
        if item.get(DIRECTIVE) == "delete":
            items = [old for old in items if not _is(old, key, item[key])]
        elif at is None:
            items.append(_merge_map({}, item, (*path, "*")))
        else:
            items[at] = _merge_map(items[at], item, (*path, "*"))
    return items


def _is(item: Any, key: str, value: Any) -> bool:
    return isinstance(item, dict) and item.get(key) == value


def _delete_values(document: dict[str, Any], key: str, values: list[Any]) -> None:
    present = document.get(key)
    if isinstance(present, list):
        document[key] = [value for value in present if value not in values]
