import json
from typing import Any

import pytest

from cotenant.model import pod, pod_list


def read(annotations: dict[str, str], labels: dict[str, str] | None = None, **how: Any) -> pod.Pod:
    metadata = {"name": "p", "uid": "u", "annotations": annotations, "labels": labels or {}}
    (found,) = pod_list.decode(json.dumps({"items": [{"metadata": metadata}]}), **how)
    return found


@pytest.mark.parametrize(("level", "qos"), [("LC", "LS"), ("HLS", "LS"), ("LS", "LS"), ("BE", "BE"), ("be", None)])
def test_volcanos_level_stands_in_for_the_label(level: str, qos: str | None) -> None:
    assert read({"volcano.sh/qos-level": level}).qos_label == qos


def test_koordinators_label_counts_before_any_annotation() -> None:
    for label, qos in (("LS", "LS"), ("typo", None)):
        assert read({"volcano.sh/qos-level": "BE"}, {"koordinator.sh/qosClass": label}).qos_label == qos


def test_preemptable_is_offline_only_where_the_operator_says_so() -> None:
    assert read({"volcano.sh/preemptable": "true"}).qos_label is None
    assert read({"volcano.sh/preemptable": "true"}, preemptable_is_offline=True).qos_label == "BE"
    assert read({"volcano.sh/preemptable": "false"}, preemptable_is_offline=True).qos_label is None
    both = {"volcano.sh/preemptable": "true", "volcano.sh/qos-level": "LS"}
    assert read(both, preemptable_is_offline=True).qos_label == "LS"
