"""``ColocationRollout``: one change to the nodes of a cluster, made stage by stage, watched, and taken back by itself.

The docstrings and descriptions below are those of the CRD. What a field leaves out is its default here; every number
that could not be observed is absent from the status.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

import msgspec

from cotenant.api import report
from cotenant.api.marks import MODE_LABEL
from cotenant.api.report import Condition, Mode, Ratio

KIND = "ColocationRollout"
PLURAL = "colocationrollouts"
SLO_REVISION = "cotenant.io/slo-revision"
"""Label of a Node: the revision of the SLO configuration that its NodeSLO is made from, instead of the active one.
Annotation of a NodeSLO: the revision that it was made from."""
RULES_LABEL = "cotenant.io/rules-rollout"
"""On a Node: the rollout whose rules judge it."""
HOLD_ANNOTATION = "cotenant.io/rollout"
"""On a Node: which rollout changed it, what it set and what was there before."""

Phase = Literal["Pending", "Progressing", "Soaking", "Paused", "RollingBack", "RolledBack", "Finishing", "Completed"]
PHASES: tuple[Phase, ...] = get_args(Phase)
TERMINAL: tuple[Phase, ...] = ("RolledBack", "Completed")
GateName = Literal[
    "interferenceLevel", "onlineLatency", "evictions", "restoreFailures", "agentHealth", "irreversibleWrites"
]
GateState = Literal["passing", "failing", "unknown", "idle"]
OnStop = Literal["rollback", "pause"]

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=30 * 86400)]


class RulesChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rules of detection: a revision of a DetectionRuleConfig, as `cotenant config history --cluster` lists them."""

    config: Annotated[str, msgspec.Meta(max_length=253, description="Name of the DetectionRuleConfig.")] = "default"
    revision: Annotated[int, msgspec.Meta(ge=1, description="The revision to bring to the nodes.")]


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changes on each node; at least one of these. It cannot be edited: make another rollout."""

    mode: Annotated[
        Mode | None,
        msgspec.Meta(description="What the node's agent does: observe, dry-run or enforce (label cotenant.io/mode)."),
    ] = None
    node_slo: Annotated[
        Name | None,
        msgspec.Meta(description="Revision of the SLO configuration that the nodes' NodeSLO is made from."),
    ] = msgspec.field(default=None, name="nodeSLO")
    rules: RulesChange | None = None


class Stage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Nodes that are changed together. A node belongs to the first stage that takes it in."""

    name: Name
    node_selector: Annotated[
        dict[str, str], msgspec.Meta(description="Labels that a node must have; all nodes by default.")
    ] = {}
    priority_interfaces: Annotated[
        list[str],
        msgspec.Meta(description="Only nodes whose agent found one of these priority interfaces; any by default."),
    ] = []
    share: Annotated[
        float,
        msgspec.Meta(
            gt=0,
            le=1,
            description="Share of those nodes reached by the end of this stage, those of earlier stages included; of"
            " each priority interface apart, at least one node. Chosen by a hash of the node's name, so that it stays.",
        ),
    ] = 1.0
    soak_seconds: Annotated[
        Seconds,
        msgspec.Meta(description="How long all gates must pass, watched, after the stage is changed. Default 600."),
    ] = 600
    optional: Annotated[
        bool, msgspec.Meta(description="Whether the stage is passed when it has no node. Default false: it waits.")
    ] = False


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a node's own check must say, in its report, before it is changed."""

    require: Annotated[
        list[str],
        msgspec.Meta(description="Features that must be available, by the names of `cotenant check`."),
    ] = []
    max_left_out_share: Annotated[
        Ratio,
        msgspec.Meta(
            description="Share of a stage's nodes that may be left out: refused by their check, without a report, or"
            " changed by somebody else. Default 0.1."
        ),
    ] = 0.1
    max_unconfirmed: Annotated[
        int,
        msgspec.Meta(
            ge=1, le=1000, description="How many nodes at most are changed and have not confirmed it yet. Default 10."
        ),
    ] = 10


class LevelGate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Interference on the nodes that were changed."""

    max: Annotated[Ratio | None, msgspec.Meta(description="Level that a node may have.")] = None
    max_share: Annotated[Ratio, msgspec.Meta(description="Share of nodes that may be above it. Default 0.")] = 0.0
    max_increase: Annotated[
        Ratio | None,
        msgspec.Meta(description="How much the mean level may rise over the levels from before the change."),
    ] = None


class LatencyGate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """P99 latency of each online service over its processes on the nodes of the current stage."""

    services: Annotated[
        list[str],
        msgspec.Meta(
            description="Services (namespace/name) that must be known and are held to this; by default every service"
            " of which something is known, at least one."
        ),
    ] = []
    max_increase_ratio: (
        Annotated[
            float,
            msgspec.Meta(
                ge=0, le=100, description="Largest rise over the P99 from before the stage's change: 0.1 is a tenth."
            ),
        ]
        | None
    ) = None
    max_seconds: Annotated[float, msgspec.Meta(ge=0, description="Largest P99.")] | None = None


class EvictionGate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Pods evicted by the agents of the nodes that were changed, since they were."""

    max_per_node_hour: Annotated[
        float,
        msgspec.Meta(ge=0, description="Evictions for each node and hour; less than one node-hour counts as one."),
    ]


class CountGate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that agents count, summed over the nodes that were changed, since they were."""

    max: Annotated[int, msgspec.Meta(ge=0, description="How often it may happen.")] = 0


class HealthGate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Agents that send samples, have taken the change, act without failing rounds, and are alone on their node."""

    min_share: Annotated[Ratio, msgspec.Meta(description="Share of the changed nodes. Default 0.95.")] = 0.95


class IrreversibleGate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Writes that the kernel does not take back for the life of a pod's group (openEuler's level -1)."""

    allowed: Annotated[bool, msgspec.Meta(description="Whether they are allowed on every node. Default false.")] = False
    allowed_interfaces: Annotated[
        list[str], msgspec.Meta(description="Priority interfaces on whose nodes they are allowed.")
    ] = []


class Gates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What must hold on the changed nodes, all the time. `agentHealth`, `restoreFailures` and `irreversibleWrites` always apply, by their defaults when left out."""  # noqa: E501

    interference_level: LevelGate | None = None
    online_latency: LatencyGate | None = None
    evictions: EvictionGate | None = None
    restore_failures: CountGate = CountGate()
    agent_health: HealthGate = HealthGate()
    irreversible_writes: IrreversibleGate = IrreversibleGate()


class Stopping(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """When the rollout stops by itself, and what it does then."""

    fail_seconds: Annotated[
        Seconds, msgspec.Meta(description="How long a gate must fail, without a break, before it stops. Default 30.")
    ] = 30
    on_failure: Annotated[OnStop, msgspec.Meta(description="What a failing gate leads to. Default rollback.")] = (
        "rollback"
    )
    unknown_seconds: Annotated[
        Seconds,
        msgspec.Meta(
            description="How long it waits for a gate that cannot be told, or a stage that cannot be filled, before it"
            " stops. Default 600."
        ),
    ] = 600
    on_unknown: Annotated[OnStop, msgspec.Meta(description="What that leads to. Default pause.")] = "pause"
    max_unknown_share: Annotated[
        Ratio,
        msgspec.Meta(description="Share of the changed nodes that a gate may know nothing of. Default 0.1."),
    ] = 0.1


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A change, its stages, and what must hold meanwhile."""

    change: Change
    node_selector: Annotated[
        dict[str, str], msgspec.Meta(description="Labels of the nodes that the rollout is about; all by default.")
    ] = {}
    stages: Annotated[list[Stage], msgspec.Meta(description="In order; a stage begins when all before it passed.")]
    entry: Entry = Entry()
    gates: Gates = Gates()
    stopping: Stopping = Stopping()
    paused: Annotated[bool, msgspec.Meta(description="Nothing is changed while this is set; gates are shown.")] = False
    abort: Annotated[bool, msgspec.Meta(description="Take everything back and end.")] = False
    attempt: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            description="A rollout that stopped, or was taken back, goes on when this is raised"
            " (`cotenant rollout resume`).",
        ),
    ] = 0


class ServiceBefore(msgspec.Struct, frozen=True, kw_only=True):
    """The P99 latency of one service on the nodes of a stage before they were changed."""

    service: str
    seconds: float


class StageStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Where one stage is: its nodes, how many were changed and have confirmed it, how many were left out and why."""

    name: str
    passed: bool = False
    nodes: int = 0
    changed: int = 0
    confirmed: int = 0
    waiting: int = 0
    refused: int = 0
    overridden: int = 0
    soaked_seconds: float = 0.0
    stuck_seconds: float = 0.0
    latency_before: list[ServiceBefore] = []


class GateStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What one gate says: its value, in words, and for how long it has been failing or unknown."""

    name: GateName
    state: GateState
    value: float | None = None
    message: str = ""
    for_seconds: float = 0.0


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node that was left out or left as it is, and why."""

    name: str
    reason: str


class Stop(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why the rollout stopped by itself, in which attempt, and when."""

    attempt: int = 0
    reason: str
    message: str = ""
    at: str | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How far the rollout is. Times count only while a manager watched."""

    observed_generation: int | None = None
    phase: Phase = "Pending"
    stage: str | None = None
    message: str = ""
    attempt: int = 0
    nodes: int = 0
    changed: int = 0
    summary: str = ""
    stages: list[StageStatus] = []
    gates: list[GateStatus] = []
    left_out: list[LeftOut] = []
    stopped: Stop | None = None
    conditions: list[Condition] = []


class Meta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The metadata that is read."""

    name: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class ColocationRollout(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One change to co-location on the nodes of the cluster, made stage by stage behind gates, and taken back by itself when a gate fails."""  # noqa: E501

    api_version: str = report.API_VERSION
    kind: str = KIND
    metadata: Meta = Meta()
    spec: Spec
    status: Status = Status()


def labels_of(change: Change, name: str) -> Mapping[str, str]:
    """Return the labels that a change puts on a node; ``name`` is the rollout's."""
    wanted: dict[str, str] = {}
    if change.mode is not None:
        wanted[MODE_LABEL] = change.mode
    if change.node_slo is not None:
        wanted[SLO_REVISION] = change.node_slo
    if change.rules is not None:
        wanted[RULES_LABEL] = name
    return wanted
