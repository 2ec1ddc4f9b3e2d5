#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_tests.sh PRESET [ctest arguments]: runs the tests of a built preset and prints the single
# tests that failed or were skipped, then one line: N passed, N failed, N skipped.
set -u

preset="$1"
shift
root="$(cd "$(dirname "$0")/.." && pwd)"
case "$preset" in
  release) build="$root/build" ;;
  *) build="$root/build-$preset" ;;
esac

# gcc 12's TSan cannot place its shadow memory under the address randomisation of newer kernels.
wrap=""
if [ "$preset" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
  wrap="setarch $(uname -m) -R"
fi

# Kept figures of this machine must not decide what a test sees, nor may a test change them.
export EPILOGUE_CACHE_DIR=off

# ctest names a test when it starts and when it ends. Some run for minutes: say meanwhile that they do.
started=$(date +%s)
(
  while sleep 20 >/dev/null 2>&1; do
    echo "run_tests.sh: tests run, $(($(date +%s) - started)) s"
  done
) &
heartbeat=$!
trap 'kill "$heartbeat"' EXIT

rm -rf "$build/test-results"
mkdir -p "$build/test-results"
cd "$root" || exit 2
status=0
$wrap ctest --preset "$preset" --output-junit "$build/test-results/ctest.junit" "$@" || status=$?
python3 "$root/scripts/test_summary.py" "$build/test-results" || status=$?
exit "$status"
