import pytest

from cotenant.kernel.bpf import libbpf
from cotenant.kernel.bpf.errors import BpfUnavailable


@pytest.fixture(scope="session")
def needs_libbpf():
    try:
        return libbpf.library()
    except BpfUnavailable as error:
        pytest.skip(str(error))
