"""All of cotenant's programs at one cluster: analyzer, the real node's agent, simulated nodes, scheduler extender."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import objects
import programs
from objects import wait_for

import cluster
import node

ANALYZER = "127.0.0.1:17443"
EXTENDER = "127.0.0.1:18088"
REPORTS = "/apis/cotenant.io/v1alpha1/nodeinterferencereports"
RULES = "/apis/cotenant.io/v1alpha1/detectionruleconfigs"
SCHEDULERS_PATIENCE = "httpTimeout: 100ms"
"""How long kube-scheduler waits for the extender, in the configuration that cotenant prints."""

QUICK_RULES = {
    "windowSeconds": 10,
    "detections": {
        "ioCongestion": {
            "weight": 0.5,
            "signals": [{"signal": "psi.io_some_ratio", "normal": 0.1, "threshold": 0.3, "saturation": 0.5}],
        },
        "cachePollution": {"enabled": False, "signals": []},
    },
    "hardLimits": {"psiMemoryFullRatio": None, "psiIoSomeRatio": 0.3},
    "hysteresis": {
        "enterFor": 2,
        "hardEnterForSeconds": 2,
        "leaveRatio": 0.8,
        "leaveForSeconds": 5,
        "minHoldSeconds": 10,
    },
    "guard": {"maxExcludedFraction": 1.0},
}
"""Stalls on I/O that no calm node of a test has; quick to come and to go, so that a test need not wait minutes."""


@contextlib.contextmanager
def analyzer(directory: pathlib.Path, *options: str, listen: str = ANALYZER) -> Iterator[programs.Program]:
    """Run an analyzer whose lease is in namespace default."""
    program = programs.Program(
        ["analyzer", f"--listen={listen}", "--namespace=default", *options], directory / f"analyzer-{listen[-5:]}.log"
    )
    try:
        yield program
    finally:
        program.stop()


@contextlib.contextmanager
def extender(directory: pathlib.Path, *options: str) -> Iterator[programs.Program]:
    """Run the extender, of the cluster or of a file of reports, and wait until it answers."""
    at = [] if any(option.startswith("--reports") for option in options) else ["--analyzer-namespace=default"]
    program = programs.Program(["scheduler", f"--listen={EXTENDER}", *at, *options], directory / "scheduler.log")
    try:
        answering = f"http://{EXTENDER}/healthz"
        wait_for(lambda: programs.answers(answering) or program.returncode is not None, 30, "the extender to answer")
        assert program.returncode is None, program.output()
        yield program
    finally:
        program.stop()


@contextlib.contextmanager
def simulated(directory: pathlib.Path, count: int, *options: str) -> Iterator[programs.Program]:
    """Stream samples in the name of the simulated nodes."""
    program = programs.Program(
        ["simulate", "nodes", f"--count={count}", "--prefix=kwok-", f"--address={ANALYZER}", *options],
        directory / "simulate.log",
    )
    try:
        yield program
    finally:
        program.stop()


@contextlib.contextmanager
def asked_scheduler(*options: str, patient: bool = True) -> Iterator[None]:
    """Have the real kube-scheduler ask the extender, by the configuration that cotenant prints; or as options say.

    :param patient: wait ten seconds for an answer: an answer that comes after the 100 ms of the printed configuration
        counts as none, so that a machine that stands still for as long would place a pod as if nobody had been asked.
    """
    printed = programs.run(["scheduler", "config", f"--listen={EXTENDER}", *(options or ("--extender",))])
    assert printed.returncode == 0, printed.stderr
    configuration = printed.stdout
    if patient:
        assert configuration.count(SCHEDULERS_PATIENCE) == 1, configuration
        configuration = configuration.replace(SCHEDULERS_PATIENCE, "httpTimeout: 10s")
    cluster.restart_scheduler(cluster.configured_scheduler(configuration))
    try:
        yield
    finally:
        cluster.restart_scheduler(None)


def install(rules: dict[str, Any] = QUICK_RULES) -> None:
    """Install the kinds and the rules for all nodes."""
    done = programs.run(["crd", "install"])
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(lambda: objects.found(REPORTS) is not None and objects.found(RULES) is not None, 20, "the kinds")
    add_rules("default", rules)


def add_rules(name: str, rules: dict[str, Any]) -> None:
    """Make an object of rules, in the place of one that is there."""
    objects.delete(f"{RULES}/{name}")
    kind = {"apiVersion": "cotenant.io/v1alpha1", "kind": "DetectionRuleConfig"}
    cluster.request("POST", RULES, {**kind, "metadata": {"name": name}, "spec": rules})


def clean() -> None:
    """Remove reports and rules; the kinds stay."""
    for path in (REPORTS, RULES):
        objects.delete(path)


def report(name: str = node.NAME) -> dict[str, Any]:
    """Return the status of a node's report; empty without one."""
    found = objects.found(f"{REPORTS}/{name}") or {}
    return found.get("status") or {}


def held_by_extender(name: str = node.NAME) -> dict[str, Any]:
    """Return what the extender holds of a node."""
    found = programs.get_json(f"http://{EXTENDER}/explain?node={name}")
    assert isinstance(found, dict)
    return found
