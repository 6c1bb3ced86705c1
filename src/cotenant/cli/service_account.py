"""What a pod is given to say who it is."""

import pathlib

DIRECTORY = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")


def file(name: str) -> pathlib.Path | None:
    """Return a file of the pod's service account (``token``, ``ca.crt``), or None outside a pod."""
    path = DIRECTORY / name
    return path if path.exists() else None
