"""The image: what a Containerfile says, where a package's files go, the same bytes for the same content."""

import hashlib
import io
import json
import pathlib
import sys
import tarfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "packaging/image"))

import build
import containerfile
import debian
import layers
import oci

ROOT = pathlib.Path(__file__).resolve().parents[2]


def names(content: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return tar.getnames()


def test_the_containerfile_names_the_layers_that_are_built_and_a_user_that_is_not_root() -> None:
    described = containerfile.parse((ROOT / "packaging/image/Containerfile").read_text())
    assert described.layers == ("debian.tar", "python.tar", "cotenant.tar")
    assert described.config["User"] == "65532:65532"
    assert "65532:65532" in build.ACCOUNTS["etc/passwd"]
    assert described.config["Entrypoint"] == ["/usr/local/bin/cotenant"]
    assert all("=" in entry for entry in described.config["Env"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("FROM debian\nADD a.tar /", "line 1: FROM debian"),
        ("FROM scratch\nRUN true\nADD a.tar /", "line 2: RUN true"),
        ("FROM scratch\nADD a.tar /opt", "line 2"),
        ("FROM scratch\nENV A\nADD a.tar /", "line 2"),
        ("FROM scratch\nADD a.tar /\nCMD [", "line 3"),
        ("FROM scratch", "no ADD"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, place: str) -> None:
    with pytest.raises(containerfile.BadContainerfile, match=place.replace("[", r"\[")):
        containerfile.parse(text)


@pytest.mark.parametrize(
    ("shipped", "placed"),
    [
        ("./lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("./lib64/ld-linux-x86-64.so.2", "usr/lib64/ld-linux-x86-64.so.2"),
        ("./usr/bin/python3.11", "usr/bin/python3.11"),
        ("./etc/x", "etc/x"),
        ("./", ""),
    ],
)
def test_a_packages_files_go_below_a_merged_usr(shipped: str, placed: str) -> None:
    assert layers.merged(shipped) == placed


def package(**files: bytes) -> io.BytesIO:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"./{name.replace('__', '/')}")
            info.size, info.mode, info.uid, info.mtime = len(content), 0o755, 1000, 12345
            tar.addfile(info, io.BytesIO(content))
    data.seek(0)
    return data


def test_a_package_is_taken_without_what_is_left_out_and_without_its_owner_and_time() -> None:
    shipped = package(
        usr__bin__a=b"a", usr__share__man__b=b"b", usr__share__doc__c__copyright=b"c", usr__share__doc__c__x=b""
    )
    entries = list(layers.of_package(shipped, debian.wanted))
    assert [info.name for info, _ in entries] == ["usr/bin/a", "usr/share/doc/c/copyright"]
    with tarfile.open(fileobj=io.BytesIO(layers.archive(entries, 7))) as tar:
        found = tar.getmember("usr/bin/a")
    assert (found.uid, found.mtime, found.mode) == (0, 7, 0o755)


def test_modules_without_their_libraries_are_left_out() -> None:
    assert not debian.wanted("usr/lib/python3.11/lib-dynload/readline.cpython-311-x86_64-linux-gnu.so")
    assert debian.wanted("usr/lib/python3.11/lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so")


def test_an_archive_is_the_same_whatever_the_order_and_every_file_has_its_folders() -> None:
    one, two = layers.file_entry("a/b/c", b"1"), layers.file_entry("a/d", b"2", executable=True)
    first = layers.archive([one, two], 1)
    assert first == layers.archive([two, one], 1)
    assert names(first) == ["a", "a/b", "a/b/c", "a/d"]


def test_the_last_of_two_files_wins() -> None:
    with tarfile.open(
        fileobj=io.BytesIO(layers.archive([layers.file_entry("a", b"1"), layers.file_entry("a", b"2")], 1))
    ) as tar:
        held = tar.extractfile("a")
        assert held is not None
        assert held.read() == b"2"


def test_a_layout_names_every_blob_by_its_digest(tmp_path: pathlib.Path) -> None:
    layer = layers.archive([layers.file_entry("a", b"1")], 1)
    images = [oci.Image(architecture, [layer], {"User": "1"}) for architecture in ("amd64", "arm64")]
    path = tmp_path / "image.tar"
    oci.write(path, "localhost/x:1", images, 1)
    with tarfile.open(path) as tar:
        held = {name: tar.extractfile(name) for name in tar.getnames() if tar.getmember(name).isfile()}
        content = {name: file.read() for name, file in held.items() if file is not None}
    blobs = {name.rpartition("/")[2]: text for name, text in content.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(text).hexdigest() == digest for digest, text in blobs.items())
    (top,) = json.loads(content["index.json"])["manifests"]
    assert top["annotations"]["io.containerd.image.name"] == "localhost/x:1"
    index = json.loads(blobs[top["digest"].partition(":")[2]])
    assert [one["platform"]["architecture"] for one in index["manifests"]] == ["amd64", "arm64"]
    for one in index["manifests"]:
        manifest = json.loads(blobs[one["digest"].partition(":")[2]])
        config = json.loads(blobs[manifest["config"]["digest"].partition(":")[2]])
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]


def test_the_version_is_the_programs_own_and_the_charts() -> None:
    import yaml

    import cotenant

    chart = yaml.safe_load((ROOT / "charts/cotenant/Chart.yaml").read_text())
    assert build.version() == cotenant.__version__ == chart["appVersion"] == chart["version"]
