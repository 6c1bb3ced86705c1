"""Every field of a NodeSLO: which strategy follows it, or why it is refused."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cotenant.act import planning
from cotenant.act.registry import STRATEGIES
from cotenant.model import policy

_CLASS = "spec.resourceQOSStrategy"
_NO_DIRECTORY = "online classes have no directory of their own; use the pod annotation koordinator.sh/blkioQOS"
_ONLINE_NETWORK = "openEuler's network QoS bounds offline traffic alone; other kernels have none"
_RECEIVED = "openEuler's network QoS bounds what is sent, not what is received; other kernels have none"
_ROOT = "the root group has nothing of this kind; only blkioQOS applies there"

REFUSED: Mapping[str, str] = {
    f"{_CLASS}.policies.netQOSPolicy": (
        "tc and Terway are the network plug-in's; openEuler's network QoS is used where it is, whatever this says"
    ),
    **{
        f"{_CLASS}.{name}Class.cpuQOS.schedIdle": (
            "cpu.idle on a QoS directory keeps the kubelet from starting; offline pods get it one by one instead"
        )
        for name in ("lsr", "ls", "be", "system")
    },
    f"{_CLASS}.systemClass.cpuQOS.coreExpeller": "system tasks share cores with everybody",
    **{f"{_CLASS}.{name}Class.blkioQOS": _NO_DIRECTORY for name in ("lsr", "ls", "system")},
    f"{_CLASS}.systemClass.resctrlQOS": "system tasks stay in the default group, whose limits are the hardware's",
    **{f"{_CLASS}.{name}Class.networkQOS": _ONLINE_NETWORK for name in ("lsr", "ls", "system")},
    **{f"{_CLASS}.beClass.networkQOS.{field}": _RECEIVED for field in ("ingressRequest", "ingressLimit")},
    **{f"{_CLASS}.cgroupRoot.{kind}": _ROOT for kind in ("cpuQOS", "memoryQOS", "resctrlQOS", "networkQOS")},
    "spec.extensions": "extensions are other programs' and mean nothing here",
}
"""By prefix of the field's path."""


def applied_by(field: str) -> tuple[str, ...]:
    """Return the strategies that follow a field."""
    assert planning.MODULES  # importing them registers the strategies
    return tuple(s.name for s in STRATEGIES.values() if any(_covers(own, field) for own in s.fields))


def refusal(field: str) -> str | None:
    """Return why a field is not applied, or None when it is."""
    return next((reason for prefix, reason in REFUSED.items() if _covers(prefix, field)), None)


def refused(slo: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a NodeSLO object that are set to something and not applied, with the reason."""
    for field in policy.fields():
        reason = refusal(field)
        if reason is not None and _is_set(slo, field.split(".")):
            yield field, reason


def _covers(prefix: str, field: str) -> bool:
    return field == prefix or field.startswith((f"{prefix}.", f"{prefix}[]"))


def _is_set(value: Any, path: Sequence[str]) -> bool:
    """Return whether something other than "off" (0, also as a quantity, or -1 for no limit) is at a path.

    ``name[]`` looks into every item of a list.
    """
    if not path:
        return value not in (None, False, 0, "0", -1, "", [], {})
    key = path[0].removesuffix("[]")
    inner = value.get(key) if isinstance(value, Mapping) else None
    if path[0].endswith("[]"):
        return isinstance(inner, list) and any(_is_set(item, path[1:]) for item in inner)
    return inner is not None and _is_set(inner, path[1:])
