"""Python code of the protobuf definitions, made by the locked grpcio-tools: the same bytes every time."""

import functools
import pathlib
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = "cotenant/v1/stream.proto"
PACKAGE = "src/cotenant/api/v1"
OUTPUTS = ("stream_pb2.py", "stream_pb2.pyi", "stream_pb2_grpc.py")


@functools.cache
def generated() -> dict[str, str]:
    """Return the text of each generated file by its name.

    :raises RuntimeError: if the compiler refuses a definition.
    """
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as directory:
        arguments = ["protoc", f"-I{ROOT / 'proto'}", f"--python_out={directory}", f"--pyi_out={directory}"]
        if protoc.main([*arguments, f"--grpc_python_out={directory}", str(ROOT / "proto" / SOURCE)]) != 0:
            raise RuntimeError(f"protoc refuses {SOURCE}")
        made = pathlib.Path(directory) / pathlib.Path(SOURCE).parent
        # The compiler names the package after the proto's own; ours is below cotenant.api.
        texts = {name: (made / name).read_text() for name in OUTPUTS}
    return {
        name: text.replace("from cotenant.v1 import", "from cotenant.api.v1 import") for name, text in texts.items()
    }


def files() -> dict[str, functools.partial[str]]:
    """Return the renderers by path, for the table of generated files."""
    return {f"{PACKAGE}/{name}": functools.partial(lambda wanted: generated()[wanted], name) for name in OUTPUTS}
