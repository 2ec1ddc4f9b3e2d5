#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh BUILD SECONDS: runs each fuzzer of a build folder for so long, from its seeds where it has
# some. Inputs that it finds worth keeping, and those that break it, stay in BUILD/fuzz-NAME.
set -eu
build=$1
seconds=$2
sources=$(dirname "$0")/../tests/fuzz
for program in "$build"/tests/fuzz/*_fuzz "$build"/tests/fuzz/*/*_fuzz; do
  [ -x "$program" ] || continue
  name=$(basename "$program" _fuzz)
  kept=$build/fuzz-$name
  mkdir -p "$kept"
  seeds=$sources/$name/corpus
  [ -d "$seeds" ] || seeds=
  echo "== $name"
  # shellcheck disable=SC2086  # one folder or none
  "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$kept/" "$kept" $seeds
done
