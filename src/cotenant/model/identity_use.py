"""Whose pods would notice that identity 1 has no equal here: to be looked at before the interface is put to use."""

from collections.abc import Sequence

import msgspec

from cotenant.model.pod import Pod


class IdentityUse(msgspec.Struct, frozen=True):
    """Pods by ``namespace/name``. ``identity_1``: their cpuQOS annotation asks for identity 1 and is in force.

    ``without_enable``: their cpuQOS annotation lacks ``enable`` and is not honoured. Koordinator takes those pods as
    identity 0; here they keep the identity of their class.
    """

    identity_1: list[str]
    without_enable: list[str]


def of(pods: Sequence[Pod]) -> IdentityUse:
    """Return who uses identity 1, and apart, whose annotation is not in force."""
    identity_1, without_enable = [], []
    for pod in pods:
        if not pod.cpu_qos:
            continue
        if "enable" not in pod.cpu_qos:
            without_enable.append(pod.key)
        elif pod.cpu_qos["enable"] and pod.cpu_qos.get("groupIdentity") == 1:
            identity_1.append(pod.key)
    return IdentityUse(sorted(identity_1), sorted(without_enable))
