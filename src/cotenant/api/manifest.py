"""Objects as people write them, in YAML, read as the API server does."""

from collections.abc import Iterator
from typing import Any

import yaml

_TIME = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """Leaves a time the text that it is in every object; YAML by itself would make a date of one without quotes."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIME]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def documents(text: str | bytes) -> Iterator[Any]:
    """Yield the documents of a text.

    :raises YAMLError: if it is no YAML.
    """
    yield from yaml.load_all(text, _Loader)
