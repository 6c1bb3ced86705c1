"""An OCI image layout in one archive, as `skopeo`, `podman load`, `docker load` and `ctr images import` read it."""

import dataclasses
import datetime
import gzip
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import layers

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """One processor's image: its layers, uncompressed, and how it is run."""

    architecture: str
    layers: Sequence[bytes]
    config: Mapping[str, object]


class _Blobs:
    """Content by digest."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def put(self, content: bytes, media_type: str) -> dict[str, Any]:
        """Keep some content and return its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.held[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def write(path: pathlib.Path, reference: str, images: Sequence[Image], time_seconds: int) -> None:
    """Write the images of one or more processors under one reference."""
    blobs = _Blobs()
    manifests = [_manifest(blobs, image, time_seconds) for image in images]
    named = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    if len(manifests) == 1:
        top = {**manifests[0], "annotations": named}
    else:
        top = {**blobs.put(_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}), INDEX)}
        top["annotations"] = named
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [top]}
    entries = [
        layers.file_entry("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
        layers.file_entry("index.json", _json(index)),
        *(layers.file_entry(f"blobs/sha256/{digest}", content) for digest, content in blobs.held.items()),
    ]
    path.write_bytes(layers.archive(entries, time_seconds))


def _manifest(blobs: _Blobs, image: Image, time_seconds: int) -> dict[str, Any]:
    """Keep an image's parts and return its manifest's descriptor."""
    created = datetime.datetime.fromtimestamp(time_seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = {
        "created": created,
        "architecture": image.architecture,
        "os": "linux",
        "config": image.config,
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in image.layers],
        },
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.put(_json(config), CONFIG),
        "layers": [blobs.put(gzip.compress(layer, 6, mtime=0), LAYER) for layer in image.layers],
    }
    platform = {"architecture": image.architecture, "os": "linux"}
    return {**blobs.put(_json(manifest), MANIFEST), "platform": platform}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
