"""Structural OpenAPI schemas, as custom resources need them, from our structs and dataclasses.

A msgspec struct speaks for itself: its docstring is the description, ``Literal`` an enumeration, ``msgspec.Meta`` the
bounds. A rules dataclass brings a :class:`cotenant.detect.rules.Key` for each field. Nothing gets a default: what a
DetectionRuleConfig leaves out is the preset's, and what a report leaves out is unknown.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from cotenant.detect import rules

Schema = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Traits:
    """What types cannot say. ``list_keys``: the field that identifies an item, by item type; ``max_items`` likewise;
    ``validations``: CEL rules (rule → message), by type; ``formats``: a format by field name; ``is_open``: fields that
    a struct does not know are kept, because the kind is others' and grows."""

    list_keys: Mapping[type, str] = dataclasses.field(default_factory=dict)
    max_items: Mapping[type, int] = dataclasses.field(default_factory=dict)
    validations: Mapping[type, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    formats: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_open: bool = False


class Generator:
    """Makes schemas under one set of traits."""

    def __init__(self, traits: Traits) -> None:
        self._traits = traits

    def of(self, kind: Any) -> Schema:
        """Return the schema of a type.

        :raises TypeError: if it has no structural schema.
        """
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return self._bounded(self.of(arguments[0]), arguments[1:])
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments)
        if origin is Literal:
            return {"type": "string", "enum": list(arguments)}
        if kind in _SCALARS:
            return dict(_SCALARS[kind])
        if origin in (list, tuple):
            return self._list(arguments[0])
        if origin is not None and issubclass(origin, Mapping):
            return self._mapping(arguments[0], arguments[1])
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(kind)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return self._dataclass(kind)
        raise TypeError(f"{kind} has no structural schema")

    def _bounded(self, schema: Schema, notes: tuple[Any, ...]) -> Schema:
        for note in notes:
            if isinstance(note, msgspec.Meta):
                bounds = {
                    "minimum": note.ge if note.gt is None else note.gt,
                    "exclusiveMinimum": None if note.gt is None else True,
                    "maximum": note.le,
                    "minLength": note.min_length,
                    "maxLength": note.max_length,
                    "description": note.description,
                }
                schema |= {name: value for name, value in bounds.items() if value is not None}
        return schema

    def _union(self, arguments: tuple[Any, ...]) -> Schema:
        """An absent value is how None is written; more than one other type is left open."""
        others = [argument for argument in arguments if argument is not types.NoneType]
        if set(others) == {int, str}:
            return {"x-kubernetes-int-or-string": True}
        return self.of(others[0]) if len(others) == 1 else {"x-kubernetes-preserve-unknown-fields": True}

    def _list(self, item: Any) -> Schema:
        schema: Schema = {"type": "array", "items": self.of(item)}
        if item in self._traits.list_keys:
            schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self._traits.list_keys[item]]}
        elif typing.get_origin(item) is Literal:
            schema["x-kubernetes-list-type"] = "set"
        else:
            schema["x-kubernetes-list-type"] = "atomic"
        if item in self._traits.max_items:
            schema["maxItems"] = self._traits.max_items[item]
        return schema

    def _mapping(self, key: Any, value: Any) -> Schema:
        if value is Any:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        if typing.get_origin(key) is Literal:
            properties = {name: self.of(value) for name in typing.get_args(key)}
            return self._opened({"type": "object", "properties": properties})
        # Atomic: who applies the map owns it whole, and managedFields name it once and not each key.
        return {"type": "object", "additionalProperties": self.of(value), "x-kubernetes-map-type": "atomic"}

    def _struct(self, kind: type[msgspec.Struct]) -> Schema:
        hints = typing.get_type_hints(kind, include_extras=True)
        properties: Schema = {}
        required = []
        for field in msgspec.structs.fields(kind):
            properties[field.encode_name] = self._formatted(field.encode_name, self.of(hints[field.name]))
            if field.required:
                required.append(field.encode_name)
        return self._object(kind, properties, required)

    def _dataclass(self, kind: type) -> Schema:
        hints = typing.get_type_hints(kind)
        defaults = {field.name: field for field in dataclasses.fields(kind)}
        properties: Schema = {}
        required = []
        for name, (field_name, key) in rules.keys(kind).items():
            hint = hints[field_name]
            field = defaults[field_name]
            schema = self.of(hint) | {"description": _described(key, field.default)}
            if types.NoneType in typing.get_args(hint):
                schema["nullable"] = True
            if key.minimum is not None:
                schema["minimum"] = key.minimum
            if key.above is not None:
                schema |= {"minimum": key.above, "exclusiveMinimum": True}
            if key.maximum is not None:
                schema["maximum"] = key.maximum
            properties[name] = schema
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                required.append(name)
        return self._object(kind, properties, required)

    def _opened(self, schema: Schema) -> Schema:
        if self._traits.is_open:
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return schema

    def _formatted(self, name: str, schema: Schema) -> Schema:
        return schema | {"format": self._traits.formats[name]} if name in self._traits.formats else schema

    def _object(self, kind: type, properties: Schema, required: list[str]) -> Schema:
        schema: Schema = {"type": "object", "properties": properties}
        if kind.__doc__:
            schema["description"] = " ".join(kind.__doc__.split())
        if required:
            schema["required"] = required
        self._opened(schema)
        if kind in self._traits.validations:
            schema["x-kubernetes-validations"] = validations(self._traits.validations[kind])
        return schema


_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    Any: {"x-kubernetes-preserve-unknown-fields": True},
}


def validations(checks: Mapping[str, str]) -> list[Schema]:
    """Return CEL rules with their messages; an API server without CEL drops them."""
    return [{"rule": rule, "message": message} for rule, message in checks.items()]


def _described(key: rules.Key, default: Any) -> str:
    unit = f" Unit: {key.unit}." if key.unit else ""
    if not key.reason:
        return key.doc + unit
    return f"{key.doc}{unit} In the preset `default`: {'null' if default is None else default} ({key.reason})."
