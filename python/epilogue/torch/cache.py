# SPDX-License-Identifier: Apache-2.0
"""Keys and values of transformers' caches, which grow in place in what fuse() made fast: grow()."""

import functools
import inspect
import sys
import typing

from torch import nn

from .fused_class import is_compiling


def grow(cache: typing.Any, rows: int = 0) -> typing.Any:
    """Makes the layers of a transformers' DynamicCache grow in place, and returns it.

    transformers copies all keys and values of a layer to add a token's. A growing layer writes the token's alone, into
    memory with room for a quarter more rows (at least 128), and gives views: the same values with other strides. Of an
    EncoderDecoderCache that is the part for self-attention. Layers of other kinds (static, quantised, of state-space models),
    layers on other devices than the CPU, and layers whose rows need gradients stay as they are.

    rows: the tokens that the cache will have in the end, where that is known: it has room for them from its next token on, and
        layers without a window copy nothing later. For torch.compile a larger buffer is another input, and another graph.

    A cache that graphs of torch.compile fill is for one of torch.no_grad() and torch.inference_mode(): not for both by turns.

    A model that fuse() changed does so by itself with each cache that it is called with; not while torch.compile traces it.
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise ValueError(f"rows is a number of tokens, not {rows!r}")
    found = cache_of(cache)
    if found is None:
        raise TypeError(f"grow() expects a DynamicCache of transformers, got {type(cache).__name__}")
    _grow_layers(found, rows)
    return cache


def argument_of(model: nn.Module) -> str:
    """The name by which the model takes a cache: transformers 5 warns in each call of the older one."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def cache_of(cache: typing.Any) -> typing.Any:
    """The DynamicCache that this is, or has for self-attention; None: neither."""
    module = sys.modules.get("transformers.cache_utils")
    if module is None:
        return None
    if type(cache) is getattr(module, "EncoderDecoderCache", None):
        cache = cache.self_attention_cache
    return cache if type(cache) is getattr(module, "DynamicCache", None) and hasattr(cache, "layers") else None


def _grow_layers(cache: typing.Any, rows: int = 0) -> int:
    """How many layers began to grow in place."""
    from .growing import GROWING, GrowingLayer, layer_with_rows, reserve

    if getattr(cache, "offloading", False):
        return 0
    made = 0
    for layer in cache.layers:
        kind = GROWING.get(type(layer))
        if kind is not None:
            layer.__class__ = kind
            made += 1
        if rows and isinstance(layer, GrowingLayer):
            reserve(layer, rows)
    # The class of layers that the first call will add.
    replicated = getattr(cache, "layer_class_to_replicate", None)
    if replicated in GROWING:
        made += 1
        cache.layer_class_to_replicate = replicated = GROWING[replicated]
    if rows and (replicated is GrowingLayer or getattr(replicated, "func", None) is layer_with_rows):
        cache.layer_class_to_replicate = functools.partial(layer_with_rows, rows)
    return made


class GrowingCaches:
    """A hook before a model's forward: caches that it is called with grow in place."""

    def __init__(self) -> None:
        self.count = 0  # of caches

    def __call__(self, module: nn.Module, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> None:
        if is_compiling():
            return
        for given in (*args, *kwargs.values()):
            cache = cache_of(given)
            if cache is not None and _grow_layers(cache):
                self.count += 1


def _hooks(model: nn.Module) -> "list[tuple[nn.Module, int, GrowingCaches]]":
    return [(module, key, hook) for module in model.modules()
            for key, hook in module._forward_pre_hooks.items() if type(hook) is GrowingCaches]  # fmt: skip


def fuse_caches(model: nn.Module) -> None:
    """For the models of transformers that are no part of another one."""
    library = sys.modules.get("transformers.modeling_utils")
    if library is None or "transformers.cache_utils" not in sys.modules:
        return
    kind = library.PreTrainedModel
    within: "set[nn.Module]" = set()
    for module in model.modules():
        if isinstance(module, kind) and module not in within:
            within.update(module.modules())
            module.register_forward_pre_hook(GrowingCaches(), with_kwargs=True)


def unfuse_caches(model: nn.Module) -> None:
    for module, key, _ in _hooks(model):
        del module._forward_pre_hooks[key]
        module._forward_pre_hooks_with_kwargs.pop(key, None)


def grown_caches(model: nn.Module) -> "int | None":
    """How many caches began to grow; None: no part of the model is called with any."""
    found = [hook.count for _, _, hook in _hooks(model)]
    return sum(found) if found else None
