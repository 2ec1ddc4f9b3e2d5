#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel_test.sh PYTHON SOURCE WORK: installs the package (the trace half, which compiles in a minute or
# two) into a fresh environment as users do, and runs its tests there against its own command.
set -eu

python="$1"
source="$2"
work="$3"
rm -rf "$work/environment" "$work/consumer"
mkdir -p "$work"
"$python" -m venv "$work/environment"
bin="$work/environment/bin"
"$bin/pip" install --quiet --disable-pip-version-check --no-input "$source" pytest \
  --config-settings=cmake.define.EPILOGUE_ENGINE=OFF --config-settings=build-dir="$work/build"
# Not in the source tree: what is imported is what was installed.
cd "$work"
# No static libraries and no pages; headers and the CMake package of the shared libraries, which a program links by.
package="$("$bin/python" -c 'import epilogue; print(epilogue.cmake_prefix_path)')"
surplus="$(find "$package" -name '*.a' -o -name '*.1*gz')"
if [ -n "$surplus" ]; then
  echo "expected no such files in the package, got $surplus" >&2
  exit 1
fi
cmake -S "$source/tests/install/trace_shared" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$package" >/dev/null
cmake --build "$work/consumer" >/dev/null
"$work/consumer/consumer" >/dev/null
# Without torch there are no ops of epilogue.torch, and the error names what to run.
if "$bin/pip" install --disable-pip-version-check --no-deps "$source/python/epilogue_torch" >"$work/no_torch.log" 2>&1; then
  echo "expected epilogue-torch to ask for torch" >&2
  exit 1
fi
tr -s ' \n' ' ' <"$work/no_torch.log" | grep -q "expected torch 2.11 or later in the environment, got none; first: pip install 'torch>=2.11'"
gzip -t "$work/environment/share/man/man1/epilogue.1.gz"
test -s "$work/environment/share/bash-completion/completions/epilogue"
"$bin/epilogue" name ampere_sgemm_128x64_tn >/dev/null
EPILOGUE_COMMAND="$bin/epilogue" "$bin/python" -m pytest -q -p no:cacheprovider "$source/tests/python"
