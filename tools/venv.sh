#!/usr/bin/env bash
# Make .venv with cotenant (editable) and the locked development packages. Done again only when the lock or pyproject changes.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
"$python" - <<'PY' || { echo "make: Python 3.11 or newer is needed (set PYTHON=/path/to/python3.11)" >&2; exit 2; }
import sys
sys.exit(sys.version_info < (3, 11))
PY
stamp=.venv/.installed
want=$(cat requirements/dev.txt pyproject.toml | sha256sum | cut -d' ' -f1)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && exit 0
echo "make: installing cotenant and its locked packages into .venv" >&2
[ -x .venv/bin/python ] || "$python" -m venv .venv || {
  echo "make: python3-venv is missing; as root: apt-get install python3-venv" >&2; exit 2; }
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
echo "$want" > "$stamp"
