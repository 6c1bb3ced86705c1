"""The few instructions of a Containerfile from scratch, as the configuration of an OCI image."""

import dataclasses
import json
import shlex


class BadContainerfile(Exception):
    """An instruction that is not understood; the text names its line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Description:
    """What a Containerfile says: which layers, and how the image is run."""

    layers: tuple[str, ...]
    config: dict[str, object]


def parse(text: str) -> Description:
    """Return what the instructions say.

    :raises BadContainerfile: at any instruction but FROM scratch, ADD, ENV, LABEL, USER, ENTRYPOINT and CMD.
    """
    layers: list[str] = []
    config: dict[str, object] = {}
    for number, line in enumerate(text.splitlines(), 1):
        word, _, rest = line.strip().partition(" ")
        if not word or word.startswith("#"):
            continue
        try:
            match word.upper():
                case "FROM" if rest.strip() == "scratch":
                    pass
                case "ADD":
                    *files, target = rest.split()
                    if target != "/" or not files:
                        raise ValueError("archives are added at /")
                    layers += files
                case "ENV":
                    config["Env"] = [_pair(pair) for pair in shlex.split(rest)]
                case "LABEL":
                    config["Labels"] = dict(_pair(pair).split("=", 1) for pair in shlex.split(rest))
                case "USER":
                    config["User"] = rest.strip()
                case "ENTRYPOINT" | "CMD":
                    config[word.capitalize()] = json.loads(rest)
                case _:
                    raise ValueError("not understood")
        except ValueError as error:
            raise BadContainerfile(f"line {number}: {line.strip()}: {error}") from None
    if not layers:
        raise BadContainerfile("no ADD: the image would be empty")
    return Description(tuple(layers), config)


def _pair(text: str) -> str:
    if "=" not in text:
        raise ValueError(f"{text}: write NAME=VALUE")
    return text
