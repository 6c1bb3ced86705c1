import os
import pathlib
import stat

import pytest
from tests.web.connecting import without_delay

from cotenant.local import errors, listening


@pytest.mark.parametrize("listen", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_loopback_needs_no_token(listen: str) -> None:
    listening.check(listen, None)


@pytest.mark.parametrize("listen", ["0.0.0.0", "::", "10.1.2.3"])
def test_beyond_loopback_needs_one(listen: str) -> None:
    with pytest.raises(errors.ListenRefused, match="--token-file"):
        listening.check(listen, None)
    listening.check(listen, pathlib.Path("token"))


def test_an_address_must_be_one() -> None:
    with pytest.raises(errors.BadListenAddress, match="example"):
        listening.check("example", None)


def test_a_port_in_use_is_one_clear_line() -> None:
    with listening.bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert listening.url(first) == f"http://127.0.0.1:{port}/"
        with pytest.raises(errors.PortInUse, match=rf"port {port} on 127.0.0.1 is in use.*--port"):
            listening.bind("127.0.0.1", port)


async def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head() -> None:
    with listening.bind("127.0.0.1", 0) as bound:
        assert await without_delay(bound)


def test_an_address_of_another_machine() -> None:
    with pytest.raises(errors.BadListenAddress, match=r"203\.0\.113\.1"):
        listening.bind("203.0.113.1", 0)


def test_a_new_token_each_start_for_the_owner_alone(tmp_path: pathlib.Path) -> None:
    first = listening.token_of(tmp_path, None)
    second = listening.token_of(tmp_path, None)
    assert first != second
    path = tmp_path / listening.TOKEN_FILE
    assert path.read_text().strip() == second
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [listening.TOKEN_FILE]


def test_a_given_token(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(errors.BadToken, match="No such file"):
        listening.token_of(tmp_path, path)
    path.write_text("short\n")
    with pytest.raises(errors.BadToken, match="fewer than 16"):
        listening.token_of(tmp_path, path)
    path.write_text("0123456789abcdef\n")
    assert listening.token_of(tmp_path, path) == "0123456789abcdef"
    assert os.listdir(tmp_path) == ["secret"]


def test_the_data_directory_fits_the_user(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = listening.data_directory(None)
    assert path == tmp_path / "state" / "cotenant"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.BadDataDirectory, match="--data"):
        listening.data_directory(tmp_path / "file" / "below")


def test_one_process_at_a_time_uses_a_data_directory(tmp_path: pathlib.Path) -> None:
    first = listening.claim(tmp_path)
    with pytest.raises(errors.BadDataDirectory, match=r"another cotenant up uses it.*--data"):
        listening.claim(tmp_path)
    os.close(first)
    os.close(listening.claim(tmp_path))
    with pytest.raises(errors.BadDataDirectory, match="--data"):
        listening.claim(tmp_path / "none")
