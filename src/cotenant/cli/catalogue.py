"""The commands of ``cotenant``: one row each, so that help needs no import and a command loads only what it uses."""

import dataclasses
from typing import Literal

Panel = Literal["Look", "Act", "Cluster", "Tools"]


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """One command: its name, its module under ``cotenant.cli``, where help lists it, and what help says.

    The module has either ``command``, a function that typer turns into a command, or ``app``, a ``typer.Typer`` with
    commands of its own.
    """

    name: str
    module: str
    panel: Panel
    help: str


COMMANDS: tuple[Command, ...] = (
    Command("up", "up", "Look", "Watch this machine in a web page: who is hurt, by what and by whom."),
    Command("top", "top", "Look", "Show the same in a terminal: detections, signals, groups."),
    Command("explain", "explain", "Look", "Say in sentences why the interference level is what it is."),
    Command("check", "check", "Look", "Say what this kernel offers, what is missing and how to get it."),
    Command("sample", "sample", "Look", "Print samples of this machine's pressure, latency and load."),
    Command("run", "run", "Act", "Run a command in a group of its own with a QoS class."),
    Command("enforce", "enforce", "Act", "Print or apply what a policy wants done on a node."),
    Command("restore", "restore", "Act", "Put back everything that cotenant wrote to the kernel."),
    Command("verify", "verify", "Act", "Try on this machine what is promised: SMT, features, kernel answers."),
    Command("node", "node", "Cluster", "Sample a Kubernetes node and hold its offline pods back."),
    Command("analyzer", "analyzer", "Cluster", "Take the samples of all nodes and publish a report for each."),
    Command(
        "scheduler",
        "scheduler",
        "Cluster",
        "Answer kube-scheduler and Volcano: nodes to avoid, scores, Kata readiness.",
    ),
    Command("manager", "manager", "Cluster", "Keep what nodes and pods get in step with what operators wrote."),
    Command("overcommit", "overcommit", "Cluster", "Say what a node offers to batch and mid work, term by term."),
    Command("rollout", "rollout", "Cluster", "Plan and show staged rollouts; pause, resume and abort them."),
    Command("crd", "crd", "Cluster", "Print or install the kinds of cotenant: reports, rules, rollouts."),
    Command("uninstall", "uninstall", "Cluster", "End an installation: what nodes gave back, and marks off all nodes."),
    Command("record", "record", "Tools", "Append samples to a file, for replay."),
    Command("replay", "replay", "Tools", "Evaluate recorded samples: one line for each, the same every time."),
    Command("config", "config", "Tools", "Check, explain and roll back the rules of detection."),
    Command("recommend", "recommend", "Tools", "Recommend thresholds from what was recorded, with what to expect."),
    Command("simulate", "simulate", "Tools", "Stream the samples of nodes that do not exist."),
)
