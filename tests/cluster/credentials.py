"""A certificate authority, a serving certificate and tokens for a cluster on loopback, made by openssl."""

import json
import pathlib
import secrets
import subprocess

TOKENS = {
    "admin": ("admin", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "controller-manager": ("system:kube-controller-manager", ""),
    "kubelet": ("system:node:real", "system:masters"),
    "kwok": ("kwok", "system:masters"),
}


def make(directory: pathlib.Path) -> None:
    """Write ca.crt, apiserver.crt/key, sa.key and tokens.csv into a folder that only root reads."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    _openssl(directory, "genrsa", "-out", "sa.key", "2048")
    _openssl(
        directory,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "30",
        "-subj",
        "/CN=cotenant-test",
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
    )
    for name, usage in (("apiserver", "serverAuth"), ("kubelet", "serverAuth")):
        _openssl(
            directory,
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            f"/CN={name}",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
        )
        (directory / f"{name}.ext").write_text(
            "subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes.default.svc\n"
            f"extendedKeyUsage={usage}\n"
        )
        _openssl(
            directory,
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            f"{name}.ext",
            "-out",
            f"{name}.crt",
        )
    rows = [f'{secrets.token_hex(16)},{user},{name},"{groups}"' for name, (user, groups) in TOKENS.items()]
    (directory / "tokens.csv").write_text("\n".join(rows) + "\n")
    for name in TOKENS:
        (directory / f"{name}.token").touch(mode=0o600)
        (directory / f"{name}.token").write_text(token(directory, name))


def token(directory: pathlib.Path, name: str) -> str:
    """Return the bearer token of one of :data:`TOKENS`."""
    for row in (directory / "tokens.csv").read_text().splitlines():
        value, _, uid, *_ = row.split(",")
        if uid == name:
            return value
    raise KeyError(name)


def write_kubeconfig(directory: pathlib.Path, name: str, server: str, path: pathlib.Path) -> None:
    """Write a kubeconfig for one of :data:`TOKENS` (JSON, which is YAML)."""
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "clusters": [
                    {"name": "test", "cluster": {"server": server, "certificate-authority": str(directory / "ca.crt")}}
                ],
                "users": [{"name": name, "user": {"token": token(directory, name)}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            },
            indent=1,
        )
    )
    path.chmod(0o600)


def _openssl(directory: pathlib.Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=240)
