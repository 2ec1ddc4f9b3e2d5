#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_options.sh BUILD_FOLDER PACKAGE...: a virtual environment BUILD_FOLDER/python-environment with these
# packages of PyPI, made once. Prints the options with which CMake builds the Python package for it.
# Where there can be none, prints those that leave the package out, keeps the reason in
# BUILD_FOLDER/no-python-environment.txt, and says it on stderr; that is no failure.
set -eu

cd "$(dirname "$0")/.."

build="$1"
shift
environment="$(pwd)/$build/python-environment"
reason="$build/no-python-environment.txt"
stamp="$environment/packages.txt"
mkdir -p "$build"
rm -f "$reason"

options() {
  echo "-DEPILOGUE_PYTHON=ON -DPython_EXECUTABLE=$environment/bin/python"
}

give_up() {
  echo "$1" >"$reason"
  echo "python_options.sh: $1: the Python tests are skipped" >&2
  echo "-DEPILOGUE_PYTHON=OFF"
  exit 0
}

if [ -x "$environment/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$*" ]; then
  options
  exit 0
fi

# Debian's own first: its headers come with python3-dev.
interpreter=""
for candidate in /usr/bin/python3 python3; do
  if "$candidate" -c 'import os, sys, sysconfig, ensurepip
sys.exit(sys.version_info < (3, 11) or
         not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null; then
    interpreter="$candidate"
    break
  fi
done
[ -n "$interpreter" ] || give_up "no Python 3.11 or newer with venv and headers (python3-venv, python3-dev)"

rm -rf "$environment"
log="$build/python-environment.log"
"$interpreter" -m venv "$environment" >"$log" 2>&1 || give_up "python3 -m venv failed, see $log"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 \
  "$@" >>"$log" 2>&1 </dev/null || give_up "pip cannot install $*, see $log"
echo "$*" >"$stamp"
options
