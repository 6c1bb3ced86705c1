"""Nodes are changed, put back and let go: read, worked out, written for that very version, within a budget."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from cotenant.api.marks import MODE_LABEL
from cotenant.kube import errors
from cotenant.kube.budget import Budget
from cotenant.kube.client import NODES, Client
from cotenant.manager.controller import FIELD_MANAGER
from cotenant.manager.rollout.holding import Hold, holding_patch, release_patch
from cotenant.units.clock import Clock

_log = logging.getLogger(__name__)

CONCURRENT_WRITES = 8
KEPT_WHEN_LET_GO = frozenset({MODE_LABEL})
"""What stays on a node when its rollout ends well, or is deleted. Pins to a revision go: they would last for ever."""

Patch = Callable[[Mapping[str, Any]], dict[str, Any] | None]


@dataclasses.dataclass(slots=True)
class Counts:
    """What was written to nodes, and what could not be."""

    changed: int = 0
    released: int = 0
    finished: int = 0
    conflicts: int = 0
    failures: int = 0
    last_error: str = ""


class NodeWriter:
    """Writes to nodes. What could not be written is asked for again by the next step."""

    def __init__(self, client: Client, clock: Clock, budget: Budget | None = None) -> None:
        self._client = client
        self._budget = budget or Budget(clock)
        self._slots = asyncio.Semaphore(CONCURRENT_WRITES)
        self.counts = Counts()

    async def hold(self, asked: tuple[tuple[str, Hold], ...]) -> list[str]:
        """Change nodes, as many as the budget allows, and return those that were."""
        patches = {name: _holding(hold) for name, hold in asked}
        done = await self._all(patches)
        self.counts.changed += len(done)
        return done

    async def release(self, names: tuple[str, ...], uid: str) -> list[str]:
        """Put nodes back, as many as the budget allows, and return those that were."""
        done = await self._all({name: _releasing(uid, frozenset()) for name in names})
        self.counts.released += len(done)
        return done

    async def finish(self, names: tuple[str, ...], uid: str) -> list[str]:
        """Let nodes go with the mode they have, as many as the budget allows, and return those that were."""
        done = await self._all({name: _releasing(uid, KEPT_WHEN_LET_GO) for name in names})
        self.counts.finished += len(done)
        return done

    async def _all(self, patches: Mapping[str, Patch]) -> list[str]:
        chosen = list(patches)[: self._budget.available()]
        self._budget.spend(len(chosen))
        done = await asyncio.gather(*(self._write(name, patches[name]) for name in chosen))
        return [name for name, written in zip(chosen, done, strict=True) if written]

    async def _write(self, name: str, patch: Patch) -> bool:
        async with self._slots:
            try:
                node = await self._client.get(NODES, name, dict[str, Any])
                wanted = patch(node)
                if wanted is None:
                    return False
                await self._client.patch(NODES, name, wanted, field_manager=FIELD_MANAGER)
            except errors.Conflict:
                self.counts.conflicts += 1
                return False
            except errors.KubeError as error:
                self.counts.failures += 1
                self.counts.last_error = str(error)
                _log.warning("node %s: %s", name, error)
                return False
            return True


def _holding(hold: Hold) -> Patch:
    return lambda node: holding_patch(node, hold)


def _releasing(uid: str, keep: frozenset[str]) -> Patch:
    return lambda node: release_patch(node, uid, keep=keep)
