# Every target first makes .venv with cotenant in it. `make help` lists them.
SHELL := /bin/bash
BIN := .venv/bin
PORT ?= 7070

RUN_PACKAGES := libbpf1
BPF_PACKAGES := clang-14 llvm-14 libbpf-dev
TEST_PACKAGES := libbpf1 fio stress-ng iperf3 iproute2 chromium libfuse3-3 fuse3

VM_PACKAGES := qemu-system-x86 busybox-static gcc make flex bison bc libelf-dev xz-utils
CLUSTER_PACKAGES := runc busybox-static containernetworking-plugins openssl
KWOK_NODES ?= 200

.PHONY: cluster cluster-down help venv up check fmt generate test test-fast test-all bench bpf native screenshots image clean

help: ## what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: ## .venv with cotenant and its locked packages
	@tools/venv.sh

up: venv ## show this machine's interference in a web page; ctrl-C ends it
	@tools/packages.sh $(RUN_PACKAGES)
	@$(BIN)/cotenant up --port $(PORT)

check: venv ## format, lint, types, layers, generated files
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/generate.py --check

fmt: venv ## format and fix what can be fixed
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

generate: venv ## write the generated pages, schemas and tables
	@$(BIN)/python tools/generate.py

# Tests start hundreds of processes, and each would compile cotenant anew where bytecode is not kept.
test test-fast test-all: export PYTHONDONTWRITEBYTECODE :=

test-fast: venv ## unit tests only (a minute of CPU time, shared by the cores)
	@$(BIN)/pytest -q -n auto -m "not real and not browser and not slow and not vm and not cluster"

test: venv ## every test that needs no long build
	@tools/packages.sh $(TEST_PACKAGES)
	@$(BIN)/pytest -q -n auto -m "not real and not browser and not vm and not cluster"
	@$(BIN)/pytest -q -m "(real or browser) and not vm and not cluster"

test-all: test ## all tests: those of `make test`, then virtual machines and a cluster
	@tools/packages.sh $(VM_PACKAGES) $(CLUSTER_PACKAGES)
	@$(BIN)/pytest -q -m "vm or cluster"

bench: venv native ## measure cost and speed, ours beside the target (minutes)
	@for run in bench/*/run.py; do echo "== $$run"; $(BIN)/python $$run || exit 1; done

native: build/libllc_probe.so ## the optional cache probe (needs a C compiler; used with --llc-probe)

build/libllc_probe.so: native/llc_probe.c
	@mkdir -p build
	@$(CC) -std=c11 -O2 -Wall -Wextra -Werror -shared -fPIC -o $@ $<

bpf: ## the BPF objects that the package ships, from bpf/ (needs clang-14, llvm-14, libbpf-dev)
	@tools/packages.sh $(BPF_PACKAGES)
	@bpf/build.sh

screenshots: venv ## the pictures in docs/images, of this machine under some noise (needs chromium)
	@tools/packages.sh chromium
	@$(BIN)/python tools/screenshot.py

cluster: venv ## a whole Kubernetes cluster on loopback (about 20 min the first time, then seconds)
	@tools/packages.sh $(CLUSTER_PACKAGES)
	@$(BIN)/python tests/cluster/cluster.py up --kwok-nodes $(KWOK_NODES)

cluster-down: venv ## end that cluster and undo all of it
	@$(BIN)/python tests/cluster/cluster.py down

image: venv ## the container image, without an engine or a registry: build/image/cotenant-VERSION.tar (ARCH=arm64)
	@$(BIN)/python packaging/image/build.py $(if $(ARCH),--arch $(ARCH))

clean: ## remove what make made
	rm -rf .venv build dist
