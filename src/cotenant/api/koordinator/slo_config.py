"""Koordinator's ConfigMap ``slo-controller-config``: a strategy for the cluster under each key, and others for the
nodes that a selector chooses. The first that matches a node is laid over the cluster's, which lies over the defaults.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

from cotenant.api import selector
from cotenant.api.errors import ApiError
from cotenant.api.koordinator import colocation, strategies
from cotenant.model import policy, policy_values
from cotenant.units.malformed import MALFORMED, problem

Key = Literal[
    "colocation-config", "resource-threshold-config", "resource-qos-config", "cpu-burst-config", "system-config",
    "host-application-config", "cpu-normalization-config", "resource-amplification-config",
]  # fmt: skip
KEYS: tuple[Key, ...] = get_args(Key)


class BadSection(ApiError):
    """What is under one key cannot be used; the text names key, place, value and what is wrong with it."""


class HostApplications(msgspec.Struct, frozen=True, kw_only=True):
    """``host-application-config``: work outside Kubernetes. A node's list stands in place of the cluster's."""

    applications: list[policy.HostApplication] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """How the JSON under a key is written. ``flat``: the cluster's strategy is the top level itself."""

    kind: type[msgspec.Struct]
    default: Mapping[str, Any]
    checks: strategies.Checks
    flat: bool = False
    inherits: bool = True
    normal: Callable[[Mapping[str, Any], str], Mapping[str, Any]] = lambda said, place: said
    """Returns what was said in the words in which it goes out; raises ValueError that says what is wrong."""

    @property
    def nodes(self) -> str:
        return "nodeConfigs" if self.flat else "nodeStrategies"


_POLICY = strategies.Checks(
    policy_values.RANGES,
    policy_values.CHOICES,
    policy_values.ORDERED,
    policy_values.QUANTITIES,
    policy_values.SHARES,
)
_FORMS: Mapping[Key, _Form] = {
    "colocation-config": _Form(
        colocation.ColocationStrategy,
        colocation.DEFAULT_COLOCATION,
        strategies.Checks(colocation.COLOCATION_RANGES, colocation.COLOCATION_CHOICES),
        flat=True,
        normal=colocation.with_go_durations,
    ),
    "resource-threshold-config": _Form(
        policy.ThresholdStrategy, policy.DEFAULT_SPEC["resourceUsedThresholdWithBE"], _POLICY
    ),
    "resource-qos-config": _Form(policy.QosStrategy, policy.DEFAULT_SPEC["resourceQOSStrategy"], _POLICY),
    "cpu-burst-config": _Form(policy.CpuBurstStrategy, policy.DEFAULT_SPEC["cpuBurstStrategy"], _POLICY),
    "system-config": _Form(policy.SystemStrategy, policy.DEFAULT_SPEC["systemStrategy"], _POLICY),
    "host-application-config": _Form(HostApplications, {}, _POLICY, flat=True, inherits=False),
    "cpu-normalization-config": _Form(
        colocation.NormalizationStrategy,
        {"enable": False},
        strategies.Checks(colocation.NORMALIZATION_RANGES),
        flat=True,
    ),
    "resource-amplification-config": _Form(
        colocation.AmplificationStrategy,
        {"enable": False},
        strategies.Checks(colocation.AMPLIFICATION_RANGES),
        flat=True,
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class NodeStrategy:
    """A strategy for some nodes, laid over the cluster's already."""

    name: str
    selector: selector.Selector | None
    """None: there is none, which chooses no node."""
    strategy: Mapping[str, Any]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether it is for a node with these labels."""
        return self.selector is not None and self.selector.matches(labels)


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """What is under one key."""

    cluster: Mapping[str, Any]
    nodes: tuple[NodeStrategy, ...] = ()
    unknown: tuple[str, ...] = ()
    """Places of fields that nobody knows."""

    def of(self, labels: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the strategy of a node with these labels."""
        return next((one.strategy for one in self.nodes if one.matches(labels)), self.cluster)

    def matching(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of all strategies that select a node; the first of them is in force."""
        return tuple(one.name for one in self.nodes if one.matches(labels))


@functools.cache
def default_section(key: Key) -> Section:
    """Return what holds where the ConfigMap has no such key."""
    return Section(_FORMS[key].default)


def decode(key: Key, text: str) -> Section:
    """Return what is under a key, merged over the defaults.

    :raises BadSection: if it is malformed, or a value in it is out of its range.
    """
    form = _FORMS[key]
    try:
        value = msgspec.json.decode(text)
    except MALFORMED as error:
        raise BadSection(f"{key}: {_excerpt(text)} is malformed JSON: {error}") from None
    if value is None:
        return default_section(key)
    if not isinstance(value, dict):
        raise BadSection(f"{key}: {_excerpt(text)} is not an object")
    value = _spelled(value, ("clusterStrategy", form.nodes))
    unknown: list[str] = []
    if form.flat:
        given: Any = {name: inner for name, inner in value.items() if name != form.nodes}
        cluster = _strategy(key, form, given, form.default, "", unknown)
    else:
        unknown += [name for name in value if name not in ("clusterStrategy", form.nodes)]
        cluster = _strategy(key, form, value.get("clusterStrategy"), form.default, "clusterStrategy", unknown)
    nodes = value.get(form.nodes)
    if not isinstance(nodes, list | None):
        raise BadSection(f"{key}: {form.nodes} is not a list")
    found = [_node(key, form, one, cluster, index, unknown) for index, one in enumerate(nodes or ())]
    return Section(cluster, tuple(found), tuple(unknown))


def _node(
    key: Key, form: _Form, given: Any, cluster: Mapping[str, Any], index: int, unknown: list[str]
) -> NodeStrategy:
    place = f"{form.nodes}[{index}]"
    if not isinstance(given, dict):
        raise BadSection(f"{key}: {place} is not an object")
    given = _spelled(given, ("name", "nodeSelector"))
    name = given.get("name") or place
    if not isinstance(name, str):
        raise BadSection(f"{key}: {place}.name is {name!r}: give text")
    chosen = _selector(given.get("nodeSelector"), f"{key}: {place}.nodeSelector")
    rest = {field: value for field, value in given.items() if field not in ("name", "nodeSelector")}
    strategy = _strategy(key, form, rest, cluster if form.inherits else {}, place, unknown)
    return NodeStrategy(name, chosen, strategy)


def _selector(given: Any, place: str) -> selector.Selector | None:
    if given is None:
        return None
    try:
        return selector.compiled(msgspec.convert(given, selector.LabelSelector), place)
    except selector.BadSelector as error:
        raise BadSection(str(error)) from None
    except MALFORMED as error:
        raise BadSection(f"{place}: {problem(error, given, selector.LabelSelector)}") from None


def _strategy(
    key: Key, form: _Form, given: Any, base: Mapping[str, Any], place: str, unknown: list[str]
) -> Mapping[str, Any]:
    if given is None:
        return base
    said = strategies.known(given, form.kind, unknown, place)
    merged = strategies.merge(base, said, form.kind)
    for value in (said, merged):  # the first names what was written; the second what does not go with the rest
        wrong = next(strategies.complaints(value, form.kind, form.checks, place), None)
        if wrong is not None:
            raise BadSection(f"{key}: {wrong}")
    try:
        return dict(form.normal(merged, place))
    except ValueError as error:
        raise BadSection(f"{key}: {error}") from None


def _spelled(value: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return an object with these of its fields spelled like this; to Go, case does not matter."""
    spelled = {name.lower(): name for name in names}
    return {spelled.get(field.lower(), field): inner for field, inner in value.items()}


def _excerpt(text: str) -> str:
    short = " ".join(text.split())
    return repr(short if len(short) <= 60 else f"{short[:59]}…")


@dataclasses.dataclass(frozen=True, slots=True)
class SloConfig:
    """The whole ConfigMap, as far as it is in force."""

    texts: Mapping[Key, str] = dataclasses.field(default_factory=dict)
    """What was accepted, under each key that there is."""
    sections: Mapping[Key, Section] = dataclasses.field(default_factory=dict)

    def section(self, key: Key) -> Section:
        """Return what is in force under a key."""
        return self.sections.get(key) or default_section(key)

    def of(self, key: Key, labels: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the strategy under a key for a node with these labels."""
        return self.section(key).of(labels)

    @property
    def revision(self) -> str:
        """The name of this state: ten hexadecimal digits of what is in force."""
        content = msgspec.json.encode(dict(sorted(self.texts.items())))
        return hashlib.sha256(content).hexdigest()[:10]


def read(data: Mapping[str, str], last_good: SloConfig) -> tuple[SloConfig, dict[Key, str]]:
    """Return what a ConfigMap's data puts in force, and what is wrong by key.

    A key that cannot be used keeps what was in force before; a key that is gone goes back to the defaults.
    """
    texts: dict[Key, str] = {}
    sections: dict[Key, Section] = {}
    wrong: dict[Key, str] = {}
    for key in KEYS:
        text = data.get(key)
        if text is not None and text != last_good.texts.get(key):
            try:
                sections[key] = decode(key, text)
            except BadSection as error:
                wrong[key] = str(error)
            else:
                texts[key] = text
                continue
        if text is not None and key in last_good.texts:
            texts[key], sections[key] = last_good.texts[key], last_good.section(key)
    return SloConfig(texts, sections), wrong
