#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# torch_environment.sh: epilogue with the ops of epilogue.torch in the virtual environment build/torch/environment, which is
# made if it is not there and gets torch if it has none. Ends by fusing an MLP and printing what was fused.
set -eu

cd "$(dirname "$0")/.."
environment="$(pwd)/build/torch/environment"
python="$environment/bin/python"
pip() { "$python" -m pip "$@" --disable-pip-version-check --quiet; }

if [ ! -x "$python" ]; then
  python3 -m venv "$environment"
fi
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "torch_environment.sh: installing torch"
  pip install 'torch>=2.11'
fi
echo "torch_environment.sh: building epilogue and its ops"
pip install .

cd "$environment"  # what is imported is what was installed
"$python" - <<'END'
import epilogue.torch
import torch

mlp = torch.nn.Sequential(torch.nn.Linear(768, 3072), torch.nn.GELU(), torch.nn.Linear(3072, 768)).eval()
x = torch.randn(64, 768)
with torch.no_grad():
    expected = mlp(x)
    epilogue.torch.fuse(mlp)
    torch.testing.assert_close(mlp(x), expected)
print(epilogue.torch.why(mlp))
END
echo "epilogue.torch is ready: . build/torch/environment/bin/activate"
