# SPDX-License-Identifier: Apache-2.0
"""Experts of a mixture as one call, beside transformers' ways to run them.

    python -m epilogue.torch.bench experts --rows 1 16 64 512

Peers: the loop over experts (eager), transformers' grouped_mm and batched_mm, torch.compile of the loop. `fused` is a module
that fuse() took, with the checks of its calls. Results agree first. Then all take turns, round after round; a line has the
ratio of medians to the best peer with its 95 % interval over rounds. With one row the share of the bandwidth that was measured
in the same rounds follows. Batched_mm copies each pair's weights: it is left out where that takes more than 4 GB.

Needs transformers. Say which machine gave the figures, and keep it quiet.
"""

import argparse
import json
import math
import statistics
import types
import typing

import torch

from . import bandwidth
from .fuse import fuse, why
from .timing import interleaved, ratio, relative

Shape = typing.Tuple[int, int, int, int]
Calls = typing.Dict[str, typing.Callable[[], typing.Any]]

# experts, columns, hidden columns of an expert, experts of a token
SHAPES = {"qwen3-moe": (32, 1024, 768, 4), "mixtral": (8, 1024, 3584, 2)}
TINY = {"qwen3-moe": (4, 64, 48, 2), "mixtral": (4, 64, 96, 2)}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
BATCHED_BYTES = 4 << 30


def _module(shape: Shape, dtype: torch.dtype) -> typing.Any:
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts

    experts, columns, hidden, _ = shape
    config = types.SimpleNamespace(num_local_experts=experts, hidden_size=columns, intermediate_size=hidden, hidden_act="silu",
                                   _experts_implementation="eager")  # fmt: skip
    module = MixtralExperts(config).eval().requires_grad_(False)
    torch.nn.init.normal_(module.gate_up_proj, std=columns**-0.5)
    torch.nn.init.normal_(module.down_proj, std=hidden**-0.5)
    return module.to(dtype)


def _routed(rows: int, shape: Shape, dtype: torch.dtype) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    experts, columns, _, choices = shape
    x = torch.randn(rows, columns, dtype=dtype)
    weights, index = torch.topk(torch.softmax(torch.randn(rows, experts), -1), choices, -1)
    return x, index, weights / weights.sum(-1, keepdim=True)


def _calls_of(shape: Shape, rows: int, dtype: torch.dtype, peers: "list[str]") -> "tuple[Calls, int, torch.Tensor, typing.Any]":
    """The calls, the bytes of the weights that they read, the result in f64, and the fused module."""
    from transformers.integrations import moe

    module = _module(shape, dtype)
    x, index, weights = _routed(rows, shape, dtype)
    loop = type(module).forward
    loop = getattr(loop, "__wrapped__", loop)  # without the choice among implementations
    fuse(module)
    calls: Calls = {"fused": lambda: module(x, index, weights), "eager": lambda: loop(module, x, index, weights)}
    element = module.gate_up_proj.element_size()
    pair_bytes = sum(p[0].numel() for p in module.parameters()) * element
    if "grouped_mm" in peers:
        calls["grouped_mm"] = lambda: moe.grouped_mm_experts_forward(module, x, index, weights)
    if "batched_mm" in peers and index.numel() * pair_bytes <= BATCHED_BYTES:
        calls["batched_mm"] = lambda: moe.batched_mm_experts_forward(module, x, index, weights)
    if "compile" in peers:
        torch._dynamo.reset()
        compiled = torch.compile(lambda a, i, w: loop(module, a, i, w), dynamic=False)
        calls["compile"] = lambda: compiled(x, index, weights)
    chosen = index.unique().numel()
    wide = _module(shape, torch.float64)
    wide.load_state_dict(module.state_dict())
    exact = loop(wide, x.double(), index, weights.double())
    return calls, chosen * pair_bytes, exact, module


def _measure(name: str, shape: Shape, rows: int, dtype: torch.dtype, options: argparse.Namespace) -> "dict[str, typing.Any]":
    torch.manual_seed(rows)
    calls, weight_bytes, exact, module = _calls_of(shape, rows, dtype, options.peers)
    label = f"{name} {rows} rows {str(dtype).removeprefix('torch.')}"
    with torch.no_grad():
        want = calls["eager"]()
        for key in list(calls):
            try:
                off = relative(calls[key](), want)
            except Exception as error:  # whatever another project raises
                if key in ("fused", "eager"):
                    raise
                print(f"{label}: {key} is left out: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:100]}")
                del calls[key]
                continue
            if not off <= TOLERANCE[dtype]:
                raise SystemExit(f"{label}: {key} differs by {off:.1e}")
        errors = {key: relative(calls[key](), exact) for key in ("fused", "eager")}
        beside = {"read": bandwidth.reader(options.tiny)} if rows == 1 else {}
        times = interleaved({**calls, **beside}, options.seconds, options.rounds)
    (took,) = why(module).rows
    if took.own_calls or not took.fused_calls:
        raise SystemExit(f"{label}: not fused: {took.reason or took.what}")
    medians = {key: statistics.median(v) for key, v in times.items()}
    best = min((k for k in calls if k != "fused"), key=medians.__getitem__)
    center, low, high = ratio(times[best], times["fused"])
    row = {"name": label, "ratio": center, "low": low, "high": high, "best": best, "ms": medians, "error": errors}
    line = f"{label:30} {center:.2f}x of {best} [{low:.2f}, {high:.2f}]   ms: "
    line += "  ".join(f"{k} {medians[k]:.3f}" for k in calls) + f"   error / eager's {errors['fused'] / errors['eager']:.3f}"
    if beside:
        row["bandwidth"] = bandwidth.share(weight_bytes, medians["fused"], medians["read"], beside["read"].bytes)
        line += f"   {row['bandwidth']['roofline']:.0%} of {row['bandwidth']['gb_per_s']:.1f} GB/s"
    print(line, flush=True)
    return row


def main(arguments: "list[str]") -> int:
    parser = argparse.ArgumentParser(prog="python -m epilogue.torch.bench experts", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16, 64, 512])
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--peers", nargs="*", choices=["grouped_mm", "batched_mm", "compile"], default=["grouped_mm", "batched_mm", "compile"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each setting in a round")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--tiny", action="store_true", help="small shapes: only whether it works")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    rows = []
    for dtype in options.dtype:
        some = [
            _measure(name, (TINY if options.tiny else SHAPES)[name], n, DTYPES[dtype], options)
            for name in options.shapes
            for n in options.rows
        ]
        mean = math.exp(statistics.fmean(math.log(r["ratio"]) for r in some))
        print(f"{dtype}: geometric mean {mean:.2f}x, least upper end of an interval {min(r['high'] for r in some):.2f}")
        rows += some
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0
