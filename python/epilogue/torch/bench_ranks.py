# SPDX-License-Identifier: Apache-2.0
"""Ranks of one host: sums through its memory beside gloo's, and MLPs and a model under tensor parallelism, fused and unfused; the model
by rows between its products too (sequence parallelism).

    python -m epilogue.torch.bench ranks --ranks 2
    python -m epilogue.torch.bench ranks --what reduce --json reduce.json

Rounds are interleaved: each runs every setting once, in an order that all ranks share, for about as long; a time is the slowest
rank's. One thread a rank; "one process" is rank 0 alone with as many threads as there are ranks, while the others sleep.
"""

import argparse
import copy
import dataclasses
import functools
import json
import random
import socket
import time
import typing

import torch
import torch.distributed as dist
from torch import nn

from . import host_reduce, scaling
from .fuse import fuse, why
from .timing import interval, ratio, relative

Calls = typing.Dict[str, typing.Callable[[], typing.Any]]
SIZES = {"64 KiB": 1 << 16, "1 MiB": 1 << 20, "32 MiB": 1 << 25}


def _agreed(value: typing.Any) -> typing.Any:
    """Rank 0's."""
    box = [value]
    dist.broadcast_object_list(box, 0)
    return box[0]


def _timed(calls: Calls, alone: "set[str]", seconds: float, rounds: int) -> "dict[str, list[float]]":
    """Milliseconds a call, of the slowest rank. alone: what rank 0 runs by itself."""
    rank = dist.get_rank()

    def run(name: str, times: int) -> float:
        dist.barrier()
        start = time.perf_counter()
        if name not in alone or rank == 0:
            for _ in range(times):
                calls[name]()
        return (time.perf_counter() - start) / times

    repeats = {}
    for name in calls:
        run(name, 1)
        repeats[name] = _agreed(max(1, min(1000, int(seconds / max(run(name, 1), 1e-7)))))
    times: "dict[str, list[float]]" = {name: [] for name in calls}
    draw, order = random.Random(1), list(calls)
    for _ in range(rounds):
        draw.shuffle(order)
        for name in order:
            slowest = torch.tensor([run(name, repeats[name])], dtype=torch.float64)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            times[name].append(1e3 * float(slowest))
    return times


def _row(name: str, times: "dict[str, list[float]]", ours: str) -> "dict[str, typing.Any]":
    row: "dict[str, typing.Any]" = {"name": name, "ms": {k: interval(v)[0] for k, v in times.items()}, "ratio": {}}
    for other in times:
        if other != ours:
            row["ratio"][other] = ratio(times[other], times[ours])
    if dist.get_rank() == 0:
        parts = [f"{k} {v:.3f} ms" for k, v in row["ms"].items()]
        parts += [f"{r:.2f}x [{low:.2f}, {high:.2f}] of {k}" for k, (r, low, high) in row["ratio"].items()]
        print(f"{name:32} " + "; ".join(parts), flush=True)
    return row


def _require(got: torch.Tensor, want: torch.Tensor, most: float, what: str) -> None:
    if not relative(got, want) < most:
        raise SystemExit(f"{what}: results differ by {relative(got, want)}")


def _reduces(options: argparse.Namespace) -> "list[dict[str, typing.Any]]":
    rows = []
    if host_reduce.host_group() is None:
        raise SystemExit("expected ranks that share a host's memory, got none")
    for dtype in (torch.float32, torch.bfloat16):
        for size, count in SIZES.items():
            x = torch.randn(count // dtype.itemsize // (64 if options.tiny else 1)).to(dtype)
            want = x.float().clone()
            dist.all_reduce(want)
            _require(host_reduce.all_reduce(x.clone()).float(), want, 1e-6 if dtype is torch.float32 else 1e-2, "all_reduce")
            x.zero_()  # sums of sums stay numbers
            calls: Calls = {"gloo": lambda x=x: dist.all_reduce(x), "host memory": lambda x=x: host_reduce.all_reduce(x)}
            times = _timed(calls, set(), options.seconds, options.rounds)
            rows.append(_row(f"all_reduce {size} {str(dtype)[6:]}", times, "host memory"))
    return rows


class _Mlp(nn.Module):
    def __init__(self, hidden: int, wide: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(hidden, wide, False), nn.Linear(hidden, wide, False)
        self.down = nn.Linear(wide, hidden, False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def _split(module: nn.Module, plan: "dict[str, str]") -> nn.Module:
    """A copy by "columns", "rows", and columns that all ranks get ("gathered"); between layers whose rows are "parted" over the ranks:
    an "embedding", "norm"s, a module before which they are "whole" (whose "keyword" is hidden_states), and a "head"."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as styles

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    rows, all_rows = Shard(1), Replicate()
    made: "dict[str, typing.Callable[[], typing.Any]]" = {
        "columns": styles.ColwiseParallel,
        "rows": styles.RowwiseParallel,
        "gathered": lambda: styles.ColwiseParallel(output_layouts=all_rows),
        "embedding": lambda: styles.RowwiseParallel(input_layouts=all_rows, output_layouts=rows),
        "norm": styles.SequenceParallel,
        "last norm": lambda: styles.SequenceParallel(use_local_output=True),
        "whole": lambda: styles.PrepareModuleInput(input_layouts=rows, desired_input_layouts=all_rows),
        "keyword": lambda: styles.PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": rows}, desired_input_kwarg_layouts={"hidden_states": all_rows}
        ),
        "parted": lambda: styles.RowwiseParallel(output_layouts=rows),
        "head": lambda: styles.ColwiseParallel(input_layouts=rows, output_layouts=all_rows),
    }
    return styles.parallelize_module(copy.deepcopy(module), mesh, {name: made[style]() for name, style in plan.items()})


def _compared(
    name: str, dense: nn.Module, plan: "dict[str, str]", call: "typing.Callable[[nn.Module], torch.Tensor]", options: argparse.Namespace
) -> "dict[str, typing.Any]":
    own, fused = _split(dense, plan), fuse(_split(dense, plan))
    one = fuse(copy.deepcopy(dense)) if dist.get_rank() == 0 else dense
    group = dist.group.WORLD

    def by_gloo() -> None:
        with host_reduce.paused(group):
            call(fused)

    def alone() -> None:
        torch.set_num_threads(dist.get_world_size())
        try:
            call(one)
        finally:
            torch.set_num_threads(1)

    want = call(own) + 0
    for _ in range(4):  # which linear layers share an input shows in the first calls
        got = call(fused)
    _require(got.float(), want.float(), 1e-4 if want.dtype is torch.float32 else 5e-2, name)
    if why(fused).fused_calls == 0:
        raise SystemExit(str(why(fused)))
    calls: Calls = {"fused": lambda: call(fused), "unfused, gloo": lambda: call(own), "fused, gloo": by_gloo, "one process": alone}
    return _row(name, _timed(calls, {"one process"}, options.seconds, options.rounds), "fused")


def _blocks(options: argparse.Namespace) -> "list[dict[str, typing.Any]]":
    rows = []
    hidden, wide = (64, 192) if options.tiny else (options.hidden, 4 * options.hidden)
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        dense = _Mlp(hidden, wide).to(dtype).eval()
        for count in options.rows:
            x = torch.randn(1, count, hidden).to(dtype)
            plan = {"gate": "columns", "up": "columns", "down": "rows"}
            rows.append(_compared(f"MLP {hidden}x{wide} {str(dtype)[6:]} M={count}", dense, plan, lambda m, x=x: m(x), options))
    return rows


def _llama(transformers: typing.Any, dtype: torch.dtype, options: argparse.Namespace) -> "tuple[typing.Any, nn.Module, dict[str, str]]":
    """Its config, a model of one process, and transformers' own plan for it, the head included."""
    hidden = 64 if options.tiny else options.hidden
    config = transformers.LlamaConfig(
        vocab_size=2048, hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=options.layers,
        num_attention_heads=max(16, hidden // 64), num_key_value_heads=8, pad_token_id=0, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    plan = {"lm_head": "gathered"}
    for i in range(options.layers):
        at = f"model.layers.{i}."
        plan.update({f"{at}self_attn.{n}_proj": "rows" if n == "o" else "columns" for n in "qkvo"})
        plan.update({f"{at}mlp.{n}_proj": "rows" if n == "down" else "columns" for n in ("gate", "up", "down")})
    return config, transformers.LlamaForCausalLM(config).to(dtype).eval(), plan


def _sequence_plan(layers: int) -> "dict[str, str]":
    """Of torch's documents for a Llama: what lies between its products is split by rows."""
    plan = {"model.embed_tokens": "embedding", "model.norm": "last norm", "lm_head": "head"}
    for i in range(layers):
        at = f"model.layers.{i}."
        plan.update({f"{at}input_layernorm": "norm", f"{at}post_attention_layernorm": "norm", f"{at}self_attn": "keyword", f"{at}mlp": "whole"})
        plan.update({f"{at}self_attn.{n}_proj": "parted" if n == "o" else "columns" for n in "qkvo"})
        plan.update({f"{at}mlp.{n}_proj": "parted" if n == "down" else "columns" for n in ("gate", "up", "down")})
    return plan


def _models(options: argparse.Namespace, by_sequence: bool = False) -> "list[dict[str, typing.Any]]":
    import transformers

    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        config, dense, plan = _llama(transformers, dtype, options)
        more: "dict[str, typing.Any]" = {"logits_to_keep": int(options.last)}
        for count in options.rows:
            name = f"Llama {config.hidden_size}, {options.layers} layers {str(dtype)[6:]} M={count}"
            if by_sequence:
                name, plan = f"by sequence, {name}", _sequence_plan(options.layers)
                more = {"position_ids": torch.arange(count)[None]}  # else counted by a rank's rows
                if count % dist.get_world_size():
                    if dist.get_rank() == 0:
                        print(f"{name}: skipped, the ranks do not divide the rows", flush=True)
                    continue
            ids = torch.randint(1, 2048, (1, count))
            call = lambda m, ids=ids, more=more: m(ids, use_cache=False, **more).logits  # noqa: E731
            rows.append(_compared(name, dense, plan, call, options))
    return rows


def _parts_of_a_pass(config: typing.Any, dtype: torch.dtype, rows: int) -> Calls:
    """What says one rank's rates, none of it a whole model."""
    import transformers

    hidden, wide = config.hidden_size, config.intermediate_size
    many, few = torch.randn(1, rows, hidden).to(dtype), torch.randn(1, 1, hidden).to(dtype)
    blocks = [fuse(_Mlp(hidden, wide).to(dtype).eval()) for _ in range(4)]  # beyond the caches, as layers are
    q = torch.randn(1, config.num_attention_heads, rows, hidden // config.num_attention_heads).to(dtype)
    attend = torch.nn.functional.scaled_dot_product_attention
    config = transformers.LlamaConfig(**{**config.to_dict(), "hidden_size": 64, "intermediate_size": 64, "head_dim": 4, "vocab_size": 64})
    small = fuse(transformers.LlamaForCausalLM(config).to(dtype).eval())
    ids = torch.ones(1, 1, dtype=torch.long)
    calls: Calls = {
        "load": lambda: [b(few) for b in blocks],
        "many": lambda: [b(many) for b in blocks],
        "attention": lambda: attend(q, q, q, is_causal=True),
        "stream": lambda: many * 1.5,
        "call": lambda: small(ids, use_cache=False),
    }
    if dist.get_world_size() > 1:
        one, block = torch.zeros(16, dtype=dtype), torch.zeros(rows * hidden, dtype=dtype)
        calls["few sums"] = lambda: host_reduce.all_reduce(one)
        calls["many sums"] = lambda: host_reduce.all_reduce(block)
    return calls


def _machine(config: typing.Any, dtype: torch.dtype, rows: int, ms: "dict[str, float]") -> scaling.Machine:
    """By what the parts of a pass took."""
    hidden, size = config.hidden_size, dtype.itemsize
    weights = 4 * 3 * hidden * config.intermediate_size
    seconds = {name: value / 1e3 for name, value in ms.items()}
    few, many = seconds.get("few sums", 0.0), seconds.get("many sums", 0.0)
    return scaling.Machine(
        ranks=dist.get_world_size(),
        flops=2 * (rows - 1) * weights / max(seconds["many"] - seconds["load"], 1e-9),
        bandwidth=size * weights / seconds["load"],
        attention=2 * rows * (rows + 1) * hidden / seconds["attention"],
        stream=2 * size * rows * hidden / seconds["stream"],
        call=seconds["call"] / config.num_hidden_layers,
        few=few,
        many=size * rows * hidden / max(many - few, 1e-9),
    )


def _scaling(options: argparse.Namespace) -> "list[dict[str, typing.Any]]":
    """The model beside whole models on as many ranks, and what it says of 64 hosts of this kind. Each round times the parts and the
    passes, so that a machine that others use too disturbs both alike."""
    return [row for dtype in (torch.float32, torch.bfloat16) for row in _scaling_of(dtype, options)]


def _scaling_of(dtype: torch.dtype, options: argparse.Namespace) -> "list[dict[str, typing.Any]]":
    import transformers

    config, dense, plan = _llama(transformers, dtype, options)
    named, most = str(dtype)[6:], max(options.rows)
    shape = scaling.Shape(config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.num_attention_heads,
                          config.num_key_value_heads, config.vocab_size, dtype.itemsize)  # fmt: skip
    fused = fuse(_split(dense, plan) if dist.get_world_size() > 1 else dense)
    calls = _parts_of_a_pass(config, dtype, most)
    for count in options.rows:
        ids = torch.randint(1, 2048, (1, count))
        for _ in range(4):  # which linear layers share an input shows in the first calls
            fused(ids, use_cache=False, logits_to_keep=1)
        calls[f"{count} rows"] = lambda ids=ids: fused(ids, use_cache=False, logits_to_keep=1)
    times = _timed(calls, set(), options.seconds, options.rounds)
    machine = _machine(config, dtype, most, {name: interval(values)[0] for name, values in times.items()})
    rounds = [_machine(config, dtype, most, {name: values[i] for name, values in times.items()}) for i in range(options.rounds)]
    rows = []
    for count in options.rows:
        measured = times[f"{count} rows"]
        said = [1e3 * scaling.pass_seconds(shape, m, rows=count).total() for m in rounds]
        error, low, high = interval([s / m - 1 for s, m in zip(said, measured)])
        rows.append({"name": f"{dist.get_world_size()} ranks, {named}, {count} rows", "measured_ms": interval(measured)[0],
                     "model_ms": interval(said)[0], "error": error, "interval": [low, high], "machine": dataclasses.asdict(machine)})  # fmt: skip
        if dist.get_rank() == 0:
            row = rows[-1]
            print(f"{row['name']:27} measured {row['measured_ms']:.2f} ms, the model says {row['model_ms']:.2f} ms "
                  f"({100 * error:+.0f} % [{100 * low:+.0f}, {100 * high:+.0f}])", flush=True)  # fmt: skip
    if dist.get_rank() == 0:
        print("one rank: " + ", ".join(f"{k} {v:.4g}" for k, v in dataclasses.asdict(machine).items()))
        for name, large in scaling.SHAPES.items():
            large = dataclasses.replace(large, element_bytes=dtype.itemsize)
            for phase, count, cached in (("prefill of 512", 512, 0), ("a token behind 512", 1, 512)):
                times = {h: scaling.pass_seconds(large, machine, rows=count, cached=cached, hosts=h).total() for h in (1, 2, 4, 8, 16, 32, 64)}
                print(f"{name} {named}, {phase}: " + ", ".join(f"{h} hosts {1e3 * t:.4g} ms" for h, t in times.items()), flush=True)
    return rows


_KINDS = {"reduce": _reduces, "blocks": _blocks, "models": _models, "sequence": functools.partial(_models, by_sequence=True), "scaling": _scaling}


def _serve(rank: int, port: int, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=options.ranks)
    try:
        with torch.no_grad():
            rows = [row for what in options.what for row in _KINDS[what](options)]
        if rank == 0 and options.json:
            with open(options.json, "w") as file:
                json.dump(rows, file, indent=1)
    finally:
        dist.destroy_process_group()


def main(arguments: "list[str]") -> int:
    parser = argparse.ArgumentParser(
        prog="python -m epilogue.torch.bench ranks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--what", nargs="+", choices=tuple(_KINDS), default=["reduce", "blocks", "models", "sequence"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 512])
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each setting in a round, about")
    parser.add_argument("--last", action="store_true", help="of models the last row's logits alone, as generate() asks for")
    parser.add_argument("--tiny", action="store_true", help="sizes that say nothing of speed")
    parser.add_argument("--json", metavar="FILE", help="writes the rows")
    options = parser.parse_args(arguments)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(f"torch {torch.__version__}, {options.ranks} ranks of 1 thread, {torch.backends.cpu.get_cpu_capability()}", flush=True)
    torch.multiprocessing.spawn(_serve, (port, options), options.ranks)
    return 0
