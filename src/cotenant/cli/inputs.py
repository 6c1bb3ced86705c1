"""Files that a person gives to a command: read once, with one line that says what is wrong."""

import pathlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from cotenant.units import errors
from cotenant.units.malformed import BAD_VALUES, MALFORMED, yaml_problem

if TYPE_CHECKING:
    from cotenant.model.policy import NodeSlo


class BadInput(errors.CotenantError):
    """An input file cannot be read."""


def read_slo(path: pathlib.Path) -> "NodeSlo":
    """Return the policy in a file; what is wrong with single fields, and what is not applied, goes to stderr.

    :raises BadInput: if the file cannot be read, or is no object in YAML or JSON.
    """
    from cotenant.act import slo_fields
    from cotenant.model import policy

    value = read_object(path, wanted="a NodeSLO")
    slo, complaints = policy.decode(value, str(path))
    for complaint in complaints:
        sys.stderr.write(f"{complaint}\n")
    for field, reason in slo_fields.refused(value):
        sys.stderr.write(f"{field}: not applied: {reason}\n")
    return slo


def read(path: pathlib.Path, wanted: str) -> bytes:
    """Return the content of a file.

    :raises BadInput: naming what is wanted, if it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give {wanted}") from None


def read_object(path: pathlib.Path, *kinds: str, wanted: str = "") -> Mapping[str, Any]:
    """Return the first object in a YAML or JSON file; one that does not say its kind is taken for what is wanted.

    :raises BadInput: if the file cannot be read, there is none, or it is of none of these kinds.
    """
    wanted = wanted or f"a {' or '.join(kinds) or 'Kubernetes object'}"
    text = read(path, wanted)
    try:
        value = msgspec.json.decode(text)
    except MALFORMED:
        import yaml

        from cotenant.api import manifest

        try:
            value = next(manifest.documents(text), None)
        except (yaml.YAMLError, *BAD_VALUES) as error:
            raise BadInput(f"{path}: neither JSON nor YAML: {yaml_problem(error)}") from None
    if not isinstance(value, Mapping):
        raise BadInput(f"{path}: not a Kubernetes object in YAML or JSON; give {wanted}")
    if kinds and (found := value.get("kind", kinds[0])) not in kinds:
        raise BadInput(f"{path}: its kind is {found}; give {wanted}")
    return value
