# SPDX-License-Identifier: Apache-2.0
"""Whole models beside PyTorch's best, on this machine.

    python -m epilogue.torch.bench models                   # all models, 512 tokens, f32 and bf16: an hour or more
    python -m epilogue.torch.bench models --quick           # fewer, smaller, f32: at most 5 minutes on two cores
    python -m epilogue.torch.bench models --models llama gpt2 --layers 2 --training
    python -m epilogue.torch.bench models --tiny            # seconds: only whether it works

Shapes are those of Llama-3.2-1B, Qwen2.5-0.5B, Qwen3-MoE (32 of its 128 experts), Mixtral (a quarter of its width), GPT-2, ViT-B,
BERT and Whisper-base, with random weights, `--layers` of their layers and 8192 words. Phases: `prefill` reads a prompt;
`decode` makes one token with a cache of as many; models without a cache have `forward`; `--training` adds a step of SGD.

Ours: the fused model, and (`fused, compiled`, but in training) the same by torch.compile with the backend `epilogue` and Inductor's freezing;
of mixtures also the model without fuse() by that backend (`backend`).
Peers: eager, torch.compile (its default; freezing, max-autotune and grouped GEMM templates), of mixtures transformers'
grouped_mm, OpenVINO and zentorch where they are installed. Results agree first; then all take turns, round after round. A line
has the ratio of medians to the best peer with its 95 % interval over rounds, and tokens a second with theirs. `share` is the
part of eager's time that MLPs have. `decode` states the share of the time that reading the weights and the cache takes by
itself (`roofline`; of the compiled model `roofline, compiled`), at the bandwidth of the same rounds. `fused` counts calls of
one run: MLPs and experts, then linear layers.

Needs transformers. Say which machine gave the figures, and keep it quiet.
"""

import argparse
import copy
import dataclasses
import json
import statistics
import time
import typing

import torch
from torch import nn

from . import bandwidth, bench
from .cache import argument_of, grow, grown_caches
from .fuse import fuse, why
from .fused_class import STATE
from .isolated import Blocks
from .peers import BACKEND, COMPILED, MIXTURES, PEERS, TRAINING, installed
from .timing import interval

WORDS = 8192


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    wide: int
    heads: int
    layers: int
    kind: str = "causal"  # "encoder", "vision", "speech"
    experts: "tuple[int, int] | None" = None  # how many, of a token


SHAPES = {
    "llama": Shape(2048, 8192, 32, 16),  # Llama-3.2-1B
    "qwen2": Shape(896, 4864, 14, 24),  # Qwen2.5-0.5B
    "qwen3_moe": Shape(2048, 768, 32, 48, experts=(32, 8)),  # Qwen3-30B-A3B has 128
    "mixtral": Shape(1024, 3584, 8, 32, experts=(8, 2)),
    "gpt2": Shape(768, 3072, 12, 12),
    "vit": Shape(768, 3072, 12, 12, "vision"),
    "bert": Shape(768, 3072, 12, 12, "encoder"),
    "whisper": Shape(512, 2048, 8, 6, "speech"),
}
TINY = dict(hidden=32, wide=64, heads=2)
QUICK = ("qwen2", "mixtral", "gpt2", "bert")
SMALL = dict(hidden=512, wide=1536, heads=8)  # of --quick
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 6e-2}


def build(name: str, shape: Shape, layers: int, words: int, positions: int) -> nn.Module:
    """A model of transformers from its config, with random weights."""
    import transformers as t

    layers = min(shape.layers, layers)
    sizes = dict(hidden_size=shape.hidden, intermediate_size=shape.wide, num_hidden_layers=layers, num_attention_heads=shape.heads)
    language = dict(sizes, vocab_size=words, max_position_embeddings=positions, bos_token_id=1, eos_token_id=None, pad_token_id=0)
    few = max(shape.heads // 4, 1)
    experts, choices = shape.experts or (0, 0)
    if name == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(**language, num_key_value_heads=few, tie_word_embeddings=True))
    if name == "qwen2":
        return t.Qwen2ForCausalLM(t.Qwen2Config(**language, num_key_value_heads=2, tie_word_embeddings=True))
    if name == "qwen3_moe":
        config = t.Qwen3MoeConfig(**language, num_key_value_heads=few, head_dim=shape.hidden // shape.heads, num_experts=experts,
                                  num_experts_per_tok=choices, moe_intermediate_size=shape.wide)  # fmt: skip
        return t.Qwen3MoeForCausalLM(config)
    if name == "mixtral":
        config = t.MixtralConfig(**language, num_key_value_heads=few, num_local_experts=experts, num_experts_per_tok=choices)
        return t.MixtralForCausalLM(config)
    if name == "gpt2":
        config = t.GPT2Config(n_embd=shape.hidden, n_inner=shape.wide, n_layer=layers, n_head=shape.heads, vocab_size=words,
                              n_positions=positions, bos_token_id=1, eos_token_id=None)  # fmt: skip
        return t.GPT2LMHeadModel(config)
    if name == "vit":
        return t.ViTModel(t.ViTConfig(**sizes, image_size=32 if shape.hidden < 100 else 224))
    if name == "bert":
        return t.BertForMaskedLM(t.BertConfig(**{k: v for k, v in language.items() if k not in ("bos_token_id", "eos_token_id")}))
    config = t.WhisperConfig(vocab_size=words, d_model=shape.hidden, encoder_layers=layers, decoder_layers=layers, bos_token_id=1,
                             encoder_attention_heads=shape.heads, decoder_attention_heads=shape.heads, encoder_ffn_dim=shape.wide,
                             decoder_ffn_dim=shape.wide, max_source_positions=64 if shape.hidden < 100 else 1500, pad_token_id=0,
                             eos_token_id=None, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)  # fmt: skip
    return t.WhisperForConditionalGeneration(config)


Call = typing.Callable[[nn.Module], torch.Tensor]


def _inputs(model: nn.Module, shape: Shape, count: int, words: int) -> "dict[str, torch.Tensor]":
    dtype = next(model.parameters()).dtype
    if shape.kind == "vision":
        size = model.config.image_size
        return {"pixel_values": torch.randn(1, 3, size, size, dtype=dtype)}
    ids = torch.randint(2, words, (1, count))
    if shape.kind == "speech":
        frames = 2 * model.config.max_source_positions
        few = ids[:, : min(count, model.config.max_target_positions // 2)]
        return {"input_features": torch.randn(1, model.config.num_mel_bins, frames, dtype=dtype), "decoder_input_ids": few}
    return {"input_ids": ids}


def _cache_of(plain: nn.Module, given: "dict[str, typing.Any]") -> typing.Any:
    """The keys and values of a prompt, and of a decoder those of what it attends to."""
    from transformers import DynamicCache, EncoderDecoderCache

    cache = EncoderDecoderCache(DynamicCache(), DynamicCache()) if plain.config.is_encoder_decoder else DynamicCache()
    plain(**given, **{argument_of(plain): cache}, use_cache=True)
    return cache


def _layers_of(cache: typing.Any) -> "list[typing.Any]":
    caches = [getattr(cache, part, None) for part in ("self_attention_cache", "cross_attention_cache")]
    return [layer for c in caches if c is not None for layer in c.layers] or cache.layers


def phases_of(plain: nn.Module, shape: Shape, count: int, words: int) -> "dict[str, tuple[Call, int]]":
    """What a phase calls, and how many tokens that is."""
    given = _inputs(plain, shape, count, words)
    if shape.kind == "vision":
        return {"forward": (lambda m: m(**given)[0], 1)}
    if shape.kind == "encoder":
        return {"forward": (lambda m: m(**given).logits, count)}
    words_of, behind, name = "input_ids", {}, argument_of(plain)  # behind: what a step is given beside its token
    if shape.kind == "speech":
        with torch.no_grad():
            words_of, behind = "decoder_input_ids", {"encoder_outputs": plain.get_encoder()(given["input_features"])}
    ids = given[words_of]
    caches: "dict[int, typing.Any]" = {}

    def decode(m: nn.Module) -> torch.Tensor:
        """One token behind the prompt. Its keys and values go again, so that each call is the same."""
        cache = caches.get(id(m))
        if cache is None:
            cache = caches[id(m)] = _cache_of(plain, {words_of: ids, **behind})  # by the plain model: what a peer compiles is the step
            if grown_caches(m) is not None:
                grow(cache)  # a compiled model does not by itself
        out = m(**{words_of: ids[:, -1:], name: cache}, **behind, use_cache=True).logits
        cache.crop(-1)
        return out

    return {"prefill": (lambda m: m(**given, use_cache=False).logits, ids.shape[1]), "decode": (decode, 1)}


def _step_bytes(plain: nn.Module, shape: Shape, count: int, words: int) -> int:
    """Weights, keys and values that a step of decoding behind `count` tokens reads. An encoder has run."""
    cache = _cache_of(plain, _inputs(plain, shape, count, words))
    encoder = bandwidth.weight_bytes(plain.get_encoder()) if plain.config.is_encoder_decoder else 0
    for projections in (layer.encoder_attn for layer in plain.get_decoder().layers) if encoder else ():
        encoder += sum(bandwidth.weight_bytes(p) for p in (projections.k_proj, projections.v_proj))  # of what was heard: they have run
    return (bandwidth.weight_bytes(plain) - encoder
            + sum(t.numel() * t.element_size() for layer in _layers_of(cache) for t in (layer.keys, layer.values)))  # fmt: skip


def _parts_of_mlps(model: nn.Module) -> "list[list[str]]":
    """The modules that each MLP and each layer's experts run, in order: of an MLP its linear layers, for it may be part of a
    larger module's forward."""
    fused = fuse(copy.deepcopy(model))
    parts, known = [], set()
    for name, module in fused.named_modules():
        state = module.__dict__.get(STATE)
        if state is None:
            continue
        paths = [".".join(filter(None, (name, path))) for path in state.plan.linears]
        if not known.issuperset(paths):  # a layer's state and its MLP's have the same
            parts.append(paths)
        known.update(paths)
    for row in why(fused).fused:
        if not any(path.startswith(row.name + ".") for path in known):
            parts.append([row.name])
    return parts


def mlp_share(model: nn.Module, call: "typing.Callable[[], typing.Any]") -> float:
    """The part of a call's time that its MLPs have."""
    inside: "list[float]" = []
    hooks = []
    modules = dict(model.named_modules())
    for parts in _parts_of_mlps(model):
        starts: "list[float]" = []

        def begin(*_: typing.Any, starts: "list[float]" = starts) -> None:
            starts.append(time.perf_counter())

        def end(*_: typing.Any, starts: "list[float]" = starts) -> None:
            inside.append(time.perf_counter() - starts[0])
            starts.clear()

        hooks += [modules[part].register_forward_pre_hook(begin) for part in parts]
        hooks.append(modules[parts[-1]].register_forward_hook(end))
    shares = []
    for _ in range(4):
        inside.clear()
        start = time.perf_counter()
        call()
        shares.append(sum(inside) / (time.perf_counter() - start))
    for hook in hooks:
        hook.remove()
    return statistics.median(shares[1:])


def _rates(row: "dict[str, typing.Any]", tokens: int) -> "dict[str, tuple[float, float, float]]":
    """Tokens a second: the median, and the ends of its interval."""
    found = {}
    for setting, times in row.pop("times").items():
        middle, low, high = interval(times)
        found[setting] = (tokens / middle * 1e3, tokens / high * 1e3, tokens / low * 1e3)
    return found


def _counted(model: nn.Module, call: "typing.Callable[[], typing.Any]") -> "list[int]":
    """Fused calls of one run."""
    before = why(model)
    call()
    after = why(model)
    return [after.fused_calls - before.fused_calls, after.linear_calls - before.linear_calls]


def _phase_row(
    name: str, phase: str, plain: nn.Module, shape: Shape, call: Call, tokens: int, options: argparse.Namespace, read: typing.Any
) -> "dict[str, typing.Any]":
    dtype = next(plain.parameters()).dtype
    label = f"{name} {phase} {str(dtype)[6:]}"
    peers = [p for p in options.peers if p not in MIXTURES or SHAPES[name].experts is not None]
    ours = [BACKEND] if SHAPES[name].experts is not None else []
    with torch.no_grad():
        made = bench.prepared(label, plain, [COMPILED, *ours, *peers], lambda m: [call(m) for _ in range(3)][-1])
        calls = {setting: lambda run=run: call(run) for setting, run in made.items()}
        alone = Blocks(made["fused"], calls["fused"])
        beside = {"blocks own": alone.own, "blocks fused": alone.fused}
        if phase == "decode":
            beside["read"] = read
        # A router that rounds otherwise chooses another expert where two are as good.
        tolerance = TOLERANCE.get(dtype, 3e-2) * (2 if SHAPES[name].experts is not None else 1)
        row = bench.compare(label, calls, tolerance, options, beside)
        row["share"] = mlp_share(plain, lambda: call(plain))
        row["fused"] = _counted(made["fused"], calls["fused"])
        if phase == "decode":
            count = _step_bytes(plain, shape, options.prompt, options.words)
            row.update(bandwidth.share(count, row["ms"]["fused"], row["beside_ms"]["read"], read.bytes))
            row["roofline, compiled"] = row["roofline"] * row["ms"]["fused"] / row["ms"][COMPILED]
    row["saved_ms"] = row["ms"]["eager"] - row["ms"]["fused"]
    row["isolated_ms"] = row["beside_ms"]["blocks own"] - row["beside_ms"]["blocks fused"]
    if row["isolated_ms"] > 0.05 * row["ms"]["eager"]:  # else noise
        row["kept"] = row["saved_ms"] / row["isolated_ms"]
    row["tokens_per_s"] = _rates(row, tokens)
    return row


def _training_row(name: str, plain: nn.Module, shape: Shape, options: argparse.Namespace) -> "dict[str, typing.Any]":
    """Loss, backward and a step of SGD with a rate that changes next to nothing: each round's step is the same."""
    dtype = next(plain.parameters()).dtype
    label = f"{name} training step {str(dtype)[6:]}"
    given = _inputs(plain, shape, options.prompt, options.words)
    labels = given.get("input_ids", given.get("decoder_input_ids"))
    more = {"use_cache": False} if shape.kind in ("causal", "speech") else {}

    def step(m: nn.Module) -> torch.Tensor:
        loss = m(**given, labels=labels, **more).loss
        loss.backward()
        with torch.no_grad():
            parameters = [p for p in m.parameters() if p.grad is not None]
            torch._foreach_add_(parameters, [p.grad for p in parameters], alpha=-1e-9)
        for p in parameters:
            p.grad = None
        return loss.detach()

    peers = [p for p in options.peers if p in TRAINING or (p in MIXTURES and shape.experts is not None)]
    made = bench.prepared(label, plain, peers, step, options.training)
    row = bench.compare(label, {k: lambda run=run: step(run) for k, run in made.items()}, 1e-2, options)
    row["fused"] = _counted(made["fused"], lambda: step(made["fused"]))
    row["tokens_per_s"] = _rates(row, labels.numel())
    return row


def _free_bytes() -> "int | None":
    """Memory that new work may have; None: this system does not say."""
    try:
        with open("/proc/meminfo") as file:
            found = [line.split()[1] for line in file if line.startswith("MemAvailable:")]
    except OSError:
        return None
    return int(found[0]) * 1024 if found else None


def most_layers(name: str, shape: Shape, dtype: torch.dtype, options: argparse.Namespace, free: "int | None") -> int:
    """So many layers of those that are asked for that all settings fit into the free bytes, and one at least."""

    def held(layers: int) -> int:
        with torch.device("meta"):
            model = build(name, shape, layers, options.words, 2 * options.prompt + 64)
        return _held(len(options.peers)) * sum(p.numel() for p in model.parameters()) * dtype.itemsize

    layers = wanted = min(shape.layers, options.layers)
    while free is not None and layers > 1 and held(layers) > free:
        layers -= 1
    if layers < wanted:
        print(f"{name} {str(dtype)[6:]}: {layers} of {wanted} layers, for which the settings would take {held(wanted) / 2**30:.0f} GiB of memory; "
              f"{free / 2**30:.0f} GiB are free")  # fmt: skip
    return layers


def _held(peers: int) -> int:
    """The copies of a model's weights that all settings hold at once, at most: packed weights and those of compiled graphs are some of them.
    A Llama's layer was seen to take 9.6 beside eager and torch.compile, and 12.8 beside autotune too; one of Qwen3-MoE 9 and 11.5."""
    return 7 + 2 * peers


def rows_of(options: argparse.Namespace) -> "typing.Iterator[dict[str, typing.Any]]":
    read = bandwidth.reader(options.tiny)
    end = time.monotonic() + 60 * options.minutes if options.minutes else None
    longest = 0.0
    for name in options.models:
        shape = SHAPES[name]
        if options.tiny:
            shape = dataclasses.replace(shape, **TINY, experts=shape.experts and (4, 2))
        elif options.quick:
            shape = dataclasses.replace(shape, **SMALL)
        for dtype in options.dtype:
            layers = most_layers(name, shape, dtype, options, _free_bytes())
            torch.manual_seed(0)
            plain = build(name, shape, layers, options.words, 2 * options.prompt + 64).to(dtype).eval()
            phases = phases_of(plain, shape, options.prompt, options.words)
            phases = {phase: call for phase, call in phases.items() if options.phases is None or phase in options.phases}
            makers = {p: lambda p=p, c=c, n=n: _phase_row(name, p, plain, shape, c, n, options, read) for p, (c, n) in phases.items()}
            if options.training and shape.kind != "vision":
                makers["training"] = lambda: _training_row(name, plain, shape, options)
            for phase, make in makers.items():
                begin = time.monotonic()
                if end is not None and begin + longest > end:
                    print(f"{name} {phase} {str(dtype)[6:]}: left out: --minutes {options.minutes:g} are over")
                    continue
                yield make()
                longest = max(longest, time.monotonic() - begin)


def main(arguments: "list[str]") -> int:
    parser = argparse.ArgumentParser(prog="python -m epilogue.torch.bench models", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    peers = [*PEERS, *MIXTURES]
    parser.add_argument("--models", nargs="+", choices=list(SHAPES), default=None, help="all; of --quick: " + ", ".join(QUICK))
    parser.add_argument("--dtype", nargs="+", default=None, choices=("float32", "bfloat16", "float16"), help="float32 bfloat16; of --quick float32")
    parser.add_argument("--prompt", "--rows", type=int, default=None, help="tokens of the prompt and of the cache: 512; of --quick 128")
    parser.add_argument("--phases", nargs="+", choices=("prefill", "decode", "forward"), default=None, help="all that a model has")
    parser.add_argument("--layers", type=int, default=None, help="of each model, at most: 4; of --quick 2; fewer where memory is short")
    parser.add_argument("--peers", nargs="+", choices=peers, default=None, help="all but torchao; of --quick eager, compile and grouped_mm")
    parser.add_argument("--training", nargs="?", const=True, default=False, choices=("always",), help="a training step too; 'always': as in fuse()")
    parser.add_argument("--rounds", type=int, default=None, help="15; of --quick 5")
    parser.add_argument("--seconds", type=float, default=0.05, help="of each setting in a round, about")
    parser.add_argument("--minutes", type=float, default=None, help="rows that would end later are left out; of --quick 5")
    parser.add_argument("--quick", action="store_true", help="at most 5 minutes on two cores")
    parser.add_argument("--tiny", action="store_true", help="sizes that say nothing of speed")
    parser.add_argument("--json", metavar="FILE", help="writes the rows")
    options = parser.parse_args(arguments)
    quick = options.quick
    for name, default, of_quick in (("models", list(SHAPES), list(QUICK)), ("dtype", ["float32", "bfloat16"], ["float32"]), ("prompt", 512, 128),
                                    ("layers", 4, 2), ("rounds", 15, 5), ("minutes", None, 5.0),
                                    ("peers", [p for p in peers if p != "torchao"], ["eager", "compile", "grouped_mm"])):  # fmt: skip
        if getattr(options, name) is None:
            setattr(options, name, of_quick if quick else default)
    options.peers = ["eager", *installed(p for p in options.peers if p != "eager")]
    options.dtype = [getattr(torch, name) for name in options.dtype]
    options.words = 256 if options.tiny else 2048 if quick else WORDS
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    rows = []
    for row in rows_of(options):
        bench.show(row)
        rows.append(row)
    if rows:
        mean = statistics.geometric_mean(row["ratio"] for row in rows)
        print(f"geometric mean of {len(rows)} rows: {mean:.2f}x of PyTorch's best")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0
