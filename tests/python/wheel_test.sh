#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel_test.sh PYTHON SOURCE WORK: installs the package (the trace half, which compiles in a minute or
# two) into a fresh environment as users do, and runs its tests there against its own command.
set -eu

python="$1"
source="$2"
work="$3"
rm -rf "$work/environment"
mkdir -p "$work"
"$python" -m venv "$work/environment"
bin="$work/environment/bin"
"$bin/pip" install --quiet --disable-pip-version-check --no-input "$source" pytest \
  --config-settings=cmake.define.EPILOGUE_ENGINE=OFF --config-settings=build-dir="$work/build"
# Not in the source tree: what is imported is what was installed.
cd "$work"
# Neither static libraries nor man pages lie in the package.
package="$("$bin/python" -c 'import epilogue; print(epilogue.__path__[0])')"
surplus="$(find "$package" -name '*.a' -o -name '*.1*gz')"
if [ -n "$surplus" ]; then
  echo "expected no such files in the package, got $surplus" >&2
  exit 1
fi
# A C++ program is built against the package: its headers, its library, its CMake files.
prefix="$("$bin/python" -c 'import epilogue; print(epilogue.cmake_prefix_path)')"
cmake -S "$source/tests/install/wheel_consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/consumer" >/dev/null
"$work/consumer/wheel_consumer" "$source/tests/data/torch/mlp_geglu_eager.json.gz"
# A component that is not there is named.
if cmake -S "$source/tests/install/wheel_consumer" -B "$work/no_engine" -DCOMPONENT=shared \
  -DCMAKE_PREFIX_PATH="$prefix" >"$work/no_engine.log" 2>&1; then
  echo "expected the engine to be missing from a build with EPILOGUE_ENGINE=OFF" >&2
  exit 1
fi
tr -s ' \n' ' ' <"$work/no_engine.log" | grep -q 'has no component shared'
# The ops of epilogue.torch need torch; without it the error names what to run.
if "$bin/pip" install --quiet --disable-pip-version-check --no-deps "$source/python/epilogue_torch" \
  >"$work/no_torch.log" 2>&1; then
  echo "expected epilogue-torch to ask for torch" >&2
  exit 1
fi
tr -s ' \n' ' ' <"$work/no_torch.log" | grep -q "no torch is installed for .* pip install"
gzip -t "$work/environment/share/man/man1/epilogue.1.gz"
test -s "$work/environment/share/bash-completion/completions/epilogue"
"$bin/epilogue" name ampere_sgemm_128x64_tn >/dev/null
EPILOGUE_COMMAND="$bin/epilogue" "$bin/python" -m pytest -q -p no:cacheprovider "$source/tests/python"
