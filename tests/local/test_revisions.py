import pathlib

import pytest

from cotenant.detect.errors import BadRules
from cotenant.local import revisions, rules_file

HEAD = "apiVersion: cotenant.io/v1alpha1\nkind: DetectionRuleConfig\n"
A, B, C = (HEAD + f"spec: {{windowSeconds: {seconds}}}\n" for seconds in (10, 20, 30))


def kept(tmp_path: pathlib.Path, *texts: str) -> tuple[revisions.Revisions, pathlib.Path]:
    file = tmp_path / "rules.yaml"
    store = revisions.Revisions(tmp_path / "data")
    for text in texts:
        store.record(text, str(file), "change", 1_800_000_000)
    file.write_text(texts[-1] if texts else "")
    return store, file


def test_each_change_is_one_revision_and_no_change_is_none(tmp_path: pathlib.Path) -> None:
    store, file = kept(tmp_path, A, A, B, A)
    assert [(r.number, r.text) for r in store.history()] == [(1, A), (2, B), (3, A)]
    assert store.history()[0].time == "2027-01-15T08:00:00Z"
    assert store.history()[0].file == str(file)


def test_rolls_back_to_the_newest_that_differs_or_to_a_number(tmp_path: pathlib.Path) -> None:
    store, file = kept(tmp_path, A, B, C)
    file.chmod(0o640)
    assert store.roll_back(None).number == 2
    assert file.read_text() == B
    assert file.stat().st_mode & 0o777 == 0o640
    assert store.roll_back(1).number == 1
    assert file.read_text() == A
    other = tmp_path / "other.yaml"
    store.roll_back(3, other)
    assert other.read_text() == C
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "other.yaml", "rules.yaml"]


def test_a_link_stays_a_link(tmp_path: pathlib.Path) -> None:
    store, file = kept(tmp_path, A, B)
    target = tmp_path / "target.yaml"
    file.rename(target)
    file.symlink_to(target)
    store.roll_back(1)
    assert file.is_symlink()
    assert target.read_text() == A


def test_what_cannot_be_done_is_said(tmp_path: pathlib.Path) -> None:
    store, _ = kept(tmp_path)
    with pytest.raises(revisions.RevisionError, match="no revision is kept"):
        store.roll_back(None)
    store, _ = kept(tmp_path, A)
    with pytest.raises(revisions.RevisionError, match="nothing before revision 1"):
        store.roll_back(None)
    with pytest.raises(revisions.RevisionError, match="no revision 7; there are only 1"):
        store.roll_back(7)
    with pytest.raises(revisions.RevisionError, match="cannot be written"):
        store.roll_back(1, tmp_path / "missing" / "rules.yaml")


def test_a_revision_that_is_refused_by_now_is_not_written(tmp_path: pathlib.Path) -> None:
    store, file = kept(tmp_path, HEAD + "spec: {windowSeconds: 1}\n", B)
    with pytest.raises(BadRules, match="revision 1:3"):
        store.roll_back(1)
    assert file.read_text() == B


def test_only_so_many_are_kept_and_damaged_ones_are_left_out(tmp_path: pathlib.Path) -> None:
    store, _ = kept(tmp_path, *(HEAD + f"# {n}\n" for n in range(revisions.MOST + 5)))
    history = store.history()
    assert (len(history), history[0].number, history[-1].number) == (revisions.MOST, 6, revisions.MOST + 5)
    (store.directory / "000020.json").write_text('{"number": 20, "ti')
    (store.directory / "note.txt").write_text("mine")
    assert [r.number for r in store.history()] == [n for n in range(6, revisions.MOST + 6) if n != 20]
    assert store.record(A, "x", "change", 0).number == revisions.MOST + 6


def test_a_directory_that_cannot_be_made_is_an_error_of_its_own(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(revisions.RevisionError, match="cannot"):
        revisions.Revisions(tmp_path / "data").record(A, "x", "start", 0)


def test_rules_for_one_host(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "r.yaml"

    def document(name: str, selector: str) -> str:
        return f"---\n{HEAD}metadata: {{name: {name}}}\nspec: {{nodeSelector: {selector}}}\n"

    file.write_text(document("a", "{zone: x}"))
    assert rules_file.for_one_host(rules_file.load(file)).rules.name == "a"
    file.write_text(document("a", "{zone: x}") + document("b", "{}"))
    assert rules_file.for_one_host(rules_file.load(file)).rules.name == "b"
    file.write_text(document("a", "{zone: x}") + document("b", "{zone: y}"))
    with pytest.raises(BadRules, match="one is needed without"):
        rules_file.for_one_host(rules_file.load(file))


def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path: pathlib.Path) -> None:
    with pytest.raises(BadRules, match=r"no\.yaml: cannot be read: No such file"):
        rules_file.load(tmp_path / "no.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"\xe4: 1\n")
    with pytest.raises(BadRules, match="not UTF-8"):
        rules_file.load(tmp_path / "latin.yaml")
