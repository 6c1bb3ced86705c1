"""The real node of the test cluster: containerd and kubelet, their configuration, and how to undo what they leave."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import time

import images
from processes import Processes

NAME = "real"
KUBELET_PORT = 10250
SYSCTLS = ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory")
FOLDERS = ("/var/lib/kubelet", "/run/containerd", "/var/log/containers", "/var/log/pods")
"""What kubelet and containerd make outside the state folder whatever they are told."""


def start(state: pathlib.Path, binaries: pathlib.Path, processes: Processes) -> None:
    """Start containerd, import the images, start the kubelet."""
    saved = {name: pathlib.Path(f"/proc/sys/{name}").read_text().strip() for name in SYSCTLS}
    (state / "sysctls.json").write_text(json.dumps(saved))
    (state / "folders.json").write_text(json.dumps([f for f in FOLDERS if not pathlib.Path(f).exists()]))
    _configure_containerd(state)
    start_containerd(state, binaries, processes)
    for reference, entrypoint in ((images.PAUSE, ["/bin/sleep", "2147483647"]), (images.BUSYBOX, ["/bin/sh", "-c"])):
        archive = state / "image.tar"
        images.write_archive(archive, reference, pathlib.Path("/bin/busybox"), entrypoint)
        ctr = [str(binaries / "ctr"), "-a", str(state / "containerd.sock"), "-n", "k8s.io", "images", "import"]
        subprocess.run([*ctr, str(archive)], check=True, capture_output=True, timeout=240)
        archive.unlink()
    _configure_kubelet(state)
    start_kubelet(state, binaries, processes)


def start_containerd(state: pathlib.Path, binaries: pathlib.Path, processes: Processes) -> None:
    """Start containerd as it was configured, and wait until it answers; its pods' tasks outlive it."""
    (state / "containerd.sock").unlink(missing_ok=True)
    containerd = [
        str(binaries / "containerd"),
        f"--config={state}/containerd.toml",
        f"--address={state}/containerd.sock",
    ]
    processes.start("containerd", containerd, _path(binaries))
    _wait_for_socket(state / "containerd.sock")


def start_kubelet(state: pathlib.Path, binaries: pathlib.Path, processes: Processes) -> None:
    """Start the kubelet as it was configured."""
    kubelet = [
        str(binaries / "kubernetes"),
        "kubelet",
        f"--config={state}/kubelet.json",
        f"--kubeconfig={state}/kubelet.kubeconfig",
        f"--hostname-override={NAME}",
        f"--root-dir={state}/kubelet",
        f"--cert-dir={state}/kubelet-pki",
        "--node-labels=cotenant.io/test-node=real",
    ]
    processes.start("kubelet", kubelet, _path(binaries))


def _path(binaries: pathlib.Path) -> dict[str, str]:
    return {"PATH": f"{binaries}:{os.environ['PATH']}:/usr/sbin:/sbin"}


def stop(state: pathlib.Path, binaries: pathlib.Path, processes: Processes) -> None:
    """End the kubelet, every pod and containerd; give back mounts, groups and sysctls."""
    processes.stop("kubelet")
    if processes.pid("containerd") is not None:
        _end_pods(state, binaries)
    processes.stop("containerd")
    _unmount_below(state)
    for hierarchy in (*pathlib.Path("/sys/fs/cgroup").glob("*/kubepods"), pathlib.Path("/sys/fs/cgroup/kubepods")):
        _remove_groups(hierarchy)
    saved = state / "sysctls.json"
    if saved.exists():
        for name, value in json.loads(saved.read_text()).items():
            pathlib.Path(f"/proc/sys/{name}").write_text(value)
    made = state / "folders.json"
    for path in json.loads(made.read_text()) if made.exists() else []:
        shutil.rmtree(path, ignore_errors=True)


def _configure_containerd(state: pathlib.Path) -> None:
    cni = state / "cni"
    cni.mkdir(exist_ok=True)
    (cni / "10-loopback.conflist").write_text(
        json.dumps({"cniVersion": "1.0.0", "name": "loopback", "plugins": [{"type": "loopback"}]})
    )
    (state / "containerd.toml").write_text(f"""version = 4
root = "{state}/containerd-root"
state = "{state}/containerd-state"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{cni}"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{images.PAUSE}"
[plugins."io.containerd.nri.v1.nri"]
socket_path = "{state}/nri.sock"
plugin_path = "{state}/nri-plugins"
plugin_config_path = "{state}/nri-conf"
""")


def _configure_kubelet(state: pathlib.Path) -> None:
    (state / "kubelet.json").write_text(
        json.dumps(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "address": "127.0.0.1",
                "port": KUBELET_PORT,
                "tlsCertFile": str(state / "pki/kubelet.crt"),
                "tlsPrivateKeyFile": str(state / "pki/kubelet.key"),
                "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
                "authorization": {"mode": "Webhook"},
                "failCgroupV1": False,
                "cgroupDriver": "cgroupfs",
                "containerRuntimeEndpoint": f"unix://{state}/containerd.sock",
                "oomScoreAdj": 0,
                "failSwapOn": False,
                "makeIPTablesUtilChains": False,
                "resolvConf": "",
                "enableDebuggingHandlers": True,
                "podLogsDir": str(state / "pod-logs"),
                "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
                "imageGCHighThresholdPercent": 100,
            }
        )
    )


def _wait_for_socket(path: pathlib.Path, timeout_seconds: float = 120) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"containerd did not open {path} within {timeout_seconds:.0f} s")
        time.sleep(0.1)


def _end_pods(state: pathlib.Path, binaries: pathlib.Path) -> None:
    ctr = [str(binaries / "ctr"), "-a", str(state / "containerd.sock"), "-n", "k8s.io"]

    def listed(kind: str) -> list[str]:
        done = subprocess.run([*ctr, kind, "ls", "-q"], capture_output=True, text=True, timeout=120, check=False)
        return done.stdout.split()

    for task in listed("tasks"):
        subprocess.run([*ctr, "tasks", "rm", "-f", task], capture_output=True, timeout=120, check=False)
    for container in listed("containers"):
        subprocess.run([*ctr, "containers", "rm", container], capture_output=True, timeout=120, check=False)


def _unmount_below(state: pathlib.Path) -> None:
    mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{state}/")), key=len, reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True, timeout=120)


def _remove_groups(group: pathlib.Path) -> None:
    if not group.is_dir():
        return
    for child in [entry for entry in group.iterdir() if entry.is_dir()]:
        _remove_groups(child)
    with contextlib.suppress(OSError):  # a group that still ends its tasks is gone a moment later
        group.rmdir()
