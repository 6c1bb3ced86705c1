import pathlib

from cotenant.kernel import paths
from cotenant.kernel.cgroup.writers import Writers


class Processes:
    def __init__(self, directory: pathlib.Path) -> None:
        self._proc = directory / "proc"
        self.writers = Writers(paths.Root(directory))

    def wrote(self, pid: int, total: int) -> None:
        (self._proc / str(pid)).mkdir(parents=True, exist_ok=True)
        (self._proc / str(pid) / "io").write_text(f"rchar: 1\nwrite_bytes: {total}\ncancelled_write_bytes: 0\n")


def test_processes_that_rested_count_from_where_they_were(tmp_path: pathlib.Path) -> None:
    processes = Processes(tmp_path)
    processes.wrote(7, 100)
    writers = processes.writers
    assert writers.written([b"7"]) == 0
    for _ in range(3):
        writers.step()
        writers.rest([b"7", b"8"])
    writers.step()
    processes.wrote(7, 150)
    processes.wrote(8, 1000)
    assert writers.written([b"7", b"8"]) == 50, "8 is new, whatever was said of it before"


def test_one_that_was_read_in_another_group_is_not_put_back_by_the_group_that_it_left(tmp_path: pathlib.Path) -> None:
    processes = Processes(tmp_path)
    writers = processes.writers
    processes.wrote(7, 100)
    assert writers.written([b"7"]) == 0
    writers.step()
    processes.wrote(7, 120)
    assert writers.written([b"7"]) == 20
    writers.rest([b"7"])
    writers.step()
    assert writers.written([b"7"]) == 0
