"""The webhook at a real API server: what it makes of pods, what it refuses, its certificates, and life without it."""

import pathlib
import urllib.error
from collections.abc import Iterator
from typing import Any

import admission
import objects
import pytest
from admission import (
    LOOSE,
    MUTATING,
    NAMESPACES,
    PLAIN,
    PORTS,
    PROFILES,
    STRICT,
    VALIDATING,
    asking,
    attempt,
    create,
    manager,
    ready,
    refusal,
    registered,
    set_profile,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from objects import wait_for

import cluster


@pytest.fixture(scope="module")
def namespaces(kubeconfig: pathlib.Path) -> Iterator[None]:
    with admission.namespaces():
        yield


@pytest.fixture(scope="module")
def webhook(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """One manager whose webhook answers."""
    directory = tmp_path_factory.mktemp("webhook")
    program = manager(directory, PORTS[0])
    try:
        wait_for(lambda: ready(PORTS[0]) and registered(), 40, lambda: f"the webhook\n{program.output()}")
        yield directory
    finally:
        program.stop()
        print(program.output()[-2000:])
        for path in (MUTATING, VALIDATING):
            objects.delete(path)


def test_a_pod_becomes_offline_work(webhook: pathlib.Path) -> None:
    made = create(STRICT, asking(app="render"))
    spec, metadata = made["spec"], made["metadata"]
    assert metadata["labels"] == {
        "app": "render-offline", "koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "1000"
    }  # fmt: skip
    assert (spec["priorityClassName"], spec["priority"]) == ("koord-batch", 5000)
    requests = spec["containers"][0]["resources"]["requests"]
    assert requests == {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "102912Ki"}
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "cotenant.io/avoid-offline", "operator": "DoesNotExist"}]}]
    assert made["status"]["qosClass"] == "BestEffort"
    assert "batch" in metadata["annotations"]["cotenant.io/profiles"]
    assert create(PLAIN, asking(app="render"))["metadata"]["labels"] == {"app": "render"}


def test_a_percentage_of_the_pods_of_one_controller(webhook: pathlib.Path) -> None:
    """Their names are made by the API server, some versions of it after the webhook."""
    set_profile("half", selector={"matchLabels": {"app": "half"}}, probability="50%", labels={"drawn": "yes"})
    pod = asking()
    pod["metadata"] = {"generateName": "half-", "labels": {"app": "half"}}
    try:
        wait_for(lambda: "drawn" in create(PLAIN, pod)["metadata"]["labels"], 10, "the profile to be known")
        drawn = sum("drawn" in create(PLAIN, pod)["metadata"]["labels"] for _ in range(60))
    finally:
        objects.delete(f"{PROFILES}/half")
    print(f"{drawn} of 60 pods were drawn by 50 %")
    assert 12 < drawn < 48


def test_defaults_of_a_limit_range_do_not_come_back(webhook: pathlib.Path) -> None:
    """LimitRanger runs once more after the webhook, and finds a container without cpu."""
    path = f"{NAMESPACES}/{LOOSE}/limitranges"
    item = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "250m", "memory": "64Mi"}}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults"}, "spec": {"limits": [item]}}
    cluster.request("POST", path, body)
    try:
        bare = asking()
        bare["spec"]["containers"][0]["resources"] = {}
        translated = {"kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "64Mi"}

        def asked_for() -> dict[str, str]:
            return dict(create(LOOSE, bare)["spec"]["containers"][0]["resources"]["requests"])

        wait_for(lambda: asked_for() == translated, 10, lambda: f"the defaults to be translated: {asked_for()}")
        for container in create(LOOSE, asking())["spec"]["containers"]:
            assert not {"cpu", "memory"} & container["resources"]["requests"].keys()
            assert container["resources"]["requests"]["kubernetes.io/batch-cpu"] == "1500"
        objects.patch(f"{path}/defaults", {"spec": {"limits": [{**item, "min": {"cpu": "100m"}}]}})
        wait_for(lambda: "LimitRange occasional/defaults bounds cpu" in refusal(LOOSE, asking()), 10)
    finally:
        objects.delete(f"{path}/defaults")


def test_a_quota_is_kept_or_the_pod_refused_in_plain_words(webhook: pathlib.Path) -> None:
    path = f"{NAMESPACES}/{LOOSE}/resourcequotas"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"},
             "spec": {"hard": {"requests.cpu": "1"}}}  # fmt: skip
    cluster.request("POST", path, quota)
    try:
        wait_for(lambda: isinstance(attempt(LOOSE, asking()), str), 10, "the quota to be known")
        text = refusal(LOOSE, asking())
        assert "ResourceQuota occasional/team counts requests.cpu" in text
        assert "profile batch" in text
        objects.delete(f"{path}/team")
        expression = {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["koord-batch"]}
        quota["spec"]["scopeSelector"] = {"matchExpressions": [expression]}
        cluster.request("POST", path, quota)
        wait_for(lambda: not isinstance(attempt(LOOSE, asking()), str), 10, "the quota's scope to be known")
        assert create(LOOSE, asking())["spec"]["priorityClassName"] == "koord-batch"
    finally:
        objects.delete(f"{path}/team")


def test_pairs_that_do_not_go_together_and_changes_of_class_are_refused(webhook: pathlib.Path) -> None:
    wrong = asking()
    wrong["metadata"]["labels"] = {"koordinator.sh/qosClass": "LS"}
    wrong["spec"]["priorityClassName"] = "koord-batch"
    assert "LS does not go with koord-batch" in refusal(PLAIN, wrong)
    half = asking("1500m")
    half["metadata"]["labels"] = {"koordinator.sh/qosClass": "LSR"}
    assert "ask for a whole number" in refusal(PLAIN, half)
    running = asking()
    running["metadata"] = {"name": "running", "labels": {"koordinator.sh/qosClass": "LS"}}
    create(PLAIN, running, dry_run=False)
    try:
        with pytest.raises(urllib.error.HTTPError) as caught:
            objects.patch(
                f"{NAMESPACES}/{PLAIN}/pods/running", {"metadata": {"labels": {"koordinator.sh/qosClass": "BE"}}}
            )
        assert "may not change, from 'LS' to 'BE'" in caught.value.msg
        objects.patch(f"{NAMESPACES}/{PLAIN}/pods/running", {"metadata": {"labels": {"other": "x"}}})
    finally:
        objects.delete(f"{NAMESPACES}/{PLAIN}/pods/running")


def test_profiles_and_configuration_are_checked_when_they_are_written(webhook: pathlib.Path) -> None:
    for spec, text in (
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}, "spec.selector.matchExpressions[0]"),
        ({"probability": "120%"}, "spec.probability"),
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            set_profile("wrong", **spec)
        assert text in caught.value.msg
    if objects.found(f"{NAMESPACES}/koordinator-system") is None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}}
        cluster.request("POST", NAMESPACES, body)
    path = f"{NAMESPACES}/koordinator-system/configmaps"
    text = '{"clusterStrategy": {"cpuSuppressThresholdPercent": 160}}'
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slo-controller-config"},
              "data": {"resource-threshold-config": text}}  # fmt: skip
    objects.delete(f"{path}/slo-controller-config")
    with pytest.raises(urllib.error.HTTPError) as caught:
        cluster.request("POST", f"{path}?dryRun=All", config)
    assert "cpuSuppressThresholdPercent is 160: not within 0..100" in caught.value.msg
    config["metadata"]["name"] = "another"
    cluster.request("POST", f"{path}?dryRun=All", config)


_NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True)
_AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["1", "100m", "0.0015", "250u", "2k", "0", "1e3"]),
        "memory": st.sampled_from(["1Gi", "128974848", "1.5Gi", "1500m", "129M", "0", "100u"]),
        "ephemeral-storage": st.just("1Gi"),
        "example.com/device": st.just("1"),
        "hugepages-2Mi": st.just("4Mi"),
        "kubernetes.io/batch-cpu": st.just("1500"),
    },
)


@st.composite
def _containers(draw: st.DrawFn) -> dict[str, Any]:
    container: dict[str, Any] = {"name": draw(_NAMES), "image": "busybox"}
    amounts = draw(_AMOUNTS)
    whole = {"example.com/device", "hugepages-2Mi"} & amounts.keys()  # these are asked for and limited alike
    if "hugepages-2Mi" in whole and not {"cpu", "memory"} & amounts.keys():
        amounts["cpu"] = "1"
    every = [("requests", "limits")] if whole else [(), ("limits",), ("requests",), ("requests", "limits")]
    sides = draw(st.sampled_from(every))
    container["resources"] = {side: dict(amounts) for side in sides}
    if draw(st.booleans()):
        reference = {"resource": draw(st.sampled_from(["limits.cpu", "requests.memory"]))}
        container["env"] = [{"name": "AMOUNT", "valueFrom": {"resourceFieldRef": reference}}]
    if draw(st.booleans()):
        container["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]
    return container


@st.composite
def _pods(draw: st.DrawFn) -> dict[str, Any]:
    unique: Any = {"unique_by": lambda container: container["name"]}
    every = draw(st.lists(_containers(), min_size=1, max_size=4, **unique))
    count = draw(st.integers(1, len(every)))
    spec: dict[str, Any] = {"containers": every[:count]}
    if every[count:]:
        spec["initContainers"] = [
            {**container, **draw(st.sampled_from([{}, {"restartPolicy": "Always"}]))}
            for container in every[count:]
            if "resizePolicy" not in container
        ]
    terms = draw(
        st.lists(st.sampled_from([{}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]), max_size=2)
    )
    if terms:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    for field, values in (
        ("priorityClassName", ["koord-prod", "koord-mid", "koord-free"]),
        ("schedulerName", ["volcano"]),
        ("preemptionPolicy", ["PreemptLowerPriority"]),
        ("nodeName", ["kwok-0"]),
        ("restartPolicy", ["Never"]),
        ("activeDeadlineSeconds", [60]),
    ):
        if draw(st.booleans()):
            spec[field] = draw(st.sampled_from(values))
    labels = draw(
        st.dictionaries(st.sampled_from(["app", "team", "x.example/y"]), st.sampled_from(["a", "b-c", "w" * 55]))
    )
    name = draw(st.sampled_from([{"name": "fuzz"}, {"generateName": "fuzz-"}]))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**name, "labels": labels}, "spec": spec}


def test_whatever_a_server_takes_it_takes_after_us_or_we_say_why_not(webhook: pathlib.Path) -> None:
    taken = refused = rejected = 0

    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(_pods())
    def check(pod: dict[str, Any]) -> None:
        nonlocal taken, refused, rejected
        if isinstance(attempt(PLAIN, pod), str):
            rejected += 1
            return
        made = attempt(LOOSE, pod)
        if isinstance(made, str):
            assert "denied the request" in made
            refused += 1
            return
        taken += 1
        assert made["spec"]["priorityClassName"] == "koord-batch"
        for kind in ("containers", "initContainers"):
            for container in made["spec"].get(kind) or ():
                for side in container.get("resources", {}).values():
                    assert side.get("cpu", "0") == "0"
                    assert "memory" not in side

    check()
    print(f"fuzzed pods: {taken} taken, {refused} refused by the webhook, {rejected} not valid to begin with")
    assert taken >= 50
