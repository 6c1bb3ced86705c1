"""``ClusterColocationProfile`` (``config.koordinator.sh/v1alpha1``): what is done to pods that its selectors choose."""

from typing import Any

import msgspec

from cotenant.api.objects import ObjectMeta
from cotenant.api.selector import LabelSelector

GROUP = "config.koordinator.sh"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "ClusterColocationProfile"
PLURAL = "clustercolocationprofiles"


class ProfileSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Which pods, and what is done to them. Profiles are applied in the order of their names: a later one wins."""

    namespace_selector: LabelSelector | None = None
    """Labels of the pod's namespace. Without one: every namespace."""
    selector: LabelSelector | None = None
    """Labels of the pod. Without one: every pod."""
    probability: int | str | None = None
    """Of the chosen pods, how many percent: ``30`` or ``"30%"``. Without one: all."""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    label_keys_mapping: dict[str, str] | None = None
    """From key to key: the label of the second gets the value that the label of the first has."""
    annotation_keys_mapping: dict[str, str] | None = None
    label_suffixes: dict[str, str] | None = None
    """From key to what is appended to the value of that label, where the pod has it."""
    scheduler_name: str = ""
    qos_class: str = ""
    priority_class_name: str = ""
    koordinator_priority: int | None = None
    """The priority within the band."""
    patch: Any = None
    """A strategic merge patch of the pod."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One profile."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ProfileSpec = ProfileSpec()
