"""Who has which CPUs on this node: the kubelet's policy and what it pinned, and what LSE and LSR pods get from us."""

import logging
import math
import os
import threading
from collections.abc import Mapping

import msgspec

from cotenant.act import cpu_pool, whole_cores
from cotenant.act.whole_cores import Placement
from cotenant.kernel import cpu_manager, paths
from cotenant.kernel.errors import KernelError
from cotenant.model.node import Topology
from cotenant.model.snapshot import Snapshot
from cotenant.node import errors
from cotenant.node.kubelet import Kubelet, KubeletConfiguration
from cotenant.units import cpulist, quantity
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

CONFIGURATION_SECONDS = 60.0
STATIC = "static"
UNKNOWN = "the kubelet's CPU policy is not known: neither its state (--kubelet-dir) nor /configz can be read"


class Assignments:
    """What the kubelet says, as last heard, and what was given from here. ``give`` False: nobody gets any."""

    def __init__(
        self,
        root: paths.Root,
        kubelet: Kubelet,
        clock: Clock,
        directory: str | os.PathLike[str] = cpu_manager.KUBELET_DIRECTORY,
        give: bool = True,
    ) -> None:
        self._root = root
        self._kubelet = kubelet
        self._clock = clock
        self._directory = directory
        self._give = give
        self._asked_at = -math.inf
        self._refreshing = threading.Lock()
        self._held: Mapping[str, frozenset[int]] | None = None
        self._state: cpu_manager.CpuManagerState | None = None
        self.configuration: KubeletConfiguration | None = None
        """None: the kubelet has never said."""
        self.placement = Placement()
        self.problem = ""

    def refresh(self) -> None:
        """Look at the kubelet's state, and now and then ask it for its configuration. What fails stays as it was.

        Pods are asked for from two threads; the second one finds the first at it and goes on with what is known.
        """
        if not self._refreshing.acquire(blocking=False):
            return
        try:
            self._refresh()
        finally:
            self._refreshing.release()

    def _refresh(self) -> None:
        self.problem = "" if self.policy is not None or self._asked_at == -math.inf else UNKNOWN
        try:
            self._state = cpu_manager.read(self._root, self._directory)
        except KernelError as error:
            self.problem = str(error)
        now = self._clock.monotonic()
        if now - self._asked_at < CONFIGURATION_SECONDS:
            return
        self._asked_at = now
        try:
            self.configuration = self._kubelet.configuration()
        except errors.KubeletUnreachable as error:
            _log.info("%s", error)
        if self.policy is None:
            self.problem = UNKNOWN

    @property
    def policy(self) -> str | None:
        """The kubelet's CPU policy, by its state before its configuration; None while nobody has said."""
        if self._state is not None and self._state.policy:
            return self._state.policy
        return self.configuration.cpu_manager_policy if self.configuration is not None else None

    def reserved(self, cpus: Topology) -> frozenset[int]:
        """Return the CPUs that the kubelet's static policy keeps for itself and the system."""
        configuration = self.configuration
        if configuration is None or self.policy != STATIC:
            return cpu_pool.NONE
        try:
            listed = cpulist.parse(configuration.reserved_system_cpus)
            count = math.ceil(configuration.reserved_millicores() / 1000)
        except (cpulist.BadCpuList, quantity.BadQuantity) as error:
            self.problem = f"the kubelet's configuration: {error}"
            return cpu_pool.NONE
        # Without a list the kubelet takes as many as are reserved, in the order of sockets and cores.
        in_order = sorted(cpus.cpus, key=lambda cpu: (cpu.socket, cpu.core, cpu.id))
        return listed or frozenset(cpu.id for cpu in in_order[:count])

    def topology(self, cpus: Topology) -> Topology:
        """Return the CPUs with what the kubelet has done with them."""
        pinned = dict(self._state.pinned) if self._state is not None else {}
        static = self.policy == STATIC
        return msgspec.structs.replace(
            cpus,
            kubelet_policy="static" if static else "none",
            kubelet_reserved=self.reserved(cpus),
            kubelet_pinned=frozenset().union(*pinned.values()),
            kubelet_pods=pinned,
            stated=static,
        )

    def assign(self, seen: Snapshot) -> Snapshot:
        """Return the snapshot in which LSE and LSR pods that nobody gave CPUs have theirs from here."""
        if not self._give:
            self.placement = whole_cores.switched_off(seen)
            return seen
        held = whole_cores.in_force(seen) if self._held is None else self._held
        before = self.placement
        self.placement = whole_cores.place(seen, held)
        self._held = self.placement.given
        for key, reason in self.placement.degraded.items():
            if before.degraded.get(key) != reason:
                _log.warning("pod %s is served as LS: %s", key, reason)
        return whole_cores.applied(seen, self.placement.given)

    def rest(self) -> None:
        """Give nothing for now: this node's groups are not ours to write."""
        self.placement = Placement()
