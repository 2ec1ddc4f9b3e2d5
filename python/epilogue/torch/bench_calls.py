# SPDX-License-Identifier: Apache-2.0
"""What a call costs where there is next to nothing to compute: an MLP's op alone, and whole calls of fused modules, linear
layers and norms with all their checks, in inference mode, on one thread."""

import copy
import typing

import torch
from torch import nn

from .fuse import fuse, states_of, why
from .timing import interleaved, interval, relative

HIDDEN, WIDE = 16, 32
# The aims, microseconds.
AIMS = {"op": 6.0, "module": 15.0}


class _Layer(nn.Module):
    """An MLP with the norm and the residual around it."""

    def __init__(self, mlp: nn.Module, hidden: int) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(hidden), mlp

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


def calls_of(block: "typing.Callable[[int, int], nn.Module]") -> "dict[str, typing.Callable[[], torch.Tensor]]":
    """By name, to be called in inference mode; checked to agree."""
    with torch.inference_mode(False):  # parameters as they usually are
        plain = block(HIDDEN, WIDE).eval()
        layer = _Layer(block(HIDDEN, WIDE), HIDDEN).eval()
    x = torch.randn(1, HIDDEN)
    calls: "dict[str, typing.Callable[[], torch.Tensor]]" = {}
    want, layer_want = plain(x), layer(x)
    module, fused_layer = fuse(plain), fuse(layer)
    for got, wanted in ((module(x), want), (fused_layer(x), layer_want)):
        if not relative(got, wanted) < 1e-4:
            raise SystemExit("results differ")
    for fused in (module, fused_layer):
        if why(fused).fused_calls != 1:
            raise SystemExit(str(why(fused)))
    (pack,) = states_of(module)[0].packs()
    number, given, op = pack.handle.number, pack.taken.given, torch.ops.epilogue.fused_mlp.default
    calls["op"] = lambda: op(x, number, given)
    calls["module"] = lambda: module(x)
    calls["layer"] = lambda: fused_layer(x)
    own = states_of(module)[0].run_own
    calls["eager module"] = lambda: own(module, x)
    with torch.inference_mode(False):
        linear, norm = nn.Linear(HIDDEN, HIDDEN).eval(), nn.RMSNorm(HIDDEN, eps=1e-5)
        others = fuse(nn.Sequential(copy.deepcopy(linear), copy.deepcopy(norm)), linears="always")
    for got, wanted in ((others[0](x), linear(x)), (others[1](x), norm(x))):
        if not relative(got, wanted) < 1e-4:
            raise SystemExit("results differ")
    if (why(others).linear_calls, why(others).norm_calls) != (1, 1):
        raise SystemExit(str(why(others)))
    calls.update({"linear": lambda: others[0](x), "eager linear": lambda: linear(x)})
    calls.update({"norm": lambda: others[1](x), "eager norm": lambda: norm(x)})
    return calls


def calls(block: "typing.Callable[[int, int], nn.Module]", rounds: int, seconds: float) -> "list[dict[str, typing.Any]]":
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            times = interleaved(calls_of(block), seconds, rounds)
    finally:
        torch.set_num_threads(threads)
    rows = []
    for name, values in times.items():
        middle, low, high = (1e3 * ms for ms in interval(values))
        aim = AIMS.get(name)
        rows.append({"name": name, "us": middle, "low": low, "high": high, "aim_us": aim})
        end = f"   aim: at most {aim:g}" if aim else ""
        print(f"{name:14} {middle:6.2f} us [{low:.2f}, {high:.2f}]{end}", flush=True)
    return rows
