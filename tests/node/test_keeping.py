import pathlib

from cotenant.kernel import paths
from cotenant.node.keeping import KEEP_SECONDS, Keeping
from cotenant.units.clock import ManualClock


def test_what_was_found_on_a_live_node_is_kept_for_half_a_minute() -> None:
    clock = ManualClock()
    keeping = Keeping(paths.Root(), clock)
    first = keeping.current()
    assert first[1] is not None
    clock.advance(KEEP_SECONDS - 1)
    assert keeping.current() is first
    clock.advance(1)
    later = keeping.current()
    assert later[0] is not first[0]
    assert later[1] is not first[1]


def test_of_a_tree_of_plain_files_nothing_is_kept(tmp_path: pathlib.Path) -> None:
    keeping = Keeping(paths.Root(tmp_path), ManualClock())
    planner, earlier = keeping.current()
    assert earlier is None
    assert keeping.current()[0] is not planner
