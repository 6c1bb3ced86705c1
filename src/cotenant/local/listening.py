"""Where the page is served: the address, the port, and the token that changes and listening beyond loopback need."""

import contextlib
import errno
import fcntl
import ipaddress
import os
import pathlib
import secrets
import socket

from cotenant.local.errors import BadDataDirectory, BadListenAddress, BadToken, ListenRefused, PortInUse

TOKEN_FILE = "token"
TOKEN_MINIMUM = 16


def is_loopback(listen: str) -> bool:
    """Return whether an address is reached from this machine alone.

    :raises BadListenAddress: if it is neither an IP address nor localhost.
    """
    if listen == "localhost":
        return True
    try:
        return ipaddress.ip_address(listen).is_loopback
    except ValueError:
        raise BadListenAddress(f"--listen {listen}: not an IP address (for every interface: 0.0.0.0)") from None


def check(listen: str, token_file: pathlib.Path | None) -> None:
    """Refuse to listen beyond loopback without a token of the user's own.

    :raises ListenRefused: in that case.
    """
    if not is_loopback(listen) and token_file is None:
        raise ListenRefused(
            f"--listen {listen}: others could reach it; give --token-file FILE with a secret of "
            f"{TOKEN_MINIMUM} or more characters"
        )


def bind(listen: str, port: int) -> socket.socket:
    """Return a socket that listens there.

    :raises PortInUse: if something else does already.
    :raises BadListenAddress: if the address is not this machine's, or the port is not allowed.
    """
    host = "127.0.0.1" if listen == "localhost" else listen
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's delay off where the protocol is named; else each answer on a kept connection waits 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"port {port} on {listen} is in use; choose another with --port") from error
        remedy = "; choose another with --port" if isinstance(error, PermissionError) else ""
        raise BadListenAddress(f"cannot listen on {listen} port {port}: {error.strerror}{remedy}") from error
    return listening


def url(listening: socket.socket) -> str:
    """Return the address to open in a browser."""
    host, port = listening.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if "." in host else "::1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def token_of(data: pathlib.Path, token_file: pathlib.Path | None) -> str:
    """Return the token: the given file's, else a new random one, kept in the data directory for its owner alone.

    :raises BadToken: if the given file cannot be read or holds too little.
    :raises BadDataDirectory: if the new one cannot be written.
    """
    if token_file is not None:
        try:
            token = token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadToken(f"--token-file {token_file}: {getattr(error, 'strerror', None) or error}") from error
        if len(token) < TOKEN_MINIMUM:
            raise BadToken(f"--token-file {token_file}: the token has fewer than {TOKEN_MINIMUM} characters")
        return token
    token = secrets.token_urlsafe(32)
    path = data / TOKEN_FILE
    new = path.with_name(f".{TOKEN_FILE}.{os.getpid()}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            return token  # A full disk must not stop the page; nobody knows this token, so nothing can be changed.
        raise BadDataDirectory(f"{path}: {error.strerror}; choose another directory with --data") from error
    return token


def data_place(given: pathlib.Path | None) -> pathlib.Path:
    """Return where history and token are kept, for those who only look: nothing need be there."""
    if given is not None:
        return given
    if os.geteuid() == 0:
        return pathlib.Path("/var/lib/cotenant")
    state = os.environ.get("XDG_STATE_HOME", "")
    return (pathlib.Path(state) if os.path.isabs(state) else pathlib.Path.home() / ".local" / "state") / "cotenant"


def data_directory(given: pathlib.Path | None) -> pathlib.Path:
    """Return the directory for history and token, made when it is not there.

    :raises BadDataDirectory: if it cannot be made.
    """
    path = data_place(given)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadDataDirectory(f"{path}: {error.strerror}; choose another directory with --data") from error
    return path


def claim(data: pathlib.Path) -> int:
    """Return a descriptor whose lock says that this process uses the data directory; it ends with the process.

    Two that share one would replace each other's token, and each would take the other's open incidents for left over.

    :raises BadDataDirectory: if another process uses it, or it cannot be opened.
    """
    try:
        descriptor = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BadDataDirectory(f"{data}: {error.strerror}; choose another directory with --data") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BadDataDirectory(f"{data}: another cotenant up uses it; choose another directory with --data") from None
    except OSError:
        return descriptor  # a file system without locks
    return descriptor
