# SPDX-License-Identifier: Apache-2.0
"""Which part of a model's time has what, from a torch.profiler profile: for why(model, profile=...)."""

import typing

# First match counts. Words of op names, without their namespace.
_KINDS = (
    ("attention", ("scaled_dot_product", "_flash_attention", "softmax", "bmm", "baddbmm")),
    ("other linear layers and products", ("addmm", "mm", "linear", "matmul", "mkldnn_linear", "gemm")),
    ("convolutions", ("conv",)),
    ("norms", ("layer_norm", "rms_norm", "rsqrt", "batch_norm")),
    ("embeddings", ("embedding", "index_select", "gather")),
    ("copies and casts", ("copy_", "to", "_to_copy", "cat", "clone", "contiguous", "stack")),
)
_FUSED = {"fused_mlp": "fused MLPs", "gated_mlp": "fused MLPs", "mlp": "fused MLPs", "linear": "fused linear layers",
          "linears": "fused linear layers", "experts": "fused experts", "rms_norm": "fused norms", "attention": "fused attention",
          "rotary": "fused rotary embeddings", "append": "fused writes to caches", "decoded_layers": "fused layers of one token",
          "decoded_attention": "fused attention with its linear layers",
          "summed": "fused products that ranks share", "gathered": "fused products that ranks share"}  # fmt: skip


def _kind_of(name: str) -> "str | None":
    space, _, op = name.partition("::")
    if space == "epilogue" and op.startswith("host_"):
        return "fused sums and gathers between ranks"
    if space == "epilogue":
        return _FUSED.get(op, "fused MLPs")
    if space != "aten":
        return None
    for kind, words in _KINDS:
        if any(op == word or (len(word) > 3 and word in op) for word in words):
            return kind
    return "elementwise and other ops"


def shares_of(profile: typing.Any) -> "tuple[tuple[str, float], ...]":
    """Shares of the ops' own time, the largest first. `profile`: a torch.profiler.profile that ran."""
    if not hasattr(profile, "key_averages"):
        raise TypeError(f"expected a torch.profiler.profile, got {type(profile).__name__}")
    times: "dict[str, float]" = {}
    for event in profile.key_averages():
        kind = _kind_of(event.key)
        if kind is not None:
            times[kind] = times.get(kind, 0.0) + event.self_cpu_time_total
    total = sum(times.values())
    ordered = sorted(times.items(), key=lambda item: -item[1])
    return tuple((kind, time / total) for kind, time in ordered) if total > 0 else ()
