#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install_packages.sh GROUP...: installs the Debian packages of these groups that are missing.
# Does nothing, quickly, when all are there.
set -eu

list="$(dirname "$0")/packages.txt"

wanted=""
for group in "$@"; do
  line="$(sed -n "s/^$group://p" "$list")"
  if [ -z "$line" ]; then
    echo "install_packages.sh: no group '$group' in $list" >&2
    exit 2
  fi
  wanted="$wanted $line"
done

if ! command -v dpkg-query >/dev/null; then
  echo "Not a Debian system; please install what provides:$wanted" >&2
  exit 0
fi

missing=""
for package in $wanted; do
  state="$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)"
  case "$state" in installed*) ;; *) missing="$missing $package" ;; esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "Missing packages; please run: sudo apt-get install$missing" >&2
  exit 1
fi

echo "Installing$missing"
export DEBIAN_FRONTEND=noninteractive
# The package lists may be absent or too old to fetch from: update once, then try again.
# shellcheck disable=SC2086  # a list of names
apt-get install -y --no-install-recommends $missing </dev/null ||
  { apt-get update </dev/null && apt-get install -y --no-install-recommends $missing </dev/null; }
