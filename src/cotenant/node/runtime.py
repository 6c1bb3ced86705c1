"""The container runtime's own interface (CRI), for when memory runs out faster than the API server answers.

Only one call of it is used: to stop a container. It comes last, after the Eviction API.
"""

import pathlib
from collections.abc import Iterable

import grpc

from cotenant.api.v1 import cri_pb2, cri_pb2_grpc
from cotenant.node import errors

CALL_SECONDS = 5.0


class Runtime:
    """One node's container runtime. The connection is opened at the first call."""

    def __init__(self, socket: pathlib.Path) -> None:
        self.socket = socket
        self._channel: grpc.Channel | None = None

    def stop(self, containers: Iterable[str], grace_seconds: int = 0) -> list[str]:
        """Stop containers by id; return those that are stopped now, also those that were already gone.

        Each is tried, whatever becomes of the others.

        :raises RuntimeUnreachable: if not one call was answered.
        """
        if self._channel is None:
            self._channel = grpc.insecure_channel(f"unix:{self.socket}")
        stub = cri_pb2_grpc.RuntimeServiceStub(self._channel)
        stopped, failures = [], []
        for container in containers:
            request = cri_pb2.StopContainerRequest(container_id=container, timeout=grace_seconds)
            try:
                stub.StopContainer(request, timeout=grace_seconds + CALL_SECONDS)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    failures.append(f"{container[:12]}: {error.details() or error.code().name}")
                    continue
            stopped.append(container)
        if failures and not stopped:
            raise errors.RuntimeUnreachable(f"{self.socket}: {failures[0]}")
        return stopped

    def close(self) -> None:
        """End the connection."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
