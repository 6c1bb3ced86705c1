import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.writing import ClusterSink, Writer
from cotenant.api import report
from cotenant.kube import errors
from cotenant.kube.budget import Budget
from cotenant.model import sample
from cotenant.units.clock import ManualClock


class Sink:
    """Keeps what is written, or fails."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.failure: errors.KubeError | None = None
        self.at_once = self.most_at_once = 0

    async def write(self, name: str, value: report.NodeInterferenceReport) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.failure is not None:
            raise self.failure
        self.written.append(name)


async def test_a_storm_is_written_within_the_budget_worst_first(
    fleet: Fleet, clock: ManualClock, make_sample: Callable[..., sample.Sample]
) -> None:
    for _ in range(12):
        clock.advance(1)
        for number in range(60):
            fleet.hear(f"calm-{number}", [make_sample(clock.monotonic())])
        fleet.hear("bad", [make_sample(clock.monotonic(), thrashing=True)])
    sink = Sink()
    writer = Writer(fleet, sink, clock, Budget(clock, per_second=20, burst=20))
    await writer.write_due()
    assert sink.written[0] == "bad"
    assert len(sink.written) == 21  # twenty nodes and the summary
    assert sink.most_at_once <= 8
    clock.advance(1)
    await writer.write_due()
    assert len(sink.written) == 41  # no second summary within ten seconds
    assert fleet.waiting() == 21


@pytest.mark.parametrize(
    "failure",
    [errors.Unreachable("away"), errors.Throttled("later", 429, "TooManyRequests", retry_after_seconds=5)],
)
async def test_while_the_api_server_does_not_answer_nothing_piles_up(
    fleet: Fleet, clock: ManualClock, live: Callable[..., None], failure: errors.KubeError
) -> None:
    live(12)
    sink = Sink()
    sink.failure = failure
    writer = Writer(fleet, sink, clock)
    await writer.write_due()
    tried = writer.written.failures
    await writer.write_due()
    assert writer.written.failures == tried  # the second did not even try
    sink.failure = None
    live(15, thrashing=True)
    await writer.write_due()
    assert "n1" in sink.written  # once, with the newest state
    assert sink.written.count("n1") == 1


async def test_a_write_that_a_lost_lease_cuts_off_is_made_in_the_next_term(
    fleet: Fleet, clock: ManualClock, live: Callable[..., None]
) -> None:
    class Silent(Sink):
        """Does not answer while it is asked to."""

        def __init__(self) -> None:
            super().__init__()
            self.asked = asyncio.Event()
            self.answering = asyncio.Event()

        async def write(self, name: str, value: report.NodeInterferenceReport) -> None:
            self.asked.set()
            await self.answering.wait()
            await super().write(name, value)

    live(12)
    sink = Silent()
    writer = Writer(fleet, sink, clock)
    term = asyncio.create_task(writer.run())
    await sink.asked.wait()
    term.cancel()
    await asyncio.gather(term, return_exceptions=True)
    assert sink.written == []
    sink.answering.set()
    live(40)
    await writer.write_due()
    assert "n1" in sink.written


async def test_reports_belong_to_their_node_and_are_applied_as_one_manager() -> None:
    class Client:
        """Notes what is applied."""

        def __init__(self) -> None:
            self.applied: list[tuple[str, Any, str | None]] = []
            self.gone = False

        async def get(self, resource: Any, name: str, kind: type[Any]) -> Any:
            return kind(metadata=kind.__annotations__["metadata"](uid=f"uid-{name}"))

        async def apply(self, resource: Any, name: str, value: Any, manager: str, **options: Any) -> None:
            assert (manager, options["force"]) == ("cotenant-analyzer", True)
            if self.gone and options.get("subresource"):
                raise errors.NotFound("gone", 404, "NotFound")
            self.applied.append((name, value, options.get("subresource")))

    client = Client()
    sink = ClusterSink(client)  # type: ignore[arg-type]
    value = report.NodeInterferenceReport(metadata={"name": "n1"}, spec=report.ReportSpec(node_name="n1"))
    await sink.write("n1", value)
    await sink.write("n1", value)
    assert [subresource for _, _, subresource in client.applied] == [None, "status", "status"]
    owner = client.applied[0][1]["metadata"]["ownerReferences"][0]
    assert owner == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}
    client.gone = True
    with pytest.raises(errors.NotFound):
        await sink.write("n1", value)
    client.gone = False
    await sink.write("n1", value)
    assert [subresource for _, _, subresource in client.applied][3:] == [None, "status"]
