import pathlib
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from cotenant.api.v1 import cri_pb2, cri_pb2_grpc
from cotenant.node import errors, runtime


class Served(cri_pb2_grpc.RuntimeServiceServicer):
    """A runtime on a socket: ``broken`` containers cannot be stopped, ``gone`` ones are not there."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def StopContainer(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.asked.append((request.container_id, request.timeout))
        if request.container_id == "broken":
            context.abort(grpc.StatusCode.UNKNOWN, "failed to kill")
        if request.container_id == "gone":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such container")
        return cri_pb2.StopContainerResponse()


@pytest.fixture
def served(tmp_path: pathlib.Path) -> Iterator[tuple[Served, pathlib.Path]]:
    servicer, socket = Served(), tmp_path / "run/containerd/containerd.sock"
    socket.parent.mkdir(parents=True)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    cri_pb2_grpc.add_RuntimeServiceServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    yield servicer, socket
    server.stop(0).wait()


def test_every_container_is_stopped_whatever_becomes_of_the_others(served: tuple[Served, pathlib.Path]) -> None:
    servicer, socket = served
    asked = runtime.Runtime(socket)
    assert asked.stop(["a", "broken", "gone", "b"], grace_seconds=2) == ["a", "gone", "b"]
    assert servicer.asked == [("a", 2), ("broken", 2), ("gone", 2), ("b", 2)]
    asked.close()


def test_when_nothing_was_stopped_that_is_an_error(served: tuple[Served, pathlib.Path]) -> None:
    asked = runtime.Runtime(served[1])
    with pytest.raises(errors.RuntimeUnreachable, match="broken: failed to kill"):
        asked.stop(["broken"])
    asked.close()


def test_a_socket_nobody_listens_on(tmp_path: pathlib.Path) -> None:
    asked = runtime.Runtime(tmp_path / "none.sock")
    with pytest.raises(errors.RuntimeUnreachable, match=r"none\.sock"):
        asked.stop(["a"])
    asked.close()
