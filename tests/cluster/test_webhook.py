"""The webhook at a real API server: what it makes of pods, what it refuses, its certificates, and life without it."""

import contextlib
import json
import pathlib
import ssl
import threading
import time
import urllib.error
from collections.abc import Iterator
from typing import Any

import objects
import programs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from objects import wait_for

import cluster

PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NAMESPACES = "/api/v1/namespaces"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/cotenant-webhook"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/cotenant-webhook"
SYSTEM = "cotenant-system"
STRICT, LOOSE, PLAIN = "colocated", "occasional", "plain"
"""Namespaces: labelled for co-location; chosen by the profile only; with nothing."""
PORTS = (19443, 19444)
LIFE_SECONDS = 4
BATCH = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}


def manager(directory: pathlib.Path, port: int, *options: str) -> programs.Program:
    """Start a manager that registers its webhook; its probes are at the next port but one thousand."""
    arguments = [
        "manager", f"--listen=127.0.0.1:{port - 1000}", f"--webhook-listen=127.0.0.1:{port}", "--register-webhooks",
        "--affinity=hard", *options,
    ]  # fmt: skip
    return programs.Program(arguments, directory / f"manager-{port}.log")


def ready(port: int) -> bool:
    return programs.answers(f"http://127.0.0.1:{port - 1000}/readyz")


def registered() -> bool:
    return all(
        (objects.found(path) or {}).get("webhooks", [{}])[0].get("clientConfig", {}).get("caBundle")
        for path in (MUTATING, VALIDATING)
    )


def install_profiles() -> None:
    """Define the kind, as a cluster without Koordinator gets it."""
    done = programs.run(["crd", "install", "--koordinator", "clustercolocationprofiles"])
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(lambda: objects.found(PROFILES) is not None, 20, "profiles to be served")


def set_profile(name: str, **spec: Any) -> None:
    """Make a profile, or replace it."""
    objects.delete(f"{PROFILES}/{name}")
    body = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile",
            "metadata": {"name": name}, "spec": spec}  # fmt: skip
    cluster.request("POST", PROFILES, body)


@pytest.fixture(scope="module")
def namespaces(kubeconfig: pathlib.Path) -> Iterator[None]:
    """Namespaces, priority classes and a profile that makes every pod of two namespaces offline work."""
    labels = {
        SYSTEM: {}, PLAIN: {}, LOOSE: {"team": "batch"}, STRICT: {"team": "batch", "cotenant.io/colocation": "enabled"},
    }  # fmt: skip
    install_profiles()
    for name, given_labels in labels.items():
        if objects.found(f"{NAMESPACES}/{name}") is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": given_labels}}
            cluster.request("POST", NAMESPACES, body)
        wait_for(lambda name=name: objects.found(f"{NAMESPACES}/{name}/serviceaccounts/default"), 30, "its account")
    for name, value in BATCH.items():
        if objects.found(f"{CLASSES}/{name}") is None:
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                    "value": value}  # fmt: skip
            cluster.request("POST", CLASSES, body)
    set_profile(
        "batch", namespaceSelector={"matchLabels": {"team": "batch"}}, qosClass="BE", priorityClassName="koord-batch",
        koordinatorPriority=1000, labelSuffixes={"app": "-offline"},
    )  # fmt: skip
    yield
    for path in (MUTATING, VALIDATING, PROFILES):
        objects.delete(path)
    for name in (PLAIN, LOOSE, STRICT):
        objects.delete(f"{NAMESPACES}/{name}/pods")


@pytest.fixture(scope="module")
def webhook(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """One manager whose webhook answers."""
    directory = tmp_path_factory.mktemp("webhook")
    program = manager(directory, PORTS[0])
    try:
        wait_for(lambda: ready(PORTS[0]) and registered(), 40, f"the webhook\n{program.output()}")
        yield directory
    finally:
        program.stop()
        print(program.output()[-2000:])
        for path in (MUTATING, VALIDATING):
            objects.delete(path)


def create(namespace: str, pod: dict[str, Any], *, dry_run: bool = True) -> dict[str, Any]:
    """Create a pod, by default without keeping it."""
    return cluster.request("POST", f"{NAMESPACES}/{namespace}/pods{'?dryRun=All' if dry_run else ''}", pod)


def refusal(namespace: str, pod: dict[str, Any]) -> str:
    """Return why a pod is not created."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        create(namespace, pod)
    return str(json.loads(caught.value.msg)["message"])


def attempt(namespace: str, pod: dict[str, Any]) -> dict[str, Any] | str:
    """Return the pod as it would be created, or why it would not."""
    try:
        return create(namespace, pod)
    except urllib.error.HTTPError as error:
        return error.msg


def asking(cpu: str = "1500m", memory: str = "100.5Mi", **labels: str) -> dict[str, Any]:
    pod = objects.pod("asking", "", {"requests": {"cpu": cpu, "memory": memory}}, labels=labels)
    pod["spec"]["hostNetwork"] = False
    return pod


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
    programs.settle(1)
    pod = asking()
    pod["metadata"] = {"generateName": "half-", "labels": {"app": "half"}}
    try:
        drawn = sum("drawn" in create(PLAIN, pod)["metadata"]["labels"] for _ in range(60))
    finally:
        objects.delete(f"{PROFILES}/half")
    print(f"{drawn} of 60 pods were drawn by 50 %")
    assert 12 < drawn < 48


def test_defaults_of_a_limit_range_do_not_come_back(webhook: pathlib.Path) -> None:
    """LimitRanger runs once more after the webhook, and finds a container without cpu."""
    path = f"{NAMESPACES}/{LOOSE}/limitranges"
    item = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "250m", "memory": "64Mi"}}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults"}, "spec": {"limits": [item]}}
    cluster.request("POST", path, body)
    try:
        programs.settle(1)
        for container in create(LOOSE, asking())["spec"]["containers"]:
            assert not {"cpu", "memory"} & container["resources"]["requests"].keys()
            assert container["resources"]["requests"]["kubernetes.io/batch-cpu"] == "1500"
        bare = asking()
        bare["spec"]["containers"][0]["resources"] = {}
        assert create(LOOSE, bare)["spec"]["containers"][0]["resources"]["requests"] == {
            "kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "64Mi"
        }  # fmt: skip
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
        programs.settle(1)
        text = refusal(LOOSE, asking())
        assert "ResourceQuota occasional/team counts requests.cpu" in text
        assert "profile batch" in text
        objects.delete(f"{path}/team")
        expression = {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["koord-batch"]}
        quota["spec"]["scopeSelector"] = {"matchExpressions": [expression]}
        cluster.request("POST", path, quota)
        programs.settle(1)
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
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slo-controller-config"},
              "data": {"colocation-config": '{"cpuReclaimThresholdPercent": 160}'}}  # fmt: skip
    objects.delete(f"{path}/slo-controller-config")
    with pytest.raises(urllib.error.HTTPError) as caught:
        cluster.request("POST", f"{path}?dryRun=All", config)
    assert "cpuReclaimThresholdPercent" in caught.value.msg
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
    sides = draw(st.sampled_from([(), ("limits",), ("requests",), ("requests", "limits")]))
    amounts = draw(_AMOUNTS)
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
            {**container, **draw(st.sampled_from([{}, {"restartPolicy": "Always"}]))} for container in every[count:]
        ]
    terms = draw(
        st.lists(st.sampled_from([{}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]), max_size=2)
    )
    if terms:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    for field, values in (
        ("priorityClassName", ["koord-prod", "koord-mid", "system-node-critical"]),
        ("schedulerName", ["volcano"]),
        ("preemptionPolicy", ["PreemptLowerPriority"]),
        ("nodeName", ["kwok-0"]),
        ("restartPolicy", ["Never"]),
        ("activeDeadlineSeconds", [60]),
    ):
        if draw(st.booleans()):
            spec[field] = draw(st.sampled_from(values))
    labels = draw(
        st.dictionaries(st.sampled_from(["app", "team", "x.example/y"]), st.sampled_from(["", "a", "w" * 58]))
    )
    name = draw(st.sampled_from([{"name": "fuzz"}, {"generateName": "fuzz-"}]))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**name, "labels": labels}, "spec": spec}


def test_whatever_a_server_takes_it_takes_after_us_or_we_say_why_not(webhook: pathlib.Path) -> None:
    taken = refused = rejected = 0

    @settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(_pods())
    def check(pod: dict[str, Any]) -> None:
        nonlocal taken, refused, rejected
        if isinstance(attempt(PLAIN, pod), str):
            rejected += 1
            return
        made = attempt(LOOSE, pod)
        if isinstance(made, str):
            assert 'admission webhook "pods.cotenant.io" denied the request' in made
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
    assert taken >= 100


def test_certificates_and_authority_are_replaced_and_no_request_is_lost(
    namespaces: None, tmp_path: pathlib.Path
) -> None:
    """Two replicas; each creates with a new connection, while certificates that live four seconds come and go."""
    life = f"--webhook-certificate-lifetime={LIFE_SECONDS}s"
    objects.delete(f"{NAMESPACES}/{SYSTEM}/secrets/cotenant-webhook-tls")
    with contextlib.ExitStack() as running:
        for path in (MUTATING, VALIDATING):
            running.callback(objects.delete, path)
        running.callback(objects.delete, f"{NAMESPACES}/{SYSTEM}/secrets/cotenant-webhook-tls")
        for port in PORTS:
            one = manager(tmp_path, port, life, f"--webhook-url=https://127.0.0.1:{PORTS[0]}")
            running.callback(one.stop)
        wait_for(lambda: all(map(ready, PORTS)) and registered(), 40, "both replicas")
        failures: list[str] = []
        ending = threading.Event()
        created = [0, 0, 0]

        def keep_creating(slot: int) -> None:
            while not ending.is_set():
                try:
                    create(STRICT, asking())
                    created[slot] += 1
                except (urllib.error.URLError, OSError) as error:
                    failures.append(str(getattr(error, "msg", error)))

        workers = [threading.Thread(target=keep_creating, args=(slot,)) for slot in range(len(created))]
        for worker in workers:
            worker.start()
        seen: dict[int, set[str]] = {port: set() for port in PORTS}
        bundles = set()
        deadline = time.monotonic() + LIFE_SECONDS * 11
        while time.monotonic() < deadline:
            for port in PORTS:
                seen[port].add(ssl.get_server_certificate(("127.0.0.1", port)))
            bundles.add(cluster.request("GET", MUTATING)["webhooks"][0]["clientConfig"]["caBundle"])
            time.sleep(0.3)
        ending.set()
        for worker in workers:
            worker.join()
    print(f"{sum(created)} pods, certificates seen: {[len(found) for found in seen.values()]}, bundles: {len(bundles)}")
    assert not failures, (len(failures), failures[:3])
    assert sum(created) > 50
    assert all(len(found) >= 5 for found in seen.values())
    assert len(seen[PORTS[0]] & seen[PORTS[1]]) >= 4  # the replicas share them
    assert len(bundles) >= 2  # a new authority was published beside the old one


def test_without_the_webhook_only_namespaces_for_colocation_wait(namespaces: None, tmp_path: pathlib.Path) -> None:
    program = manager(tmp_path, PORTS[0])
    try:
        wait_for(lambda: ready(PORTS[0]) and registered(), 40, "the webhook")
        program.kill()
        assert create(LOOSE, asking(app="x"))["metadata"]["labels"] == {"app": "x"}
        text = refusal(STRICT, asking())
        assert 'failed calling webhook "colocation.pods.cotenant.io"' in text
        assert create("kube-system", asking())["metadata"]["name"] == "asking"
        create(LOOSE, asking(app="slipped"), dry_run=False)
        listed = json.loads(programs.run(["manager", "unmutated", "--json"]).stdout)
        assert [(one["namespace"], one["name"], one["why"]) for one in listed] == [(LOOSE, "asking", "missed")]
        objects.delete(f"{NAMESPACES}/{LOOSE}/pods/asking")
        again = manager(tmp_path, PORTS[0])
        try:
            took = wait_for(lambda: ready(PORTS[0]), 40, "the webhook again")
            print(f"a new process answers after {took:.1f} s")
            assert create(STRICT, asking())["spec"]["priorityClassName"] == "koord-batch"
        finally:
            again.stop()
    finally:
        program.stop()
        for path in (MUTATING, VALIDATING):
            objects.delete(path)
