#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lint.sh: formatting, include layers, names that are defined twice, file sizes, tests that assert
# nothing, wording, then clang-tidy over the preset `lint`.
# Runs all of them; exit 1 if any complained.
set -u

cd "$(dirname "$0")/.." || exit 2
jobs="$(nproc)"
failed=0

sources() { git ls-files --cached --others --exclude-standard -- "$@"; }

echo "clang-format"
sources '*.h' '*.cpp' | xargs -r clang-format --dry-run -Werror || failed=1
echo "check_layers.py"
python3 scripts/check_layers.py || failed=1
echo "check_definitions.py"
python3 scripts/check_definitions.py || failed=1
echo "check_sizes.py"
python3 scripts/check_sizes.py || failed=1
echo "check_tests.py"
python3 scripts/check_tests.py || failed=1
echo "check_words.py"
python3 scripts/check_words.py || failed=1
echo "clang-tidy"
# The release build leaves CUDA out: its files need a toolkit's headers.
sources 'src/*.cpp' 'tools/*.cpp' ':!src/backend/cuda' ':!src/profile/cupti' |
  xargs -r -P "$jobs" -n 1 sh -c 'echo "clang-tidy $1"; clang-tidy-19 -p build-lint --quiet "$1"' sh \
    2>/tmp/epilogue-tidy.$$ || failed=1
# On standard error clang-tidy counts suppressed warnings; only its errors are of interest.
grep -i error /tmp/epilogue-tidy.$$ >&2
rm -f /tmp/epilogue-tidy.$$

exit "$failed"
