"""Python code of the protobuf definitions, made by the locked grpcio-tools: the same bytes every time."""

import functools
import pathlib
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = "cotenant/v1"
SOURCES = {
    "stream.proto": ("stream_pb2.py", "stream_pb2.pyi", "stream_pb2_grpc.py"),
    "cri.proto": ("cri_pb2.py", "cri_pb2.pyi", "cri_pb2_grpc.py"),
    "nri.proto": ("nri_pb2.py", "nri_pb2.pyi"),
    "exposition.proto": ("exposition_pb2.py", "exposition_pb2.pyi"),
}
"""Each definition, and which files are kept of what is made of it."""
PACKAGE = "src/cotenant/api/v1"


@functools.cache
def generated() -> dict[str, str]:
    """Return the text of each generated file by its name.

    :raises RuntimeError: if the compiler refuses a definition.
    """
    from grpc_tools import protoc

    texts = {}
    with tempfile.TemporaryDirectory() as directory:
        arguments = ["protoc", f"-I{ROOT / 'proto'}", f"--python_out={directory}", f"--pyi_out={directory}"]
        for source, outputs in SOURCES.items():
            path = str(ROOT / "proto" / FOLDER / source)
            if protoc.main([*arguments, f"--grpc_python_out={directory}", path]) != 0:
                raise RuntimeError(f"protoc refuses {source}")
            texts |= {name: (pathlib.Path(directory) / FOLDER / name).read_text() for name in outputs}
    # The compiler names the package after the proto's own; ours is below cotenant.api.
    return {
        name: text.replace("from cotenant.v1 import", "from cotenant.api.v1 import") for name, text in texts.items()
    }


def files() -> dict[str, functools.partial[str]]:
    """Return the renderers by path, for the table of generated files."""
    names = [name for outputs in SOURCES.values() for name in outputs]
    return {f"{PACKAGE}/{name}": functools.partial(lambda wanted: generated()[wanted], name) for name in names}
