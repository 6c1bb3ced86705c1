#!/usr/bin/env bash
# Install Debian packages that are not there yet: tools/packages.sh NAME…
# As a plain user or without apt, say what is missing and carry on: every caller degrades or skips with a reason.
set -u
missing=()
for name in "$@"; do
  dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "packages: not installed: ${missing[*]} (as root on Debian: apt-get install ${missing[*]})" >&2
  exit 0
fi
echo "packages: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
install() { apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$log" 2>&1; }
install || { apt-get update -qq >>"$log" 2>&1; install; } || { cat "$log" >&2; rm -f "$log"; exit 1; }
rm -f "$log"
