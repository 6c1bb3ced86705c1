"""What patches do to an object, as far as ours go: apply for maps, merge, and strategic merge of conditions."""

from typing import Any


def apply(found: dict[str, Any], body: dict[str, Any], before: dict[str, Any]) -> None:
    """Set the manager's fields, and take away those it named before and no longer does."""
    for key, value in before.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            _give_up(found[key], value, body.get(key, {}))
    merge(found, {key: value for key, value in body.items() if key not in ("apiVersion", "kind")})


def _give_up(found: dict[str, Any], before: dict[str, Any], now: Any) -> None:
    for key, value in before.items():
        kept = now.get(key) if isinstance(now, dict) else None
        if isinstance(value, dict):
            if isinstance(found.get(key), dict):
                _give_up(found[key], value, kept or {})
        elif kept is None and key not in ("name", "uid"):
            found.pop(key, None)


def merge(found: dict[str, Any], patch: dict[str, Any], strategic: bool = False) -> None:
    """Merge; null takes away; with ``strategic`` conditions are one entry for each type, webhooks for each name."""
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            inner = found.setdefault(key, {})
            merge(inner, value, strategic)
        elif strategic and key == "conditions":
            types = {one["type"] for one in value}
            kept = [one for one in found.get(key, []) if one["type"] not in types]
            found[key] = kept + [one for one in value if one.get("$patch") != "delete"]
        elif strategic and key == "webhooks":
            by_name = {one["name"]: one for one in found.setdefault(key, [])}
            for one in value:
                merge(by_name[one["name"]], one, strategic)
        else:
            found[key] = value
