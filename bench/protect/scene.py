"""nginx as online work, an open-loop client, and antagonists, each in a group of ``cotenant run``."""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from cotenant.kernel import paths

MIB = 1 << 20
LOAD_RATIO = 0.3
LIFE_SECONDS = 3600
"""A group's command ends by itself after this, should nobody end it."""
BODY_BYTES = 96 << 10
PAGES_MIB = 256
COTENANT = (sys.executable, "-m", "cotenant")
NGINX = """
worker_processes {cpus};
daemon off;
master_process on;
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000; sendfile off; directio 512; gzip on; gzip_comp_level 6;
  gzip_types text/plain; default_type text/plain; client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;
  fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
  server {{ listen 127.0.0.1:{port}; root {place}/www; }}
}}
"""
PAGES = """
import mmap, random, sys
with open(sys.argv[1], "rb") as file:
    data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
while True:
    data[random.randrange(len(data) // 4096) * 4096]
"""


def with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)


def grouped(qos: str, name: str, *command: str, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    ending = ("timeout", "-k", "1", str(LIFE_SECONDS))
    words = (*COTENANT, "run", "--qos", qos, "--name", name, *options, "--", *ending, *command)
    return subprocess.Popen(words, preexec_fn=with_parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)
    if process.poll() is None:
        process.kill()
        process.wait(15)


class Counter:
    """What a group has used: CPU seconds, bytes read and written by its tasks."""

    def __init__(self, group: str) -> None:
        root = paths.Root()
        cpu, block = root.hierarchy("cpuacct") or root.hierarchy("cpu"), root.hierarchy("blkio") or root.hierarchy("io")
        assert cpu is not None
        assert block is not None
        self._cpu, self._block = cpu, block
        self._group = group

    def cpu_seconds(self) -> float:
        if self._cpu.version == 1:
            return int((self._cpu.path / self._group / "cpuacct.usage").read_text()) / 1e9
        text = (self._cpu.path / self._group / "cpu.stat").read_text().split()
        return int(text[text.index("usage_usec") + 1]) / 1e6

    def disk_bytes(self) -> int:
        if self._block.version == 1:
            text = (self._block.path / self._group / "blkio.throttle.io_service_bytes").read_text()
            return sum(int(line.split()[2]) for line in text.splitlines() if line.split()[1:2] in (["Read"], ["Write"]))
        words = (self._block.path / self._group / "io.stat").read_text().replace("=", " ").split()
        return sum(int(words[i + 1]) for i, word in enumerate(words) if word in ("rbytes", "wbytes"))


class Load:
    """The client, and what it has said: (monotonic time, latencies in microseconds) once a second."""

    def __init__(self, port: int, rate: float) -> None:
        self.seconds: list[tuple[float, list[int]]] = []
        words = (
            sys.executable,
            str(pathlib.Path(__file__).with_name("client.py")),
            "127.0.0.1",
            str(port),
            "/0",
            str(rate),
        )
        self._process = subprocess.Popen(words, preexec_fn=with_parent, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            self.seconds.append((told["t"], told["latency_usec"]))

    def between(self, start: float, stop: float) -> list[int]:
        """Return the sorted latencies of what was told between two times."""
        return sorted(value for at, values in self.seconds if start <= at < stop for value in values)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def percentile(values: list[int], part: float) -> float:
    """Return a percentile in milliseconds."""
    return values[min(int(len(values) * part), len(values) - 1)] / 1000 if values else float("nan")


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@contextlib.contextmanager
def online(place: pathlib.Path, name: str) -> Iterator[tuple[int, Counter]]:
    """Run nginx while this lasts; yield its port and its counter."""
    (place / "www").mkdir()
    words = " ".join(str(number) for number in range(BODY_BYTES // 4)).encode()[:BODY_BYTES]
    (place / "www" / "0").write_bytes(words)
    place.chmod(0o755)
    port = free_port()
    (place / "nginx.conf").write_text(NGINX.format(cpus=os.cpu_count(), place=place, port=port))
    process = grouped("LS", name, "nginx", "-c", str(place / "nginx.conf"), "-g", "user root;")
    try:
        deadline = time.monotonic() + 15
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if time.monotonic() > deadline:
                raise TimeoutError((place / "error.log").read_text())
            time.sleep(0.05)
        yield port, Counter(f"cotenant-ls/{name}")
    finally:
        end(process)


def calibrated_rate(port: int, counter: Counter) -> float:
    """Return the rate at which nginx uses its share of the machine, from the CPU time of one request."""
    load = Load(port, 40)
    time.sleep(2)
    before, start = counter.cpu_seconds(), time.monotonic()
    time.sleep(4)
    used, asked = counter.cpu_seconds() - before, len(load.between(start, time.monotonic()))
    load.close()
    return LOAD_RATIO * (os.cpu_count() or 1) / (used / asked)


def write_pages(files: pathlib.Path) -> None:
    """Write the file that the memory antagonist reads, and leave none of it in the page cache."""
    with (files / "pages").open("wb") as file:
        for _ in range(PAGES_MIB):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def antagonist(kind: str, qos: str, name: str, files: pathlib.Path) -> subprocess.Popen[bytes]:
    cpus = os.cpu_count() or 1
    if kind == "cpu":
        return grouped(qos, name, "sh", "-c", f"for i in $(seq {cpus * 4}); do while :; do :; done & done; wait")
    if kind == "io":
        # Reads: the disk's scheduler prefers them, so that writes hurt nobody here.
        options = [f"--filename={files / 'pages'}", "--direct=1", "--ioengine=libaio", "--rw=randread", "--bs=1m"]
        return grouped(
            qos, name, "fio", "--name=n", *options, "--iodepth=64", "--numjobs=4", "--time_based", "--runtime=120"
        )
    command = f"for i in 1 2 3 4 5 6; do {sys.executable} -c '{PAGES}' {files / 'pages'} & done; wait"
    return grouped(qos, name, "sh", "-c", command, options=("--memory", "85M"))


def throughput(kind: str, counter: Counter) -> float:
    """Return what an antagonist has done: CPU seconds, else MiB read and written."""
    return counter.cpu_seconds() if kind == "cpu" else counter.disk_bytes() / MIB


def enforcing(data: pathlib.Path) -> subprocess.Popen[bytes]:
    words = (*COTENANT, "up", "--enforce", "--no-web", "--data", str(data))
    return subprocess.Popen(words, preexec_fn=with_parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
