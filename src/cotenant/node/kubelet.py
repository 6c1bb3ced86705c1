"""The node's pods, from its own kubelet: they are there when the API server is not.

The kubelet's authenticated port is asked (10250, a ServiceAccount's token, TLS verified), never the read-only port.
"""

import dataclasses
import hashlib
import http.client
import pathlib
import ssl

import msgspec

from cotenant.model import pod, pod_list
from cotenant.node import errors
from cotenant.units import address, quantity
from cotenant.units import clock as clocks
from cotenant.units.malformed import MALFORMED

TIMEOUT_SECONDS = 3.0
MAX_BODY_BYTES = 64 << 20
"""A list of pods is at most 110 objects of 1.5 MiB in etcd; no honest kubelet sends more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Where the kubelet is and how to be believed."""

    url: str = "https://127.0.0.1:10250"
    token_file: pathlib.Path | None = None
    """Read anew for each request: a projected token changes each hour."""
    ca_file: pathlib.Path | None = None
    """Who signed the kubelet's certificate; None: the system's own authorities."""
    insecure_tls: bool = False
    """Accept any certificate: for kubelets that sign their own, on loopback only."""
    preemptable_is_offline: bool = False
    """Take ``volcano.sh/preemptable`` for class BE, as rubik does."""


class KubeletConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the kubelet does with CPUs, as far as others must know."""

    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: dict[str, str] | None = None
    reserved_system_cpus: str = msgspec.field(default="", name="reservedSystemCPUs")
    kube_reserved: dict[str, str] | None = None
    system_reserved: dict[str, str] | None = None
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"

    def reserved_millicores(self) -> int:
        """Return how much CPU is reserved for the kubelet and the system.

        :raises BadQuantity: if that is no quantity.
        """
        both = (self.kube_reserved or {}, self.system_reserved or {})
        return sum(quantity.millicores(resources["cpu"]) for resources in both if "cpu" in resources)


class _Configz(msgspec.Struct):
    kubeletconfig: KubeletConfiguration


class Kubelet:
    """Asks one kubelet for its pods over a connection that is kept."""

    def __init__(self, settings: Settings) -> None:
        parsed = address.parts_of_url(settings.url, "http", "https")
        if parsed is None:
            raise errors.BadSettings(f"kubelet address {settings.url!r}: write https://HOST:10250")
        if settings.insecure_tls and not address.is_loopback(parsed.hostname or ""):
            raise errors.BadSettings("an unverified certificate is accepted on loopback only; give --kubelet-ca")
        self._settings = settings
        self._address = parsed
        self._connection: http.client.HTTPConnection | None = None
        self._listed: tuple[bytes, tuple[pod.Pod, ...]] = (b"", ())
        """The digest of the last list, and its pods: mostly the next one is the same."""

    def pods(self) -> tuple[pod.Pod, ...]:
        """Return the pods of the node.

        :raises KubeletUnreachable: if the kubelet does not answer within three seconds, or not with a list of pods.
        """
        try:
            body = self._get("/pods")
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise errors.KubeletUnreachable(f"{self._settings.url}/pods: {error or type(error).__name__}") from None
        digest = hashlib.sha256(body).digest()
        if digest == self._listed[0]:
            return self._listed[1]
        try:
            pods = pod_list.decode(
                body,
                f"{self._settings.url}/pods",
                preemptable_is_offline=self._settings.preemptable_is_offline,
            )
        except pod_list.BadPods as error:
            raise errors.KubeletUnreachable(str(error)) from None
        self._listed = digest, pods
        return pods

    def configuration(self) -> KubeletConfiguration:
        """Return what the kubelet runs with (``/configz``).

        :raises KubeletUnreachable: if the kubelet does not answer within three seconds, or not with its configuration.
        """
        try:
            body = self._get("/configz")
            return msgspec.json.decode(body, type=_Configz).kubeletconfig
        except (OSError, http.client.HTTPException, *MALFORMED) as error:
            self.close()
            raise errors.KubeletUnreachable(f"{self._settings.url}/configz: {error or type(error).__name__}") from None

    def close(self) -> None:
        """End the connection; the next request opens one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get(self, path: str) -> bytes:
        headers = {"Accept": "application/json"}
        if self._settings.token_file is not None:
            headers["Authorization"] = f"Bearer {self._settings.token_file.read_text().strip()}"
        reused = self._connection is not None
        try:
            return self._exchange(path, headers)
        except (http.client.RemoteDisconnected, ConnectionError):
            self.close()
            if not reused:
                raise
            return self._exchange(path, headers)  # a kept connection that the kubelet has closed since

    def _exchange(self, path: str, headers: dict[str, str]) -> bytes:
        if self._connection is None:
            self._connection = self._open()
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read(MAX_BODY_BYTES + 1)
        if answer.status != http.client.OK:
            raise errors.KubeletUnreachable(f"{self._settings.url}{path}: {answer.status} {answer.reason}")
        if len(body) > MAX_BODY_BYTES:
            self.close()
            raise errors.KubeletUnreachable(f"{self._settings.url}{path}: more than {MAX_BODY_BYTES >> 20} MiB")
        return body

    def _open(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        context = ssl.create_default_context(cafile=str(self._settings.ca_file) if self._settings.ca_file else None)
        if self._settings.insecure_tls:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)


class PodSource:
    """The newest list of pods that was believable.

    An error or an empty list keeps the old one: a kubelet that has just started says "no pods" for a moment, and
    believing it would release every limit on the node.
    """

    def __init__(self, kubelet: Kubelet, clock: clocks.Clock) -> None:
        self._kubelet = kubelet
        self._clock = clock
        self._fetched_s: float | None = None
        self.pods: tuple[pod.Pod, ...] = ()
        self.failures = 0
        self.last_error = ""

    @property
    def age_seconds(self) -> float | None:
        """How old the list is; None before the first."""
        return None if self._fetched_s is None else self._clock.monotonic() - self._fetched_s

    def refresh(self) -> bool:
        """Ask once; return whether there is a new list."""
        try:
            listed = self._kubelet.pods()
        except errors.KubeletUnreachable as error:
            self.failures += 1
            self.last_error = str(error)
            return False
        if not listed and self.pods:
            self.last_error = "the kubelet listed no pods; the last list stays"
            return False
        self.last_error = ""
        self._fetched_s = self._clock.monotonic()
        self.pods = listed
        return True
