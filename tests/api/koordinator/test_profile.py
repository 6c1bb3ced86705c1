"""Profiles are decoded with all their fields."""

import msgspec

from cotenant.api.koordinator.profile import Profile


def test_every_field() -> None:
    text = b"""{"apiVersion":"config.koordinator.sh/v1alpha1","kind":"ClusterColocationProfile",
      "metadata":{"name":"batch","annotations":{"config.koordinator.sh/skip-update-resources":"true"}},
      "spec":{"namespaceSelector":{"matchLabels":{"a":"b"}},"selector":{"matchExpressions":[{"key":"k","operator":"Exists"}]},
        "probability":"30%","labels":{"l":"1"},"annotations":{"a":"2"},"labelKeysMapping":{"from":"to"},
        "annotationKeysMapping":{"x":"y"},"labelSuffixes":{"app":"-batch"},"schedulerName":"koord-scheduler",
        "qosClass":"BE","priorityClassName":"koord-batch","koordinatorPriority":1000,
        "patch":{"spec":{"terminationGracePeriodSeconds":30}}}}"""
    profile = msgspec.json.decode(text, type=Profile)
    spec = profile.spec
    assert profile.metadata.name == "batch"
    assert spec.namespace_selector is not None
    assert spec.namespace_selector.match_labels == {"a": "b"}
    assert spec.selector is not None
    assert spec.selector.match_expressions is not None
    assert spec.selector.match_expressions[0].operator == "Exists"
    assert (spec.probability, spec.qos_class, spec.priority_class_name) == ("30%", "BE", "koord-batch")
    assert (spec.koordinator_priority, spec.scheduler_name) == (1000, "koord-scheduler")
    assert (spec.label_keys_mapping, spec.annotation_keys_mapping) == ({"from": "to"}, {"x": "y"})
    assert spec.label_suffixes == {"app": "-batch"}
    assert spec.patch == {"spec": {"terminationGracePeriodSeconds": 30}}
