#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compute_sanitizer.sh BUILD: the CUDA tests under memcheck, racecheck and initcheck. Exit 1 where one
# of the tools found something, 2 where it cannot run.
set -u
build=${1:-build}
program=$build/tests/backend/cuda/cuda_device_test
tool=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [ ! -x "$tool" ]; then
  echo "compute-sanitizer not found: it is part of the CUDA toolkit" >&2
  exit 2
fi
if [ ! -x "$program" ]; then
  echo "$program not built: make cudatest" >&2
  exit 2
fi
status=0
for check in memcheck racecheck initcheck; do
  echo "== $check"
  # The Hopper kernel by itself: racecheck is slow on its pipelines.
  "$tool" --tool "$check" --error-exitcode 1 "$program" \
    --gtest_filter='-*TooMuchMemory*:*TheHopperKernelAtEveryEdge*' || status=1
  "$tool" --tool "$check" --error-exitcode 1 "$program" \
    --gtest_filter='*TheHopperKernelAtEveryEdge*' || status=1
done
exit $status
