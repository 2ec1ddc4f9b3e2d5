# SPDX-License-Identifier: Apache-2.0
"""What why() gives."""

import dataclasses
import typing


@dataclasses.dataclass(frozen=True)
class Row:
    """What happened to one module."""

    name: str
    module: str
    is_fused: bool
    what: str  # the plan, or why it is not fused
    fused_calls: int = 0
    own_calls: int = 0
    reason: "str | None" = None  # of the last call that ran the module's own forward
    layer: "str | None" = None  # whose norm and residual are fused with the MLP
    layer_calls: int = 0  # of the fused calls: those with the norm and the residual
    apart: "str | None" = None  # why norm and residual run by themselves, or did in the last such call
    bytes: int = 0  # of its packed weights, about
    part: "str | None" = None  # which part of it this rank has, under tensor parallelism


@dataclasses.dataclass(frozen=True)
class Report:
    rows: "tuple[Row, ...]"  # of MLPs, and of mixtures' experts, which count as one
    linears: "tuple[Row, ...]" = ()  # of linear layers that are no part of a fused MLP
    shares: "tuple[tuple[str, float], ...]" = ()  # of the time, where a profile was given
    released_bytes: int = 0  # of originals that are in a file
    norms: "tuple[Row, ...]" = ()  # RMS norms, and layer norms of split rows, that are no part of a fused layer
    grown_caches: "int | None" = None  # caches of keys and values that began to grow in place; None: the model is called with none
    attention_calls: int = 0  # by the engine's kernel, outside torch.compile
    embeddings: "tuple[Row, ...]" = ()  # that tensor parallelism split
    rotary_calls: "int | None" = None  # of rotary embeddings, by one op; None: the model has none that the op computes
    decoded_calls: int = 0  # of attention: those of one token that ran as one op with their linear layers
    decoded_layers: int = 0  # of these: those that ran with their layer's MLP
    decoded_ahead: int = 0  # of these: those that were computed before their turn, with the layer before
    decoded_reasons: "tuple[str, ...]" = ()  # why attention of one token runs as its modules, where it was recorded in vain

    @property
    def fused(self) -> "tuple[Row, ...]":
        return tuple(row for row in self.rows if row.is_fused)

    @property
    def fused_calls(self) -> int:
        """Of MLPs."""
        return sum(row.fused_calls for row in self.rows)

    @property
    def linear_calls(self) -> int:
        """Fused calls of linear layers by themselves."""
        return sum(row.fused_calls for row in self.linears)

    @property
    def norm_calls(self) -> int:
        """Fused calls of norms by themselves."""
        return sum(row.fused_calls for row in self.norms)

    @property
    def embedding_calls(self) -> int:
        """Fused calls of embeddings that tensor parallelism split."""
        return sum(row.fused_calls for row in self.embeddings)

    @property
    def packed_bytes(self) -> int:
        """What packed weights take, beside the weights themselves, once all have run."""
        return sum(row.bytes for row in (*self.rows, *self.linears))

    def to_dict(self) -> "dict[str, typing.Any]":
        rows = {"modules": self.rows, "linears": self.linears, "norms": self.norms, "embeddings": self.embeddings}
        return {**{k: [dataclasses.asdict(row) for row in v] for k, v in rows.items()}, "packed_bytes": self.packed_bytes,
                "released_bytes": self.released_bytes, "grown_caches": self.grown_caches, "attention_calls": self.attention_calls,
                "rotary_calls": self.rotary_calls, "decoded_calls": self.decoded_calls,
                "decoded_layers": self.decoded_layers, "decoded_ahead": self.decoded_ahead, "decoded_reasons": list(self.decoded_reasons),
                "shares": dict(self.shares)}  # fmt: skip

    def __str__(self) -> str:
        parts = {row.part for row in (*self.rows, *self.linears) if row.part}
        lines = [f"{len(self.fused)} of {len(self.rows)} MLPs are fused" + "".join(f", {part}" for part in sorted(parts))]
        for row in self.rows:
            mark = "fused" if row.is_fused else "not fused"
            lines.append(f"  {row.name or '(the model)'}: {mark}: {row.what}")
            if row.is_fused and (row.fused_calls or row.own_calls):
                with_norm = f" ({row.layer_calls} with norm and residual)" if row.layer else ""
                calls = f"    {row.fused_calls} fused calls{with_norm}, {row.own_calls} as the module's own"
                lines.append(calls + (f" ({row.reason})" if row.own_calls and row.reason else ""))
            if row.is_fused and row.apart:
                lines.append(f"    norm and residual by themselves: {row.apart}")
        if self.linears:
            fused = [row for row in self.linears if row.is_fused]
            own = sum(row.own_calls for row in fused)
            calls = f": {self.linear_calls} fused calls, {own} as their own" if self.linear_calls or own else ""
            lines.append(f"{len(fused)} of {len(self.linears)} other linear layers are fused{calls}")
            if fused:
                left = ["norms"] * (not self.norms) + ["rotary embeddings"] * (self.rotary_calls is None) + ["residuals"]
                lines.append(f"  {', '.join(left[:-1])}{' and ' * (len(left) > 1)}{left[-1]} around them: PyTorch's")
            reasons = [(row.what if not row.is_fused else row.reason, row) for row in self.linears]
            for reason in dict.fromkeys(text for text, row in reasons if text and (row.own_calls or not row.is_fused)):
                names = [row.name or "(the model)" for text, row in reasons if text == reason]
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                lines.append(f"  {', '.join(names[:3])}{more}: {reason}")
        if self.norms:
            own = sum(row.own_calls for row in self.norms)
            calls = f": {self.norm_calls} fused calls, {own} as their own" if self.norm_calls or own else ""
            lines.append(f"{len(self.norms)} other norms are fused{calls}")
            lines += [f"  {reason}" for reason in dict.fromkeys(row.reason for row in self.norms if row.own_calls and row.reason)]
        for row in self.embeddings:
            mark = "fused" if row.is_fused else "not fused"
            calls = f": {row.fused_calls} fused calls, {row.own_calls} as its own" if row.fused_calls or row.own_calls else ""
            lines.append(f"{row.name or '(the model)'}: {mark}: {row.what}{calls}" + (f" ({row.reason})" if row.own_calls and row.is_fused else ""))
        if self.grown_caches:
            lines.append(f"{self.grown_caches} cache{'s' * (self.grown_caches != 1)} of keys and values grew in place")
        if self.attention_calls:
            lines.append(f"attention: {self.attention_calls} calls of the engine's kernel")
        if self.decoded_calls:
            layers = f", {self.decoded_layers} of them with the rest of the layer" if self.decoded_layers else ""
            ahead = f", {self.decoded_ahead} with the layer before" if self.decoded_ahead else ""
            lines.append(f"  {self.decoded_calls} of one token, from q, k and v to the output as one op{layers}{ahead}")
        lines += [f"  attention of one token runs as its modules: {reason}" for reason in self.decoded_reasons]
        if self.rotary_calls is not None:
            lines.append(f"rotary embeddings of queries and keys: one op, {self.rotary_calls} calls")
        released = f", of which {self.released_bytes / 2**20:.1f} MiB are in a file" if self.released_bytes else ""
        lines.append(f"packed weights take {self.packed_bytes / 2**20:.1f} MiB beside the weights{released}")
        for kind, share in self.shares:
            lines.append(f"  {kind} {100 * share:.0f} %" + ("" if kind.startswith("fused") else ": PyTorch's"))
        return "\n".join(lines)
