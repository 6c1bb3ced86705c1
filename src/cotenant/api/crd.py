"""Our kinds as CustomResourceDefinitions: generated, so that schema, code and documentation cannot drift apart."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from cotenant.api import report, rollout, schema
from cotenant.detect import rules

Definition = dict[str, Any]

OURS = ("app.kubernetes.io/part-of", "cotenant")
"""Label of definitions in the groups of others that we made: only those are ever changed."""


class RuleStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What the analyzer made of the rules. Rules that are not valid leave the last good ones in force."""

    active_generation: int | None = None
    conditions: list[report.Condition] = []


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``."""

    name: str
    path: str
    kind: str = "string"
    wide: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its names, its fields, its columns, and CEL rules over the whole object.

    ``fields`` are those of the object beside its metadata, usually ``spec`` and ``status``; that is then a subresource.
    """

    kind: str
    plural: str
    short: str
    description: str
    fields: Mapping[str, Any]
    columns: tuple[Column, ...] = ()
    checks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    spec_required: bool = False
    group: str = report.GROUP
    version: str = report.VERSION
    traits: schema.Traits | None = None
    """What the types cannot say; that of our own kinds by default."""
    approved: str = ""
    """Where the API was reviewed; Kubernetes asks for it in its own groups."""

    @property
    def name(self) -> str:
        """The name of the definition."""
        return f"{self.plural}.{self.group}"


REPORT = Kind(
    kind=report.KIND,
    plural=report.PLURAL,
    short="nir",
    description=" ".join((report.NodeInterferenceReport.__doc__ or "").split()),
    fields={"spec": report.ReportSpec, "status": report.ReportStatus},
    columns=(
        Column("Level", ".status.interferenceLevel", "number"),
        Column("Bucket", ".status.bucket"),
        Column("Hard", ".status.hard"),
        Column("Coverage", ".status.coverage", "number", wide=True),
        Column("Mode", ".status.nodeFacts.mode", wide=True),
        Column("Interface", ".status.nodeFacts.priorityInterface", wide=True),
        Column("Observed", ".status.observedAt", "date"),
        Column("Expires", ".status.expiresAt", wide=True),
    ),
    checks={
        "!has(self.spec) || !has(self.spec.nodeName) || self.spec.nodeName == self.metadata.name": (
            "a report is named like its node"
        )
    },
)

RULES = Kind(
    kind=rules.KIND,
    plural="detectionruleconfigs",
    short="drc",
    description="How interference is detected on the nodes that it selects. What it leaves out is the preset's.",
    fields={"spec": rules.Rules, "status": RuleStatus},
    columns=(
        Column("Preset", ".spec.preset"),
        Column("Valid", ".status.conditions[?(@.type=='Valid')].status"),
        Column("Active", ".status.activeGeneration", "integer"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
    checks={
        "self.metadata.name != 'default' || !has(self.spec.nodeSelector) || size(self.spec.nodeSelector) == 0": (
            "the object named default is for every node and has no nodeSelector"
        )
    },
    spec_required=True,
)

ROLLOUT = Kind(
    kind=rollout.KIND,
    plural=rollout.PLURAL,
    short="crl",
    description=" ".join((rollout.ColocationRollout.__doc__ or "").split()),
    fields={"spec": rollout.Spec, "status": rollout.Status},
    columns=(
        Column("Phase", ".status.phase"),
        Column("Stage", ".status.stage"),
        Column("Changed", ".status.summary"),
        Column("Mode", ".spec.change.mode", wide=True),
        Column("Stopped", ".status.stopped.reason"),
        Column("Message", ".status.message", wide=True),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
    checks={"size(self.metadata.name) <= 63": "the name becomes a label's value: 63 characters at most"},
    spec_required=True,
)

KINDS: dict[str, Kind] = {kind.short: kind for kind in (REPORT, RULES, ROLLOUT)}

_TRAITS = schema.Traits(
    list_keys={
        report.ReportedDetection: "type",
        report.ClusterNode: "name",
        report.Condition: "type",
        rollout.GateStatus: "name",
    },
    max_items={
        report.ReportedDetection: 8,
        report.ReportedSignal: 64,
        report.ReportedVictim: 16,
        report.ReportedSuspect: 16,
        report.MissingSignal: 128,
        report.ClusterNode: 500,
        report.Condition: 16,
        rules.SignalRule: 64,
        rollout.Stage: 32,
        rollout.StageStatus: 32,
        rollout.GateStatus: 16,
        rollout.LeftOut: 20,
        rollout.ServiceBefore: 64,
    },
    validations={
        rollout.Spec: {
            "size(self.stages) > 0": "give one stage at least",
            "self.change == oldSelf.change": "the change cannot be edited: make another rollout",
        },
        rollout.Change: {
            "has(self.mode) || has(self.nodeSLO) || has(self.rules)": "give mode, nodeSLO or rules",
        },
        rollout.LevelGate: {"has(self.max) || has(self.maxIncrease)": "give max, maxIncrease or both"},
        rollout.LatencyGate: {
            "has(self.maxSeconds) || has(self.maxIncreaseRatio)": "give maxSeconds, maxIncreaseRatio or both"
        },
        rules.SignalRule: {
            "self.normal < self.threshold && self.threshold <= self.saturation"
            " || self.normal > self.threshold && self.threshold >= self.saturation": (
                "normal < threshold <= saturation for a rising signal, normal > threshold >= saturation for a falling"
            )
        },
    },
    formats=dict.fromkeys(("observedAt", "expiresAt", "lastTransitionTime", "at"), "date-time"),
)


def definition(kind: Kind) -> Definition:
    """Return the CustomResourceDefinition of a kind."""
    generator = schema.Generator(kind.traits or _TRAITS)
    properties: Definition = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **{name: generator.of(field) for name, field in kind.fields.items()},
    }
    whole: Definition = {"type": "object", "description": kind.description, "properties": properties}
    if kind.spec_required:
        whole["required"] = ["spec"]
    if kind.checks:
        whole["x-kubernetes-validations"] = schema.validations(kind.checks)
    version: Definition = {"name": kind.version, "served": True, "storage": True}
    if "status" in kind.fields:
        version["subresources"] = {"status": {}}
    if kind.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in kind.columns]
    version["schema"] = {"openAPIV3Schema": whole}
    names: Definition = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if kind.short:
        names["shortNames"] = [kind.short]
    metadata: Definition = {"name": kind.name}
    if kind.group != report.GROUP:
        metadata["labels"] = {OURS[0]: OURS[1]}
    if kind.approved:
        metadata["annotations"] = {"api-approved.kubernetes.io": kind.approved}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {"group": kind.group, "names": names, "scope": "Cluster", "versions": [version]},
    }


def unknown_fields(kind: Kind, value: Mapping[str, Any]) -> list[str]:
    """Return the places of fields that an object has and its kind does not: an API server may drop them silently."""
    whole = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return list(_strangers({name: part for name, part in value.items() if name != "metadata"}, whole, ""))


def _strangers(value: Any, described: Definition, place: str) -> Iterator[str]:
    if isinstance(value, list) and "items" in described:
        for index, item in enumerate(value):
            yield from _strangers(item, described["items"], f"{place}[{index}]")
    elif isinstance(value, Mapping) and "properties" in described:
        for name, part in value.items():
            inner = f"{place}.{name}" if place else str(name)
            if name in described["properties"]:
                yield from _strangers(part, described["properties"][name], inner)
            else:
                yield inner


def _column(column: Column) -> Definition:
    shown: Definition = {"name": column.name, "type": column.kind, "jsonPath": column.path}
    return shown | {"priority": 1} if column.wide else shown


def render(kind: Kind) -> str:
    """Return the definition as YAML, as it is in the chart."""
    return yaml.safe_dump(definition(kind), sort_keys=False, width=110, allow_unicode=True)
