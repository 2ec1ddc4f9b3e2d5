# SPDX-License-Identifier: Apache-2.0
"""Run by wheels_test.py in a root of another release: installed_package.py TRACE [torch]. The package answers, computes, and
its errors cross from one of its libraries to the next, each of which has its own libstdc++. With `torch`, an MLP of
PyTorch runs fused."""
import sys

import epilogue


def expect(error, call):
    try:
        call()
    except error as caught:
        assert str(caught), caught
    else:
        raise AssertionError(f"expected {error.__name__}, got none")


def check_package(trace):
    assert len(epilogue.explain(trace).findings) > 3
    expect(OSError, lambda: epilogue.explain("/nowhere.json"))
    expect(epilogue.TraceError, lambda: epilogue.explain(b"no trace"))
    expect(epilogue.Error, lambda: epilogue.randn([2, 3]) @ epilogue.randn([2, 3]))
    mlp, x = epilogue.GatedMLP(64, 128, "geglu"), epilogue.randn([5, 64])
    with epilogue.no_grad():
        fused, plain = epilogue.compile(mlp)(x).tolist(), mlp(x).tolist()
    scale = max(map(abs, plain))
    worst = max(abs(a - b) for a, b in zip(fused, plain))
    assert 0 < scale and worst <= 1e-5 * scale, (worst, scale)


def check_torch():
    import torch

    import epilogue.torch

    class GatedMLP(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.up = torch.nn.Linear(64, 128), torch.nn.Linear(64, 128)
            self.down = torch.nn.Linear(128, 64)

        def forward(self, x):
            return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))

    mlp, x = GatedMLP().eval(), torch.randn(5, 64)
    with torch.no_grad():
        plain = mlp(x)
        epilogue.torch.fuse(mlp)
        fused = mlp(x)
    why = epilogue.torch.why(mlp)
    assert len(why.fused) == 1, str(why)
    assert (fused - plain).abs().max() <= 1e-5 * plain.abs().max(), (fused - plain).abs().max()
    print(f"torch {torch.__version__}")


check_package(sys.argv[1])
if sys.argv[2:] == ["torch"]:
    check_torch()
