#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# torch_environment.sh: a virtual environment build/torch/environment with torch, transformers and what tests/torch
# needs (6 GB), made once. One that was not finished is completed.
set -eu

cd "$(dirname "$0")/.."
environment="$(pwd)/build/torch/environment"
stamp="$environment/complete"
[ ! -e "$stamp" ] || exit 0
mkdir -p build/torch
[ -x "$environment/bin/pip" ] || python3 -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check \
  torch transformers peft pytest 'scikit-build-core>=0.11' ninja
touch "$stamp"
