"""What the cluster asks of this node: its Node object and its NodeSLO, followed by two watches of one object each."""

import logging
from collections.abc import Mapping
from typing import Any, get_args

from cotenant.act import slo_fields
from cotenant.api import unstructured
from cotenant.api.marks import MODE_LABEL
from cotenant.api.report import Mode, RefusedField
from cotenant.api.rollout import SLO_REVISION
from cotenant.kube.backoff import OPTIONAL_KIND_SECONDS, Backoff
from cotenant.kube.client import NODE_SLOS, NODES, Client
from cotenant.kube.informer import Informer, One
from cotenant.model import node as nodes
from cotenant.model import policy

_log = logging.getLogger(__name__)

MODES: tuple[Mode, ...] = get_args(Mode)


class Policy:
    """The newest that was valid. What cannot be read keeps the old, and is named in :attr:`problems`."""

    def __init__(self, name: str, default_mode: Mode, *, follows_node: bool = True) -> None:
        self._name = name
        self._default_mode = default_mode
        self._node: Mapping[str, Any] | None = None
        self._follows_node = follows_node
        self.mode: Mode = default_mode
        self.mode_known = not follows_node
        """Whether the mode is what somebody wants: not before the Node was seen, nor by a label that says nothing."""
        self.slo: policy.NodeSlo | None = None
        self.slo_revision: str | None = None
        """What the newest NodeSLO was made from, where the manager says."""
        self.refused: tuple[RefusedField, ...] = ()
        self.problems: dict[str, str] = {}

    def take_node(self, value: Mapping[str, Any] | None) -> None:
        """Take the Node object; None when it is gone, which changes nothing but the mode."""
        self._node = value
        wanted = unstructured.labels(value).get(MODE_LABEL)
        self.problems.pop("mode", None)
        self.mode = next((mode for mode in MODES if mode == wanted), self._default_mode)
        self.mode_known = not self._follows_node or (value is not None and wanted in (None, *MODES))
        if wanted is not None and wanted not in MODES:
            self.problems["mode"] = f"label {MODE_LABEL}={wanted}: write {', '.join(MODES)}"

    @property
    def object(self) -> Mapping[str, Any] | None:
        """The Node object as it last came, or None before it did."""
        return self._node

    def take_slo(self, value: Mapping[str, Any] | None) -> None:
        """Take the NodeSLO; None when it is gone: then nothing is asked, and what was written is released."""
        self.problems.pop("slo", None)
        if value is None:
            self.slo, self.slo_revision, self.refused = None, None, ()
            return
        try:
            self.slo, complaints = policy.decode(value, f"nodeslo/{self._name}")
        except policy.BadPolicy as error:
            self.problems["slo"] = str(error)
            _log.error("%s; the last valid policy stays", error)
            return
        self.slo_revision = unstructured.annotations(value).get(SLO_REVISION)
        self.refused = tuple(RefusedField(field=field, reason=why) for field, why in slo_fields.refused(value))
        if complaints:
            self.problems["slo"] = "; ".join(complaints)

    def node(self, fallback: nodes.Node) -> nodes.Node:
        """Return the node's capacity and reservations; what the object does not say is the fallback's."""
        if self._node is None:
            return fallback
        try:
            found = nodes.decode_node(self._node, f"node/{self._name}", fallback)
        except nodes.BadNode as error:
            self.problems["node"] = str(error)
            return fallback
        self.problems.pop("node", None)
        if found.problems:
            self.problems["node"] = "; ".join(found.problems)
        return found


def informers(client: Client, name: str, kept: Policy) -> tuple[Informer[dict[str, Any]], ...]:
    """Return the informers that keep a policy true: each lists and watches a single object."""
    chosen, absent = f"metadata.name={name}", Backoff(*OPTIONAL_KIND_SECONDS)
    return (
        Informer(client, NODES, dict[str, Any], One(name, kept.take_node), fields=chosen),
        Informer(client, NODE_SLOS, dict[str, Any], One(name, kept.take_slo), absent=absent, fields=chosen),
    )
