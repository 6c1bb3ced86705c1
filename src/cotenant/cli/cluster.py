"""Questions of a command to a cluster."""

import asyncio
import pathlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from cotenant.kube.client import Client

Answer = TypeVar("Answer")

PATIENCE_SECONDS = 60.0
"""For one answer: a person waits for a slow API server rather than being told to try again."""


def ask(kubeconfig: pathlib.Path | None, user_agent: str, question: "Callable[[Client], Awaitable[Answer]]") -> Answer:
    """Return what a question gives, which is asked of the cluster of a kubeconfig; None: the usual one.

    :raises BadConfiguration: if that cannot be read.
    """
    from cotenant.kube.client import Client
    from cotenant.kube.configuration import load_configuration

    async def work() -> Answer:
        async with Client(load_configuration(kubeconfig), user_agent, timeout_seconds=PATIENCE_SECONDS) as client:
            return await question(client)

    return asyncio.run(work())
