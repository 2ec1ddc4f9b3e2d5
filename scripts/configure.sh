#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# configure.sh PRESET [cmake arguments]: cmake --preset, with make where ninja is not there.
set -eu

preset="$1"
shift
cd "$(dirname "$0")/.."
command -v ninja >/dev/null || set -- -G "Unix Makefiles" "$@"
exec cmake --preset "$preset" "$@"
