"""Network priority and bandwidth of offline work, where the kernel has them: openEuler's oncn-bwm.

Traffic of offline pods is marked by ``net_cls.classid``. While online traffic is below the water line, all offline
traffic together may send up to the upper bandwidth, above it up to the lower one. Source: oncn-bwm's documentation and
its module's code, July 2026; amounts there are in units of 1024 bytes a second and their multiples.
"""

import dataclasses
import decimal

from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model.policy import NodeSlo
from cotenant.units import quantity

OFFLINE_CLASS = str(2**32 - 1)
"""What openEuler's network QoS takes as priority -1."""
ONLINE_CLASS = "0"
DEFAULT_REQUEST_PERCENT, DEFAULT_LIMIT_PERCENT = 0, 100
"""By Koordinator's CRD: what a field that is left out means beside one that is not."""
MIB = 1 << 20
BANDWIDTH_MIB = (1, 9999 * 1024)
WATERLINE_MIB = (20, 9999 * 1024)
"""What bwmcli takes."""
POD_ANNOTATION = "koordinator.sh/networkQOS"
_QOS = "spec.resourceQOSStrategy.beClass.networkQOS"
_TOTAL = "spec.systemStrategy.totalNetworkBandwidth"


@dataclasses.dataclass(frozen=True, slots=True)
class Bandwidth:
    """What offline work may send, in MiB a second. ``waterline_mib`` None: the link's bandwidth is not known."""

    low_mib: int
    high_mib: int
    waterline_mib: int | None

    @property
    def range_text(self) -> str:
        return f"{self.low_mib}mb,{self.high_mib}mb"


def bandwidth(request: int | str | None, limit: int | str | None, total: int | str | None) -> Bandwidth | None:
    """Return the bandwidth by ``egressRequest`` and ``egressLimit``; None when neither is given.

    A number is percent of the total; a text, and the total, is a quantity of bits a second. The water line is what the
    limit leaves of the total. Rounded down to MiB a second, within what bwmcli takes, low below high.

    :raises ValueError: if a percentage is not within 0..100, or there is one and the total is not known.
    :raises BadQuantity: if a text is no quantity.
    """
    if request is None and limit is None:
        return None
    link = _known(total)
    low = _bits(DEFAULT_REQUEST_PERCENT if request is None else request, link)
    high = _bits(DEFAULT_LIMIT_PERCENT if limit is None else limit, link)
    if low > high:
        raise ValueError(f"egressRequest {request} is more than egressLimit {limit}")
    high_mib = _mib(high, (BANDWIDTH_MIB[0] + 1, BANDWIDTH_MIB[1]))
    low_mib = min(_mib(low, BANDWIDTH_MIB), high_mib - 1)
    return Bandwidth(low_mib, high_mib, None if link is None else _mib(link - high, WATERLINE_MIB))


def _known(total: int | str | None) -> decimal.Decimal | None:
    """Return the bandwidth of the link in bits a second; 0 is what a manager writes where nobody says."""
    bits = None if total is None else quantity.parse(total)
    return bits if bits is not None and bits > 0 else None


def _bits(value: int | str, link: decimal.Decimal | None) -> decimal.Decimal:
    if isinstance(value, str):
        return quantity.parse(value)
    if not 0 <= value <= 100:
        raise ValueError(f"{value} is not a percentage: write 0..100, or a quantity of bits a second in quotes")
    if value == 0:
        return decimal.Decimal(0)
    if link is None:
        raise ValueError(f"{value} % of what: set {_TOTAL}, or write quantities")
    return link * value / 100


def _mib(bits: decimal.Decimal, bounds: tuple[int, int]) -> int:
    return min(max(int(bits / 8 / MIB), bounds[0]), bounds[1])


@strategy(
    "network",
    fields=(f"{_QOS}.enable", f"{_QOS}.egressRequest", f"{_QOS}.egressLimit", _TOTAL),
    features=("net_cls.classid", "openEuler network QoS"),
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Mark the traffic of pods labelled BE as offline, and bound what it sends, where openEuler has network QoS.

    ``egressRequest`` is what offline work may send in any case, ``egressLimit`` what it may send while online work
    leaves that much of ``totalNetworkBandwidth``. Without either the node keeps the bandwidth that it has. Which
    network devices take part is for the network plug-in, or ``bwmcli -e``. Elsewhere nothing is done, and that is said.
    """
    snapshot = draft.snapshot
    on = bool(slo.qos.be_class.network_qos.enable)
    if on and (snapshot.version("net_cls") != 1 or not snapshot.files.exists(f"{snapshot.proc}/qos/net_qos_bandwidth")):
        draft.skipped.append("unsupported: this kernel has no network QoS (openEuler's net_cls.classid and oncn-bwm)")
        return
    for group in snapshot.groups:
        if group.pod is None or group.pod.qos_label != "BE" or not group.pod.active:
            continue
        for path in (group.path, *(child.path for child in group.containers)):
            file = snapshot.path("net_cls", path, "net_cls.classid")
            if on:
                draft.write(file, OFFLINE_CLASS, f"pod {group.pod.key} (BE): offline traffic")
            else:
                draft.release(file, ONLINE_CLASS, "network QoS of class BE is off")
    if on:
        _name_annotated(draft)
    _bound(draft, slo, on)


def _name_annotated(draft: Draft) -> None:
    pods = [pod.key for pod in draft.snapshot.pods if pod.active and POD_ANNOTATION in pod.annotations]
    if pods:
        draft.notices.append(
            f"annotation {POD_ANNOTATION} of {', '.join(sorted(pods)[:3])}{' …' if len(pods) > 3 else ''}: a pod's own "
            "bandwidth is not followed; use kubernetes.io/egress-bandwidth, which network plug-ins follow"
        )


def _bound(draft: Draft, slo: NodeSlo, on: bool) -> None:
    """State bandwidth and water line by the policy; without one, what was there before us."""
    asked, system = slo.qos.be_class.network_qos, slo.system
    wanted = None
    if on:
        try:
            total = None if system is None else system.total_network_bandwidth
            wanted = bandwidth(asked.egress_request, asked.egress_limit, total)
        except (ValueError, quantity.BadQuantity) as error:
            draft.notices.append(f"{_QOS}: {error}; the node keeps its bandwidth")
            return
    waterline = None if wanted is None else wanted.waterline_mib
    texts = {
        "net_qos_bandwidth": None if wanted is None else wanted.range_text,
        "net_qos_waterline": None if waterline is None else f"{waterline}mb",
    }
    for name, text in texts.items():
        path = f"{draft.snapshot.proc}/qos/{name}"
        if text is None:
            before = draft.snapshot.journal.get(path)
            if before:
                draft.release(path, before, "network QoS of class BE sets no bandwidth")
            continue
        # Before the first write the file shows nothing, although there is a value: it cannot be written back.
        nothing = not draft.snapshot.journal.get(path, draft.snapshot.files.read(path))
        draft.write(path, text, "what all offline work may send", irreversible=nothing)
