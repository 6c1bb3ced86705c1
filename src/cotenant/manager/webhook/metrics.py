"""What the webhook counts."""

import prometheus_client
from prometheus_client import core, registry

from cotenant.manager.webhook.credentials import Following
from cotenant.manager.webhook.source import Source

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)


class Metrics:
    """Requests by path and result, their duration, and pods by the profile that was applied to them."""

    def __init__(self, metrics: prometheus_client.CollectorRegistry) -> None:
        self.requests = prometheus_client.Counter(
            "cotenant_webhook_requests", "Admission requests, by path and result.", ["path", "result"], registry=metrics
        )
        self.duration = prometheus_client.Histogram(
            "cotenant_webhook_request_seconds", "From a request's body to its answer.", ["path"],
            buckets=BUCKETS, registry=metrics,
        )  # fmt: skip
        self.applied = prometheus_client.Counter(
            "cotenant_webhook_profile_applied", "Pods that a profile was applied to.", ["profile"], registry=metrics
        )


class StateCollector(registry.Collector):
    """Profiles that hold and that do not, what was listed, and when the certificate ends."""

    def __init__(self, source: Source, credentials: Following) -> None:
        self._source = source
        self._credentials = credentials

    def collect(self) -> list[core.Metric]:
        gauge = core.GaugeMetricFamily
        states = gauge("cotenant_webhook_profiles", "Colocation profiles, by state.", labels=["state"])
        states.add_metric(["ready"], len(self._source.ready))
        states.add_metric(["refused"], len(self._source.refused))
        synced = gauge("cotenant_webhook_synced", "1 once what the webhook follows was listed.", labels=["kind"])
        for kind in self._source.informers:
            synced.add_metric([kind], float(kind not in self._source.waiting_for))
        found: list[core.Metric] = [states, synced]
        if self._credentials.expires_at is not None:
            name = "cotenant_webhook_certificate_expires_seconds"
            found.append(
                gauge(name, "When the serving certificate ends (Unix time).", value=self._credentials.expires_at)
            )
        failures = "Reads of the certificates' Secret that failed."
        found.append(gauge("cotenant_webhook_credential_failures", failures, value=self._credentials.failures))
        return found
