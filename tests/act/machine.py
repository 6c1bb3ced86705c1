"""A node for strategy tests: a kernel double with kubelet's groups and pods, seen through the real probing and reading.

What is planned is applied to the double, which refuses what the kernel refuses; a refusal fails the test.
"""

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from tests.double import model

from cotenant.act import planning
from cotenant.act.draft import Plan
from cotenant.kernel import paths, snapshot, topology
from cotenant.kernel.priority import probing
from cotenant.model import node as nodes
from cotenant.model import pod_list, policy
from cotenant.model.priority import PriorityInterface
from cotenant.model.snapshot import Controller, Hierarchy, Snapshot
from cotenant.units.plan import PlanItem

QOS_DIRECTORY = {"Guaranteed": "kubepods", "Burstable": "kubepods/burstable", "BestEffort": "kubepods/besteffort"}
LABEL = "koordinator.sh/qosClass"


_PROBED: dict[object, tuple[PriorityInterface, nodes.Topology, nodes.Node, dict[Controller, Hierarchy]]] = {}
"""What real probing found on each double, since it writes a tree to find it in."""


class DoubleFiles:
    """The files of a double."""

    def __init__(self, machine: "Machine") -> None:
        self._machine = machine

    def read(self, path: str) -> str | None:
        if path in self._machine.extra:
            return self._machine.extra[path].removesuffix("\n")
        try:
            return self._machine.kernel.read(path).removesuffix("\n")
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        return self.read(path) is not None or any(name.startswith(f"{path}/") for name in self._machine.extra)

    def directories(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(self._machine.kernel.group(path).children))
        except OSError:
            names = {
                name[len(path) + 1 :].partition("/") for name in self._machine.extra if name.startswith(f"{path}/")
            }
            return tuple(sorted(name for name, slash, _ in names if slash))


class Machine:
    """One node. ``directory`` gets its files as plain ones, for readers that want a root."""

    def __init__(self, directory: pathlib.Path, flavour: str = "mainline-v1", **sizes: int) -> None:
        self.kernel = model.kernel(flavour, **sizes)
        self.directory = directory
        self.listed: list[dict[str, Any]] = []
        self.extra: dict[str, str] = {}
        self.resctrl: str | None = None
        self.planner = planning.Planner()
        self._written: dict[str, str] = {}
        self._sizes = tuple(sorted(sizes.items()))
        for group in QOS_DIRECTORY.values():
            self.group(group)

    # --- the machine's own doings -----------------------------------------------------------------------------------

    def group(self, path: str) -> None:
        """Make a group in every hierarchy, as the kubelet and the runtime leave it."""
        for hierarchy in self.kernel.hierarchies:
            place = f"{hierarchy.point}/{path}"
            above = place.rpartition("/")[0]
            if hierarchy.version == 2:
                self.kernel.write(f"{above}/cgroup.subtree_control", "+cpu +cpuset +memory +io")
            self.kernel.mkdir(place)
            if "cpuset" in hierarchy.controllers and hierarchy.version == 1:
                for file in ("cpuset.cpus", "cpuset.mems"):
                    self.kernel.write(f"{place}/{file}", self.kernel.read(f"{above}/{file}"))

    def path(self, controller: str, group: str, file: str) -> str:
        """Return the path of a group's file."""
        wanted = {"blkio": "io"}.get(controller, controller) if self.v2 else controller
        hierarchy = next(h for h in self.kernel.hierarchies if wanted in h.controllers)
        return "/".join(part for part in (hierarchy.point, group, file) if part)

    @property
    def v2(self) -> bool:
        return self.kernel.flavour.version == 2

    def write(self, controller: str, group: str, file: str, text: str) -> None:
        self.kernel.write(self.path(controller, group, file), text)

    def read(self, controller: str, group: str, file: str) -> str:
        return self.kernel.read(self.path(controller, group, file)).removesuffix("\n")

    def quota(self, group: str) -> str:
        """Return the quota of a group, without the period."""
        return self.read("cpu", group, "cpu.max" if self.v2 else "cpu.cfs_quota_us").split()[0]

    def pod(
        self,
        name: str,
        kube: str = "BestEffort",
        label: str | None = None,
        *,
        containers: Iterable[Mapping[str, Any]] = ({},),
        annotations: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        namespace: str = "default",
        **metadata: Any,
    ) -> str:
        """Start a pod and return its group. Containers are ``resources`` each; annotations are encoded as JSON."""
        uid = f"uid-{name}"
        group = f"{QOS_DIRECTORY[kube]}/pod{uid}"
        self.group(group)
        specs, statuses = [], []
        for number, resources in enumerate(containers):
            container = f"{name}-c{number}"
            identifier = f"{len(self.listed):02x}{number:02x}".ljust(64, "a")
            self.group(f"{group}/{identifier}")
            specs.append({"name": container, "resources": resources})
            running = {"name": container, "containerID": f"containerd://{identifier}", "state": {"running": {}}}
            statuses.append(running)
        texts = {key: v if isinstance(v, str) else json.dumps(v) for key, v in (annotations or {}).items()}
        tags = {**({LABEL: label} if label else {}), **(labels or {})}
        self.listed.append(
            {
                "metadata": {
                    "name": name, "namespace": namespace, "uid": uid, "labels": tags, "annotations": texts, **metadata
                },
                "spec": {"containers": specs, "priority": priority},
                "status": {"phase": "Running", "qosClass": kube, "containerStatuses": statuses},
            }
        )  # fmt: skip
        return group

    def container(self, group: str, number: int = 0) -> str:
        """Return the group of a pod's container."""
        index = next(i for i, pod in enumerate(self.listed) if group.endswith(pod["metadata"]["uid"]))
        return f"{group}/{f'{index:02x}{number:02x}'.ljust(64, 'a')}"

    # --- ours -------------------------------------------------------------------------------------------------------

    def show(self, everything: bool = False) -> paths.Root:
        """Write the double's present files below the directory: what probing looks at, or everything."""
        seen = {path: file.text for path, file in self.kernel.files.items()} | self.extra
        for hierarchy in self.kernel.hierarchies:
            for group in hierarchy.root.subtree():
                if everything or group.path in ("/", "", "/kubepods", "kubepods"):
                    place = f"{hierarchy.point}{group.path.rstrip('/')}"
                    shown = (file for file in hierarchy.files_of(group) if file.readable)
                    seen |= {f"{place}/{file.name}": file.read(group) for file in shown}
        for path, text in seen.items():
            if self._written.get(path) != text:
                target = self.directory / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
                self._written[path] = text
        return paths.Root(self.directory)

    def look(
        self,
        *,
        usage: nodes.Usage | None = None,
        journal: Mapping[str, str | None] | None = None,
        node: Mapping[str, Any] | None = None,
        nrt: Mapping[str, Any] | None = None,
    ) -> Snapshot:
        """Return the node as strategies see it."""
        key = (self.kernel.flavour.release, self.kernel.flavour.version, self.kernel.flavour.vendor, self._sizes)
        if key not in _PROBED:
            root = self.show()
            cpus = topology.read(root)
            _PROBED[key] = (probing.probe(root), cpus, topology.node(root, cpus), snapshot.hierarchies(root))
        interface, cpus, here, mounted = _PROBED[key]
        if node is not None:
            here = nodes.decode_node(node, "node", here)
        if nrt is not None:
            cpus = nodes.decode_topology(nrt, "nrt", cpus)
        listed = pod_list.decode(json.dumps({"items": self.listed}))
        return Snapshot(
            **snapshot.assemble(DoubleFiles(self), mounted, listed),
            topology=cpus,
            node=here,
            priority=interface,
            usage=usage,
            journal=journal or {},
            resctrl=self.resctrl,
        )

    def plan(self, slo: Mapping[str, Any], **seen: Any) -> Plan:
        """Return the plan of all strategies: the same whether they are asked anew or only where something changed."""
        decoded, complaints = policy.decode({"spec": slo})
        assert complaints == ()
        snapshot = self.look(**seen)
        plan = planning.plan(snapshot, decoded)
        assert self.planner.plan(snapshot, decoded) == plan
        return plan

    def apply(self, plan: Plan) -> None:
        """Carry out the writes of a plan; a refusal is an OSError."""
        for item in plan.items:
            if item.op == "write":
                self.kernel.write(str(item.path), f"{item.new}\n")

    def enforce(self, slo: Mapping[str, Any], **seen: Any) -> Plan:
        """Plan and carry out."""
        plan = self.plan(slo, **seen)
        self.apply(plan)
        return plan


def use(cpu: float | None = None, memory: int | None = None, throttled: float | None = None) -> nodes.Use:
    return nodes.Use(cpu_millicores=cpu, memory_bytes=memory, throttled_ratio=throttled)


def usage(node: float = 0, system: float = 0, memory: int | None = None, **of_pods: float | nodes.Use) -> nodes.Usage:
    """Return usage in millicores; ``a=500`` is pod default/a."""
    each = {f"default/{name}": v if isinstance(v, nodes.Use) else use(v, 1 << 20) for name, v in of_pods.items()}
    return nodes.Usage(node=use(node, memory), system=use(system), pods=each)


def writes(plan: Plan, file: str) -> dict[str, str | None]:
    """Return what a plan writes last into the files of a name, by group directory."""
    found = (item for item in plan.items if item.op == "write" and str(item.path).endswith(f"/{file}"))
    return {str(item.path).rpartition("/")[0]: item.new for item in found}


def steps(plan: Plan, op: str) -> list[PlanItem]:
    return [item for item in plan.items if item.op == op]
