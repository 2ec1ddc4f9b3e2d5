#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# update_goldens.sh [BUILD]: builds and runs the tests that have goldens (tests/passes/golden, the tables
# of docs/findings.md and docs/ops.md), which rewrite them. Read `git diff` before you commit it: it is what the change does.
set -eu

cd "$(dirname "$0")/.."
build="${1:-build}"
tests="passes_test"
cmake --build "$build" --target $tests explain_test
for test in $tests; do
  EPILOGUE_UPDATE_GOLDENS=1 "$(find "$build/tests" -name "$test" -type f)" --gtest_brief=1
done
explain_test="$(find "$build/tests" -name explain_test -type f)"
EPILOGUE_UPDATE_GOLDENS=1 "$explain_test" --gtest_brief=1 --gtest_filter='*.ThePage*'
git status --short -- tests docs/findings.md docs/ops.md
