# SPDX-License-Identifier: Apache-2.0
"""What a call costs where there is next to nothing to compute: an MLP's op alone, and whole calls of fused modules, linear
layers, norms, rotary embeddings and transformers' layers of one new token with all their checks, in inference mode, on one thread. Rotary
embeddings of many rows, too."""

import copy
import functools
import importlib.util
import typing

import torch
from torch import nn

from .cache import argument_of
from .fuse import fuse, states_of, why
from .rotary import fuse_rotary, rotary_calls
from .timing import interleaved, interval, relative

HIDDEN, WIDE = 16, 32
HEADS, KEY_HEADS, COLUMNS = 32, 8, 64  # of rotary embeddings: Llama-3.2-1B's
MANY_ROWS = 512
# The aims, microseconds.
AIMS = {"op": 6.0, "module": 15.0}


class _Layer(nn.Module):
    """An MLP with the norm and the residual around it."""

    def __init__(self, mlp: nn.Module, hidden: int) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(hidden), mlp

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def apply_rotary_pos_emb(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1) -> typing.Any:
    """As in transformers' models, under the name that they give it."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin


class _Attention(nn.Module):
    """As much of it as calls the function."""

    def forward(self, *given: torch.Tensor) -> typing.Any:
        return apply_rotary_pos_emb(*given)


def _rotary_calls_of(rows: int) -> "dict[str, typing.Callable[[], torch.Tensor]]":
    plain, fused = _Attention(), _Attention()
    fuse_rotary([fused])
    q, k = (torch.randn(1, rows, heads, COLUMNS).transpose(1, 2) for heads in (HEADS, KEY_HEADS))
    given = (q, k, torch.randn(1, rows, COLUMNS), torch.randn(1, rows, COLUMNS))
    if not all(map(torch.equal, fused(*given), plain(*given))) or rotary_calls(fused) != 1:
        raise SystemExit("rotary embeddings differ, or ran as their own")
    name = "rotary" if rows == 1 else f"rotary x{rows}"
    return {name: lambda: fused(*given), f"eager {name}": lambda: plain(*given)}


def _token_calls(kind: str) -> "dict[str, typing.Callable[[], torch.Tensor]]":
    """A layer's call of one token, by a cache that gives the row up again; none without transformers."""
    if importlib.util.find_spec("transformers") is None:
        return {}
    import transformers

    sizes = {"vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
    if kind == "llama":
        sizes.update(hidden_size=WIDE, intermediate_size=2 * WIDE, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1)
        config = transformers.LlamaConfig(**sizes)
    else:
        config = transformers.GPT2Config(**sizes, n_embd=WIDE, n_layer=1, n_head=2)
    calls, outs = {}, []
    with torch.inference_mode(False):
        plain = transformers.AutoModelForCausalLM.from_config(config).eval()
        fused = fuse(copy.deepcopy(plain), linears="always")
    for name, model in ((f"{kind} layer", fused), (f"eager {kind} layer", plain)):
        cache = transformers.DynamicCache(config=config)
        layer = (model.model.layers if kind == "llama" else model.transformer.h)[0]
        given: "list[typing.Any]" = []
        hook = layer.register_forward_pre_hook(lambda _, args, kwargs: given.append((args, kwargs)), with_kwargs=True)  # noqa: B023
        for rows in (8, 1):
            model(torch.arange(rows)[None], **{argument_of(model): cache}, use_cache=True)
        hook.remove()
        calls[name] = functools.partial(_call_layer, layer, *given[-1], cache)
        for _ in range(8):
            out = calls[name]()
        outs.append(out)
    if not relative(*outs) < 1e-4 or why(fused).decoded_layers == 0:
        raise SystemExit(f"results differ, or the layer ran module by module\n{why(fused)}")
    return calls


def _call_layer(layer: nn.Module, args: typing.Any, kwargs: typing.Any, cache: typing.Any) -> torch.Tensor:
    out = layer(*args, **kwargs)
    cache.crop(-1)
    return out if isinstance(out, torch.Tensor) else out[0]


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
    return {**calls, **_rotary_calls_of(1), **_rotary_calls_of(MANY_ROWS), **_token_calls("llama"), **_token_calls("gpt2")}


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
        print(f"{name:17} {middle:6.2f} us [{low:.2f}, {high:.2f}]{end}", flush=True)
    return rows
