"""Container images for the real node: one static busybox each, as docker archives, without a registry."""

import hashlib
import io
import json
import pathlib
import tarfile

PAUSE = "cotenant.test/pause:1"
BUSYBOX = "cotenant.test/busybox:1"


def write_archive(path: pathlib.Path, reference: str, busybox: pathlib.Path, entrypoint: list[str]) -> None:
    """Write a docker archive of one image whose only layer holds busybox and links for its common applets."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "tmp", "etc", "proc", "sys", "dev"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        info = tarfile.TarInfo("bin/busybox")
        content = busybox.read_bytes()
        info.size, info.mode = len(content), 0o755
        tar.addfile(info, io.BytesIO(content))
        for applet in ("sh", "sleep", "dd", "cat", "ls", "nproc", "yes", "true", "sync", "echo"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps(
        [{"Config": config_name, "RepoTags": [reference], "Layers": [f"{digest}/layer.tar"]}]
    ).encode()
    with tarfile.open(path, "w") as tar:
        for name, data in (
            (config_name, config),
            (f"{digest}/layer.tar", layer.getvalue()),
            ("manifest.json", manifest),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
