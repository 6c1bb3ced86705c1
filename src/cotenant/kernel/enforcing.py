"""One round of enforcement: look at the node, ask what should be there, write it. The loop belongs to the programs.

What to write is decided elsewhere and comes in as a function, so that this layer knows no strategy.
"""

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence

from cotenant.kernel import conflicts, executor, paths, restoration, snapshot, topology, undo
from cotenant.kernel.priority import probing
from cotenant.model.enforcement import Contest
from cotenant.model.node import Node, Topology, Usage
from cotenant.model.pod import Pod
from cotenant.model.priority import InterfaceName, PriorityInterface
from cotenant.model.snapshot import Snapshot
from cotenant.units import clock as clocks
from cotenant.units.plan import PlanItem

REPROBE_SECONDS = 30.0
"""How often interfaces, topology and other agents are looked for again: kubepods and koordlet may come later."""

Decide = Callable[[Snapshot], Sequence[PlanItem]]


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """What one round found and did. ``written`` counts files that changed; ``conflict`` names another agent."""

    items: tuple[PlanItem, ...]
    outcomes: tuple[executor.Outcome, ...]
    interface: PriorityInterface
    conflict: str = ""

    @property
    def written(self) -> int:
        return sum(outcome.state == "written" and outcome.item.op != "evict" for outcome in self.outcomes)


class Enforcer:
    """Keeps what changes rarely (priority interface, topology) and carries out one plan a round.

    While another co-location agent runs, it only observes, unless ``beside_others`` says that the operator knows.
    """

    def __init__(
        self,
        root: paths.Root,
        writer: executor.Executor,
        *,
        clock: clocks.Clock | None = None,
        interface: InterfaceName | None = None,
        beside_others: bool = False,
    ) -> None:
        self._root = root
        self._writer = writer
        self._clock = clock or clocks.SystemClock()
        self._wanted = interface
        self._beside_others = beside_others
        self._lock = threading.Lock()
        self._probed_s: float | None = None
        self._interface: PriorityInterface
        self._topology: Topology
        self._agents: tuple[conflicts.Agent, ...] = ()
        self.irreversible_writes = 0
        """Files written that the kernel does not take back."""

    def look(
        self,
        pods: Sequence[Pod],
        *,
        node: Node | None = None,
        cpus: Topology | None = None,
        usage: Usage | None = None,
        journal: Mapping[str, str | None] | None = None,
        units: snapshot.Units | None = None,
        earlier: snapshot.Earlier | None = None,
    ) -> Snapshot:
        """Return the node as it is now: the kubelet's groups of the pods, or the groups that are given."""
        self._probe()
        return snapshot.read(
            self._root,
            pods,
            self._interface,
            cpus or self._topology,
            node or topology.node(self._root, self._topology),
            usage,
            self.journalled() if journal is None else journal,
            units,
            earlier,
        )

    @property
    def rewrites(self) -> int:
        """How often somebody else replaced a value of ours."""
        return self._writer.rewrites.total

    @property
    def lost_records(self) -> int:
        """Records of the journal that it had no room for, or that cannot be read."""
        return self._writer.journal.lost_marks + self._writer.journal.unreadable_lines

    def journalled(self) -> dict[str, str | None]:
        """Return the files that hold something because of us, with their content before us."""
        with self._lock:
            return self._writer.journalled()

    @property
    def topology(self) -> Topology:
        """The CPUs as they were last looked for."""
        self._probe()
        return self._topology

    @property
    def conflict(self) -> str:
        """The other agents that keep us from writing, as text; empty when there are none."""
        return "" if self._beside_others else ", ".join(agent.name for agent in self._agents)

    def contested(self) -> list[Contest]:
        """Return the files that somebody keeps writing over."""
        with self._lock:
            return self._writer.contested()

    def write(self, items: Sequence[PlanItem]) -> list[executor.Outcome]:
        """Carry out a plan from any thread; nothing is done while another agent is there."""
        if self.conflict:
            return []
        with self._lock:
            return self._apply(items)

    def restore(self) -> restoration.Restoration:
        """Put back everything that the journal shows, while no other thread writes.

        :raises Locked: if another process keeps writing.
        """
        with self._lock:
            return undo.restore(self._writer)

    def carry_out(self, seen: Snapshot, decide: Decide) -> Round:
        """Decide on a snapshot and write the difference; observe only while another agent is there.

        No other thread writes between the decision and the write.
        """
        with self._lock:
            items = tuple(decide(seen))
            outcomes = [] if self.conflict else self._apply(items)
        return Round(items, tuple(outcomes), seen.priority, self.conflict)

    def _apply(self, items: Sequence[PlanItem]) -> list[executor.Outcome]:
        outcomes = self._writer.apply(items)
        written = [outcome.item for outcome in outcomes if outcome.state == "written"]
        self.irreversible_writes += sum(item.irreversible for item in written)
        return outcomes

    def _probe(self) -> None:
        now = self._clock.monotonic()
        if self._probed_s is not None and now - self._probed_s < REPROBE_SECONDS:
            if self._agents and not conflicts.remaining(self._root, self._agents):
                self._agents = conflicts.agents(self._root)  # what it leaves behind is ours from the moment it is gone
            return
        self._probed_s = now
        self._interface = (
            probing.choose(self._root, self._wanted) if self._wanted is not None else probing.probe(self._root)
        )
        self._topology = topology.read(self._root)
        self._agents = conflicts.agents(self._root)
