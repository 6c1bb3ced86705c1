#!/usr/bin/env bash
# Build the BPF objects into DIRECTORY (default: where the package ships them). The same clang gives the same bytes
# anywhere: no debug information, no path of this machine. Needs clang-14, llvm-strip-14 and libbpf-dev.
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-../src/cotenant/kernel/bpf/objects}
mkdir -p "$out"
for source in *.bpf.c; do
  object=$out/${source%.c}.o
  clang-14 -target bpf -mcpu=v2 -O2 -g -Wall -Werror -fdebug-compilation-dir=. -ffile-prefix-map="$PWD"=. \
    -c "$source" -o "$object"
  llvm-strip-14 --strip-debug "$object"
done
