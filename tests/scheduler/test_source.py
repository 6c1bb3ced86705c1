import json
import os
import pathlib

import pytest

from cotenant.api.errors import BadFile
from cotenant.scheduler import source


def reports(*nodes: str) -> str:
    return json.dumps({"kind": "List", "items": [{"metadata": {"name": node}} for node in nodes]})


def replace(path: pathlib.Path, text: str) -> None:
    """Write as `kubectl … > new && mv new file` does."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


async def test_a_changed_file_is_read_again_and_a_bad_one_keeps_the_last_good(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "reports.json"
    path.write_text(reports("a"))
    files = source.FileSource(path)
    assert not await files.reload()
    replace(path, reports("a", "b"))
    assert await files.reload()
    assert set(files.table.rows) == {"a", "b"}
    replace(path, "{")
    assert not await files.reload()
    assert set(files.table.rows) == {"a", "b"}
    assert files.errors == 1
    assert "reports.json" in str(files.describe()["lastError"])
    path.unlink()
    assert not await files.reload()
    assert files.errors == 2
    replace(path, reports("c"))
    assert await files.reload()
    assert set(files.table.rows) == {"c"}
    assert files.describe()["lastError"] is None


async def test_a_file_that_is_empty_for_a_moment_keeps_the_last_good(tmp_path: pathlib.Path) -> None:
    """`kubectl get … > FILE` empties the file first, and fills it when the API server has answered."""
    path = tmp_path / "reports.json"
    path.write_text(reports("a"))
    files = source.FileSource(path)
    path.write_text("")
    assert not await files.reload()
    assert set(files.table.rows) == {"a"}


async def test_a_process_that_is_started_again_waits_for_a_file_that_can_be_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "reports.json"
    path.write_text("{")
    files = source.FileSource(path, restarted=True)
    assert (files.table.rows, files.errors) == ({}, 1)
    assert "reports.json" in str(files.describe()["lastError"])
    replace(path, reports("a"))
    assert await files.reload()
    assert set(files.table.rows) == {"a"}


def test_times_of_a_yaml_file_need_no_quotes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "reports.yaml"
    path.write_text("kind: null\nmetadata: {name: a}\nstatus: {expiresAt: 2026-11-30T00:30:00Z}\n")
    assert source.FileSource(path).table.rows["a"].expires_at == 1795998600.0
    path.write_text("metadata: {name: a}\nstatus: {expiresAt: 2026-13-45}\n")
    assert source.FileSource(path).table.rows["a"].expires_at == 0.0


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[1, 2]", "not a Kubernetes object"),
        (b'{"items": {}}', "items is not a list"),
        (b'{"items": [', "kubectl get -o json"),
        (b"a: [b", "neither JSON nor YAML"),
        (b"\xff\xfe\x00", "neither JSON nor YAML"),
        (b'{"items": ' + b"[" * 50_000, "kubectl get -o json"),
        (b"a: " + b"1" * 5000, "neither JSON nor YAML"),
        (b" \n", "empty"),
        (b"null", "empty"),
    ],
)
def test_a_bad_file_at_the_start_is_refused_by_name(tmp_path: pathlib.Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "reports.json"
    path.write_bytes(content)
    with pytest.raises(BadFile, match=complaint) as caught:
        source.FileSource(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_at_the_start_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(BadFile, match="No such file"):
        source.FileSource(tmp_path / "missing.json")


def test_items_that_are_no_report_are_counted_and_passed_over(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "reports.json"
    items = [{"metadata": {"name": "a"}}, {"kind": "Node", "metadata": {"name": "b"}}, {"status": {}}, 7]
    path.write_text(json.dumps({"items": items}))
    files = source.FileSource(path)
    assert set(files.table.rows) == {"a"}
    assert files.malformed == 2


def test_objects_as_yaml_documents_and_as_typed_lists(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text(
        "kind: RuntimeClass\nmetadata: {name: kata}\nhandler: kata\n"
        "---\nkind: NodeList\nitems:\n- metadata: {name: a}\n"
    )
    nodes, runtime_classes = source.read_runtime(path)
    assert set(nodes) == {"a"}
    assert runtime_classes["kata"].handler == "kata"


def test_null_in_an_object_is_what_was_left_out(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "objects.json"
    sparse = {"kind": "Node", "metadata": {"name": "a", "uid": None}, "spec": None, "status": {"conditions": [None]}}
    plain = {"kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": None, "scheduling": None}
    path.write_text(json.dumps({"items": [sparse, plain]}))
    nodes, runtime_classes = source.read_runtime(path)
    assert (nodes["a"].metadata.uid, nodes["a"].status.conditions) == ("", [])
    assert runtime_classes["kata"].handler == ""


def test_an_object_that_holds_itself_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text("&a\nkind: Node\nmetadata: {name: null}\nspec: *a\nstatus: {conditions: *a}\n")
    with pytest.raises(BadFile, match="Node"):
        source.read_runtime(path)


def test_an_object_of_the_wrong_shape_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "objects.json"
    path.write_text('{"kind": "Node", "metadata": {"name": []}}')
    with pytest.raises(BadFile, match="Node"):
        source.read_runtime(path)
