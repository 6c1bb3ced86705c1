"""Who is asked about what, and what happens while nobody answers."""

from cotenant.manager.webhook import registration


def test_the_rules_of_failure() -> None:
    configs = {path: registration.by_url("https://x", path) for path in registration.PATHS}
    both = (
        registration.mutating("w", "cotenant-system", configs),
        registration.validating("w", "cotenant-system", configs, "koordinator-system"),
    )
    for configuration in both:
        policies = {webhook["name"]: webhook["failurePolicy"] for webhook in configuration["webhooks"]}
        assert [name for name, policy in policies.items() if policy == "Fail"] == ["colocation.pods.cotenant.io"]
        for webhook in configuration["webhooks"]:
            updates = any("UPDATE" in rule["operations"] for rule in webhook["rules"])
            assert not (updates and webhook["failurePolicy"] == "Fail")
            if "pods" in webhook["rules"][0]["resources"]:
                exempt = webhook["namespaceSelector"]["matchExpressions"][-1]["values"]
                assert {"kube-system", "cotenant-system"} <= set(exempt)
    (updates,) = [one["rules"] for one in both[1]["webhooks"] if one["name"] == "updates.pods.cotenant.io"]
    assert updates[0]["resources"] == ["pods", "pods/resize"], "whole cores stay whole in a resize"
    again = {webhook["name"]: webhook["reinvocationPolicy"] for webhook in both[0]["webhooks"]}
    assert again.pop("amplified.nodes.cotenant.io") == "Never"
    assert set(again.values()) == {"IfNeeded"}
