#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# compute_sanitizer.sh [BUILD] [SECONDS]: every CUDA test under memcheck and racecheck, each in a process
# of its own, as many at a time as there are processors; a test that takes SECONDS [600] is stopped and
# named. Exit 1 where one of the tools found something, 2 where it cannot run. (Not initcheck: it does not
# see what cuBLASLt writes through the copy engine.)
set -u
build=${1:-build}
export limit=${2:-600}
export program=$build/tests/backend/cuda/cuda_device_test
tool=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
export tool
if [ ! -x "$tool" ]; then
  echo "compute-sanitizer not found: it is part of the CUDA toolkit" >&2
  exit 2
fi
if [ ! -x "$program" ]; then
  echo "$program not built: make cudatest" >&2
  exit 2
fi
logs=$(mktemp -d)
export logs
trap 'rm -rf "$logs"' EXIT

# One test under one tool: "clean", "stopped" or "found" with both names.
check() {
  local log="$logs/$1.${2//\//_}"
  timeout "$limit" "$tool" --tool "$1" --report-api-errors no --print-limit 3 --error-exitcode 99 \
    "$program" --gtest_filter="$2" >"$log" 2>&1
  case $? in
    0) echo "clean $1 $2" ;;
    124) echo "stopped $1 $2" ;;
    *) echo "found $1 $2"; cat "$log" >&2 ;;
  esac
}
export -f check

# The chains first: they take longest. A failed allocation of 16 TiB is one test's purpose.
tests=$("$program" --gtest_list_tests | awk '/^[^ ]/ { suite = $1 } /^ / { print suite $1 }' |
  grep -v -e TooMuchMemory -e WithoutACudaDevice -e DeviceName | sort -r)
{ grep '^CudaChain' <<<"$tests"; grep -v '^CudaChain' <<<"$tests"; } |
  awk '{ print "racecheck", $1; print "memcheck", $1 }' |
  xargs -P "$(nproc)" -L 1 bash -c 'check "$0" "$1"' | tee "$logs/results" | grep --line-buffered -v '^clean'
for result in clean stopped found; do
  echo "$result: $(grep -c "^$result" "$logs/results")"
done
! grep -q '^found' "$logs/results"
