#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# torch_tests.sh [pytest arguments]: builds the compiled ops of epilogue.torch against the torch of an environment of
# its own (build/torch/environment, made once, 6 GB) and runs tests/torch there. EPILOGUE_TORCH_PYTHON names
# another Python that has torch, transformers, pytest, scikit-build-core and ninja.
# torch_tests.sh --if-there: the quick tests, with what an earlier run built; exits 77 where there is nothing.
set -eu

cd "$(dirname "$0")/.."
root="$(pwd)"
folder="$root/build/torch"
environment="$folder/environment"
# A test must not see this machine's measured rates.
export EPILOGUE_CACHE_DIR=off

run() {
  PYTHONPATH="$folder/ops:$root/python" PYTHONDONTWRITEBYTECODE=1 "$python" -m pytest -q -p no:cacheprovider "$@"
}

if [ "${1:-}" = --if-there ]; then
  python="$(cat "$folder/python.txt" 2>/dev/null || true)"
  if [ ! -x "$python" ] || [ ! -e "$folder/ops/epilogue_torch/epilogue_torch_ops.so" ]; then
    echo "skipped: epilogue.torch needs torch and transformers; 'make torchtest' installs them and runs tests/torch"
    exit 77
  fi
  run --junitxml="$root/build/test-results/torch.xml" tests/torch/test_ops.py
  exit
fi

python="${EPILOGUE_TORCH_PYTHON:-$environment/bin/python}"
if [ -n "${EPILOGUE_TORCH_PYTHON:-}" ] && [ ! -x "$python" ]; then
  echo "torch_tests.sh: EPILOGUE_TORCH_PYTHON: expected a Python with torch, got $python, which is no program" >&2
  exit 2
fi
mkdir -p "$folder"
[ -n "${EPILOGUE_TORCH_PYTHON:-}" ] || sh scripts/torch_environment.sh
echo "$python" >"$folder/python.txt"

rm -rf "$folder/prefix" "$folder/ops"
for component in trace engine; do
  cmake --install build --component $component --prefix "$folder/prefix" >/dev/null
done
"$python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --upgrade \
  --target "$folder/ops" --config-settings="cmake.define.CMAKE_PREFIX_PATH=$folder/prefix" --config-settings="build-dir=$folder/wheel" \
  ./python/epilogue_torch
run "${@:-tests/torch}"
