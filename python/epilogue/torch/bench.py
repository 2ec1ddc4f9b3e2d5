# SPDX-License-Identifier: Apache-2.0
"""Fused MLPs beside PyTorch's best, on this machine.

    python -m epilogue.torch.bench blocks --rows 1 64 --dtype float32 bfloat16
    python -m epilogue.torch.bench blocks --training        # forward and backward together
    python -m epilogue.torch.bench linears --rows 1 64      # q, k, v and output projections, all fused
    python -m epilogue.torch.bench models --quick           # whole models; options of its own: models --help
    python -m epilogue.torch.bench experts --rows 1 64      # options of its own: experts --help
    python -m epilogue.torch.bench calls                    # what a call costs beside its work

Every row checks first that results agree, then runs all settings in turn, round after round, and
prints medians with the 95 % interval of the ratio over rounds. Rows of one token state the share of the
time that reading the weights takes by itself (`roofline`), at the bandwidth that was measured in the
same rounds.
"""

import argparse
import json
import statistics
import sys
import typing

import torch
from torch import nn

from . import activations, bandwidth, bench_calls, bench_decode, bench_experts, bench_ranks
from .fuse import why
from .peers import BACKEND, COMPILED, EXACT, INT8, MIXTURES, PEERS, TRAINING, compiling, installed, prepare
from .timing import interleaved, ratio, relative

# hidden size, size between the products, form, activation
SHAPES: "dict[str, tuple[int, int, str, str]]" = {
    "llama": (2048, 8192, "gated", "silu"),  # Llama-3.2-1B
    "qwen2": (896, 4864, "gated", "silu"),  # Qwen2.5-0.5B
    "gemma": (2048, 16384, "gated", "gelu_pytorch_tanh"),  # Gemma-2B
    "gpt2": (768, 3072, "plain", "gelu_new"),
    "vit": (768, 3072, "plain", "gelu"),  # ViT-B
}
# columns of k and v
NARROW = {"llama": 512, "qwen2": 128, "gemma": 256, "gpt2": 768, "vit": 768}
TINY = (32, 64)
_ACT = {"silu": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


class Block(nn.Module):
    """An MLP of such a shape."""

    def __init__(self, hidden: int, wide: int, form: str, act: str) -> None:
        super().__init__()
        self.gated, self.act = form == "gated", activations.KNOWN[_ACT[act]]
        self.fc1 = nn.Linear(hidden, wide, bias=not self.gated)
        self.up = nn.Linear(hidden, wide, bias=False) if self.gated else None
        self.fc2 = nn.Linear(wide, hidden, bias=not self.gated)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.up is None:
            return self.fc2(self.act(self.fc1(x)))
        return self.fc2(self.act(self.fc1(x)) * self.up(x))


class Projections(nn.Module):
    """An attention's linear layers without the attention."""

    def __init__(self, hidden: int, narrow: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, n) for n in (hidden, narrow, narrow, hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        return torch.cat((self.out(q), k, v), -1)


def _difference(got: typing.Any, want: typing.Any) -> float:
    """The largest one, where there are several results."""
    if isinstance(want, torch.Tensor):
        return relative(got, want)
    return max(relative(g, w) for g, w in zip(got, want))


def compare(
    name: str, calls: "dict[str, typing.Callable[[], typing.Any]]", tolerance: float, options: argparse.Namespace,
    beside: "dict[str, typing.Callable[[], typing.Any]] | None" = None,
) -> "dict[str, typing.Any]":  # fmt: skip
    """One row: agreement first, then times. `beside` is timed in the same rounds and has no result."""
    want = calls["eager"]()
    differences = {k: _difference(call(), want) for k, call in calls.items() if k != "eager"}
    limits = {k: max(tolerance, 5e-2) if k in ("fused int8", *INT8) else tolerance for k in calls}
    wrong = {k: d for k, d in differences.items() if not d <= limits[k]}
    if any(k == BACKEND or k.startswith("fused") for k in wrong):
        raise SystemExit(f"{name}: results differ: {wrong} (tolerance {tolerance})")
    for peer, difference in wrong.items():
        print(f"{name}: {peer} is left out: its result differs by {difference:.1e}")
    calls = {k: call for k, call in calls.items() if k not in wrong}
    times = interleaved({**calls, **(beside or {})}, options.seconds, options.rounds)
    medians = {k: statistics.median(v) for k, v in times.items()}
    best = min((k for k in calls if k in (*EXACT, *MIXTURES)), key=medians.__getitem__)
    center, low, high = ratio(times[best], times["fused"])
    row = {"name": name, "ms": {k: medians[k] for k in calls}, "best": best, "ratio": center, "low": low, "high": high,
           "differences": differences, "times": {k: times[k] for k in calls}, "left_out": sorted(wrong), "beside_ms": {k: medians[k] for k in beside or {}}}  # fmt: skip
    if COMPILED in calls:
        row["compiled"] = ratio(times[best], times[COMPILED])
    if BACKEND in calls:
        row["backend"] = ratio(times[best], times[BACKEND])
    if "torchao" in calls and "fused int8" in calls:
        row["int8"] = ratio(times["torchao"], times["fused int8"])
    return row


def prepared(
    name: str, module: nn.Module, peers: "typing.Iterable[str]", call: "typing.Callable[[nn.Module], typing.Any]",
    training: "bool | str" = False, linears: "bool | str" = True,
) -> "dict[str, nn.Module]":
    """The fused module and those of the peers, each called once. A peer that fails is left out."""
    torch._dynamo.reset()
    settings = ["fused", *peers]
    if "torchao" in settings:
        settings.insert(1, "fused int8")
    made = {}
    for setting in settings:
        try:
            with compiling(setting):
                made[setting] = prepare(module, setting, training, linears)
                call(made[setting])
        except Exception as error:  # whatever another project raises
            if setting in ("fused", "fused int8", COMPILED, BACKEND, "eager"):
                raise
            made.pop(setting, None)
            print(f"{name}: {setting} is left out: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}")
    return made


def show(row: "dict[str, typing.Any]") -> None:
    ms = "  ".join(f"{k} {v:.3f}" for k, v in row["ms"].items())
    line = f"{row['name']:40} {row['ratio']:.2f}x of {row['best']} [{row['low']:.2f}, {row['high']:.2f}]   ms: {ms}"
    if "compiled" in row:
        line += "   fused, compiled: {:.2f}x [{:.2f}, {:.2f}]".format(*row["compiled"])
    if "backend" in row:
        line += "   backend: {:.2f}x [{:.2f}, {:.2f}]".format(*row["backend"])
    if "int8" in row:
        line += "   int8: {:.2f}x of torchao [{:.2f}, {:.2f}]".format(*row["int8"])
    if "roofline" in row:
        line += f"   {row['roofline']:.0%} of the roofline ({row['gb_per_s']:.1f} GB/s)"
    if "roofline, compiled" in row:
        line += f", compiled {row['roofline, compiled']:.0%}"
    if "kept" in row:
        line += f"   saves {row['saved_ms']:.2f} ms, {row['kept']:.0%} of the {row['isolated_ms']:.2f} ms of its MLPs alone"
    if "share" in row:
        line += f"   share {row['share']:.0%}, limit {1 / max(1 - row['share'], 1e-9):.2f}x"
    if "tokens_per_s" in row:
        rates = {k: f"{v[0]:.1f} [{v[1]:.1f}, {v[2]:.1f}]" for k, v in row["tokens_per_s"].items()}
        line += "   tokens/s: " + "  ".join(f"{k} {v}" for k, v in rates.items())
    if "fused" in row:
        line += f"   fused calls: {row['fused'][0]} and {row['fused'][1]} of linear layers"
    if row.get("own"):
        line += f"   as PyTorch's own: {row['own']}"
    print(line, flush=True)


def _tolerance(dtype: torch.dtype) -> float:
    return 1e-4 if dtype is torch.float32 else 3e-2


def _block(
    name: str, module: nn.Module, x: torch.Tensor, options: argparse.Namespace, read: typing.Any
) -> "dict[str, typing.Any]":
    with torch.no_grad():
        made = prepared(name, module, options.peers, lambda m: m(x))
        calls = {setting: lambda run=run: run(x) for setting, run in made.items()}
        row = compare(name, calls, _tolerance(x.dtype), options, {"read": read} if x.shape[0] == 1 else {})
    if x.shape[0] == 1:
        row.update(bandwidth.share(bandwidth.weight_bytes(module), row["ms"]["fused"], row["beside_ms"]["read"], read.bytes))
    return row


def _training_block(name: str, module: nn.Module, x: torch.Tensor, options: argparse.Namespace) -> "dict[str, typing.Any]":
    """Forward and backward: gradients of x, the weights and the biases."""
    leaf, dy = x.clone().requires_grad_(), torch.randn_like(x)

    def step(m: nn.Module) -> typing.Any:
        return torch.autograd.grad(m(leaf), [leaf, *m.parameters()], dy)

    peers = [p for p in options.peers if p in TRAINING]
    made = prepared(name, module, peers, step, options.training)
    row = compare(name, {setting: lambda run=run: step(run) for setting, run in made.items()}, _tolerance(x.dtype), options)
    report = why(made["fused"]).rows[0]
    row["own"] = report.reason if report.own_calls else None
    return row


def blocks(options: argparse.Namespace) -> "list[dict[str, typing.Any]]":
    rows = []
    read = bandwidth.reader(options.tiny)
    for model in options.models:
        hidden, wide, form, act = SHAPES[model]
        if options.tiny:
            hidden, wide = TINY
        for dtype in options.dtype:
            module = Block(hidden, wide, form, act).to(dtype).eval()
            for count in options.rows:
                x = torch.randn(count, hidden).to(dtype)
                name = f"{model} {hidden}x{wide} {str(dtype)[6:]} M={count}"
                row = _training_block(name, module, x, options) if options.training else _block(name, module, x, options, read)
                show(row)
                rows.append(row)
    ratios = [row["ratio"] for row in rows]
    print(f"geometric mean of {len(ratios)} blocks: {statistics.geometric_mean(ratios):.2f}x of PyTorch's best")
    return rows


def linears(options: argparse.Namespace) -> "list[dict[str, typing.Any]]":
    rows = []
    peers = [p for p in options.peers if p in EXACT]
    for model in options.models:
        hidden, narrow = TINY if options.tiny else (SHAPES[model][0], NARROW[model])
        for dtype in options.dtype:
            module = Projections(hidden, narrow).to(dtype).eval()
            for count in options.rows:
                x = torch.randn(count, hidden).to(dtype)
                name = f"{model} {hidden}, {narrow} {str(dtype)[6:]} M={count}"
                with torch.no_grad():
                    made = prepared(name, module, peers, lambda m, x=x: [m(x) for _ in range(3)], linears="always")
                    calls = {setting: lambda run=run, x=x: run(x) for setting, run in made.items()}
                    rows.append(compare(name, calls, _tolerance(dtype), options))
                show(rows[-1])
    return rows


def _calls(options: argparse.Namespace) -> "list[dict[str, typing.Any]]":
    return bench_calls.calls(lambda hidden, wide: Block(hidden, wide, "gated", "silu"), options.rounds, options.seconds)


def main(arguments: "list[str] | None" = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["experts"]:
        return bench_experts.main(arguments[1:])
    if arguments[:1] == ["models"]:
        from . import bench_models  # which compares as this module does

        return bench_models.main(arguments[1:])
    if arguments[:1] == ["ranks"]:
        return bench_ranks.main(arguments[1:])
    if arguments[:1] == ["decode"]:
        return bench_decode.main(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m epilogue.torch.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("blocks", "calls", "decode", "experts", "linears", "models", "ranks"))
    parser.add_argument("--models", nargs="+", choices=sorted(SHAPES), default=sorted(SHAPES))
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 64, 512])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--training", nargs="?", const=True, default=False, choices=("always",),
                        help="blocks: forward and backward together. 'always': as in fuse()")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.05, help="of each setting in a round, about")
    parser.add_argument("--tiny", action="store_true", help="sizes that say nothing of speed")
    parser.add_argument("--json", metavar="FILE", help="writes the rows")
    options = parser.parse_args(arguments)
    options.peers = ["eager", *installed(p for p in options.peers if p != "eager")]
    options.dtype = [getattr(torch, name) for name in options.dtype]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    rows = {"blocks": blocks, "calls": _calls, "linears": linears}[options.what](options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
