"""Without BPF there is a reason, never an error."""

from cotenant.kernel import paths
from cotenant.kernel.bpf import libbpf
from cotenant.kernel.bpf.errors import BpfUnavailable
from cotenant.kernel.bpf.tracer import BpfTracer


def test_another_roots_tree_never_loads_anything(tmp_path):
    tracer = BpfTracer(paths.Root(tmp_path))
    assert tracer.read() == "no_bpf"
    assert [program.missing for program in tracer.programs] == ["no_bpf", "no_bpf"]
    tracer.close()


def test_without_the_library(monkeypatch):
    libbpf.library.cache_clear()
    monkeypatch.setattr(libbpf, "LIBRARY", "libabsent-of-cotenant.so.1")
    try:
        tracer = BpfTracer(paths.Root())
        assert tracer.read() == "no_libbpf"
        assert {program.missing for program in tracer.programs} == {"no_libbpf"}
    finally:
        libbpf.library.cache_clear()


def test_a_kernel_without_type_information(monkeypatch):
    def absent() -> None:
        raise BpfUnavailable("no_btf", "kernel type information (BTF): No such file or directory")

    monkeypatch.setattr("cotenant.kernel.bpf.btf.Btf.of_kernel", absent)
    assert BpfTracer(paths.Root()).read() == "no_btf"
