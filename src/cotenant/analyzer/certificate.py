"""The stream's certificate, read anew when its files change: a Secret that is renewed needs no restart."""

import logging
import pathlib

import grpc

from cotenant.analyzer.errors import BadListen

_log = logging.getLogger(__name__)

Stamp = tuple[int, ...]


class ServerCertificate:
    """A PEM certificate and its key; the last good pair stays while the files cannot be read."""

    def __init__(self, certificate: pathlib.Path, key: pathlib.Path) -> None:
        self._files = (key, certificate)
        self._stamp: Stamp | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Return the server's TLS; each new connection gets the newest pair.

        :raises BadListen: if the files cannot be read now.
        """
        try:
            self._stamp = self._stamp_of()
            first = self._read()
        except OSError as error:
            raise BadListen(f"{error.filename}: {error.strerror}; give a PEM certificate and its key") from None
        return grpc.dynamic_ssl_server_credentials(first, self.renewed)

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the pair if it has changed since it was last asked for, else None; called for each connection."""
        try:
            stamp = self._stamp_of()
            if stamp == self._stamp:
                return None
            pair = self._read()
        except OSError as error:
            _log.warning("%s: %s; the certificate in force stays", error.filename, error.strerror)
            return None
        self._stamp = stamp
        return pair

    def _stamp_of(self) -> Stamp:
        found = [file.stat() for file in self._files]
        return tuple(part for one in found for part in (one.st_mtime_ns, one.st_ino, one.st_size))

    def _read(self) -> grpc.ServerCertificateConfiguration:
        key, certificate = (file.read_bytes() for file in self._files)
        return grpc.ssl_server_certificate_configuration([(key, certificate)])
