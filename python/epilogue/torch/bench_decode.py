# SPDX-License-Identifier: Apache-2.0
"""Decoding one token at a time with a whole Llama, with fewer bits, beside PyTorch.

    python -m epilogue.torch.bench decode               # at most five minutes
    python -m epilogue.torch.bench decode --minutes 2 --layers 2

The model has random weights (transformers, from a config), one sequence and a cache of keys and values of fixed size. Settings:
PyTorch's eager in f32 and bf16, torch.compile in bf16, and fuse() in bf16 with the weights' own bits, int8 and int4 (groups
of 128), called as it is and by torch.compile with the backend "epilogue" ("compiled"); with --f32 fused ones in f32 too. All take turns, round after round, until the time is over. A line has tokens a
second, the ratio of medians to the fastest of PyTorch's settings with its 95 % interval over rounds, how much of the
bandwidth measured in the same rounds reading the weights takes, and which share of a step is not the engine's.

The first logits of each setting are compared with f32's. Needs transformers. Keep the machine quiet meanwhile.
"""

import argparse
import copy
import json
import statistics
import time
import typing

import torch
from torch import nn

from . import bandwidth
from .bits import options_of
from .cache import argument_of
from .fuse import fuse, why
from .timing import interleaved, ratio, relative

STEPS = 4  # tokens of a call
PROMPT = 16
# hidden, intermediate, heads, heads of keys and values, vocabulary
SIZES = (2048, 5632, 16, 4, 32000)
TINY = (256, 512, 4, 2, 512)
# Name -> bits of fuse(); None: PyTorch's own
FUSED = {"": "own bits", "int8": "int8", "int4_128": "int4"}
# Relative error of the first logits, at most: of weights drawn at random, whose products cancel.
MOST_OFF = {"own bits": 0.05, "int8": 0.2, "int4": 1.5}


def _model(options: argparse.Namespace) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden, intermediate, heads, pairs, words = TINY if options.tiny else SIZES
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=hidden, intermediate_size=intermediate, num_attention_heads=heads, num_key_value_heads=pairs,
                         vocab_size=words, num_hidden_layers=options.layers, max_position_embeddings=4 * PROMPT,
                         tie_word_embeddings=False)  # fmt: skip
    return LlamaForCausalLM(config).eval().requires_grad_(False)


class _Decoder:
    """Decodes STEPS tokens after a prompt, call after call from the same place of its cache."""

    def __init__(self, model: nn.Module, backend: "str | None" = None) -> None:
        from transformers import StaticCache

        self.model = model
        self.step = model.forward if backend is None else torch.compile(model.forward, dynamic=False, backend=backend)
        self.cache = StaticCache(config=model.config, max_cache_len=2 * PROMPT)
        self.given = {argument_of(model): self.cache, "use_cache": True}
        self.token = torch.tensor([[5]])
        ids = torch.arange(3, 3 + PROMPT)[None]
        with torch.no_grad():
            self.logits = model(input_ids=ids, cache_position=torch.arange(PROMPT), **self.given).logits

    def __call__(self) -> torch.Tensor:
        out = self.token
        with torch.no_grad():
            for layer in self.cache.layers:  # transformers 5 counts what it wrote, earlier ones take the position
                if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):
                    layer.cumulative_length.fill_(PROMPT)
            for i in range(STEPS):
                position = torch.tensor([PROMPT + i])
                out = self.step(input_ids=self.token, cache_position=position, **self.given).logits
        return out


def _fused(plain: nn.Module, dtype: torch.dtype, bits: str) -> nn.Module:
    return fuse(copy.deepcopy(plain).to(dtype), **options_of(bits))


def _read_bytes(model: nn.Module, bits: str) -> float:
    """What a token reads of the weights: those of linear layers at their bits, the rest as it is."""
    linear = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    own = sum(p.numel() * p.element_size() for p in linear)
    rest = bandwidth.weight_bytes(model) - own
    each = {"": None, "int8": 1.0, "int4_128": 0.5 + 2 / 128}[bits]
    return rest + (own if each is None else each * sum(p.numel() for p in linear))


def _rest(model: nn.Module, call: "typing.Callable[[], typing.Any]") -> float:
    """The share of a call that is not the engine's."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return 1 - sum(share for kind, share in why(model, profile).shares if kind.startswith("fused"))


def _settings(plain: nn.Module, options: argparse.Namespace) -> "dict[str, tuple[nn.Module, str | None, str | None]]":
    """By name: the model, the bits of the engine, the backend that it is compiled by."""
    half = copy.deepcopy(plain).bfloat16()
    settings: "dict[str, tuple[nn.Module, str | None, str | None]]" = {"eager f32": (plain, None, None), "eager bf16": (half, None, None)}
    if not options.no_compile:
        settings["torch.compile bf16"] = (copy.deepcopy(half), None, "inductor")
    for dtype in (torch.bfloat16, torch.float32) if options.f32 else (torch.bfloat16,):
        short = "bf16" if dtype is torch.bfloat16 else "f32"
        for bits, name in FUSED.items():
            model = _fused(plain, dtype, bits)
            settings[f"fused {short}, {name}"] = (model, bits, None)
            if not options.no_compile:
                settings[f"compiled {short}, {name}"] = (model, bits, "epilogue")
    return settings


def _check(name: str, decoder: _Decoder, want: torch.Tensor) -> float:
    off = relative(decoder.logits, want)
    most = MOST_OFF.get(name.split(", ")[-1], 0.05)
    if not off <= most:
        raise SystemExit(f"{name}: expected logits within {most} of f32's, got {off:.3f}")
    return off


def run(options: argparse.Namespace) -> "list[dict[str, typing.Any]]":
    began = time.monotonic()
    plain = _model(options)
    settings = _settings(plain, options)
    decoders = {name: _Decoder(model, backend) for name, (model, _, backend) in settings.items()}
    want = decoders["eager f32"].logits
    off = {name: _check(name, decoder, want) for name, decoder in decoders.items()}
    read = bandwidth.reader(options.tiny)
    calls: "dict[str, typing.Callable[[], typing.Any]]" = {**decoders, "read": read}
    took = {}
    for name, call in calls.items():  # compiles, packs
        call()
        start = time.monotonic()
        call()
        took[name] = time.monotonic() - start
    left = 60 * options.minutes - (time.monotonic() - began)
    # Each setting is called twice before the rounds.
    rounds = int(left / sum(took.values())) - 2
    if rounds < 3:
        raise SystemExit(f"--minutes: expected time for 3 rounds of {sum(took.values()):.0f} s after {time.monotonic() - began:.0f} s of "
                         f"preparation, got {options.minutes}; --layers takes fewer layers")
    rounds = min(rounds, options.rounds)
    times = interleaved(calls, 0.0, rounds)
    own = [name for name, (_, bits, _) in settings.items() if bits is None]
    best = min(own, key=lambda name: statistics.median(times[name]))
    rows = []
    for name, (model, bits, backend) in settings.items():
        ms = statistics.median(times[name]) / STEPS
        row: "dict[str, typing.Any]" = {"setting": name, "tokens_per_s": 1e3 / ms, "ms": ms, "rounds": rounds, "off": off[name],
                                        "beside": best, "ratio": ratio(times[best], times[name])}  # fmt: skip
        if bits is not None:
            if backend is None:  # Inductor's kernels are no ops, of which a profile has the time
                row["rest"] = _rest(model, decoders[name])
            row.update(bandwidth.share(int(_read_bytes(model, bits)), ms, statistics.median(times["read"]), read.bytes))
        rows.append(row)
    return rows


def show(rows: "list[dict[str, typing.Any]]") -> None:
    print(f"{'setting':<24}{'tokens/s':>9}{'ms':>9}   ratio to the best of PyTorch's")
    for row in rows:
        at, low, high = row["ratio"]
        line = f"{row['setting']:<24}{row['tokens_per_s']:>9.1f}{row['ms']:>9.2f}   {at:.2f} [{low:.2f}, {high:.2f}]"
        if "roofline" in row:
            line += f"; weights at {100 * row['roofline']:.0f} % of {row['gb_per_s']:.1f} GB/s"
        if "rest" in row:
            line += f"; {100 * row['rest']:.0f} % is not the engine's"
        print(line)
    print(f"{rows[0]['rounds']} rounds of {STEPS} tokens; best of PyTorch's: {rows[0]['beside']}")


def main(arguments: "list[str] | None" = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m epilogue.torch.bench decode", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="at most, about")
    parser.add_argument("--rounds", type=int, default=40, help="at most")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--f32", action="store_true", help="fused settings in f32 too")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--tiny", action="store_true", help="sizes that say nothing of speed")
    parser.add_argument("--json", metavar="FILE", help="writes the rows")
    options = parser.parse_args(arguments)
    if options.layers < 1 or options.rounds < 3 or options.minutes <= 0:
        parser.error(f"expected at least 1 layer, 3 rounds and time, got {options.layers}, {options.rounds} and {options.minutes}")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    rows = run(options)
    show(rows)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0
