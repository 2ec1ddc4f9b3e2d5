# SPDX-License-Identifier: Apache-2.0
"""What a pass of a Llama takes under tensor parallelism, from what a rank and the links between ranks measure.

    t = layers * (products + attention + passes + calls + 2 reduces) + head

    products   W e / bandwidth + 2 r W / flops: r rows, W the weights that one rank has of a layer, e bytes each
    attention  4 r c h / P / attention: c the keys that a row sees (a cached one; half of the rows of its own prompt), h hidden columns
    passes     norms, residuals, activations, casts: about PASSES times r h e bytes / stream, not split
    calls      what a layer takes where there is next to nothing to compute
    reduce     within a host  few + n / many, of n = r h e bytes; over H hosts besides 2 log2(H) latency + 2 (H - 1) / H m / link,
               of m = 4 r h bytes: sums leave a host in f32 (of bf16 of 2 or 3 hosts of one rank fewer do)

Loads and products add up: a core that waits for weights of few rows does little beside (the larger one alone is 40 % less than
what 16 rows of f32 and 128 of bf16 take). No imbalance. `python -m epilogue.torch.bench ranks --what scaling` measures a Machine, puts
the model beside whole models on 1 to 4 ranks, and prints the table for 64 hosts. docs/distributed.md has the error. What a link gives
has to be said: one machine cannot measure it.
"""

import dataclasses
import math
import typing

PASSES = 12.0


@dataclasses.dataclass(frozen=True)
class Machine:
    """A host with `ranks` ranks, all of them at work. Rates are those of one rank, per second."""

    ranks: int
    flops: float  # of products, beyond what the load of the weights takes
    bandwidth: float  # bytes of weights, where few rows wait for them
    attention: float  # operations of attention
    stream: float  # bytes that elementwise ops read and write
    call: float  # seconds of a layer where there is next to nothing to compute
    few: float  # seconds of a sum within the host of next to nothing
    many: float  # bytes that such a sum takes, per second
    latency: float = 20e-6  # seconds of a message between hosts
    link: float = 12.5e9  # bytes between hosts, per second: 100 Gbit/s


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    element_bytes: int = 2

    def layer_weights(self) -> int:
        kv = self.hidden // self.heads * self.kv_heads
        return self.hidden * (2 * self.hidden + 2 * kv + 3 * self.intermediate)

    def head_weights(self) -> int:
        return self.hidden * self.vocabulary


SHAPES = {
    "Llama-1B": Shape(2048, 8192, 16, 32, 8, 128256),
    "Llama-8B": Shape(4096, 14336, 32, 32, 8, 128256),
    "Llama-70B": Shape(8192, 28672, 80, 64, 8, 128256),
}


class Parts(typing.NamedTuple):
    """Seconds of one pass."""

    products: float
    attention: float
    passes: float
    calls: float
    reduces: float

    def total(self) -> float:
        return sum(self)


def pass_seconds(shape: Shape, machine: Machine, *, rows: int, cached: int = 0, hosts: int = 1, heads_rows: "int | None" = None) -> Parts:
    """rows: tokens of the pass, behind `cached` ones. heads_rows: of which the head gives logits; by default the last one.
    ValueError for sizes below 1."""
    if min(rows, hosts, machine.ranks) < 1 or cached < 0:
        raise ValueError(f"expected rows, hosts and ranks of at least 1 and a cache of at least 0, got {rows}, {hosts}, {machine.ranks}, {cached}")
    ranks = machine.ranks * hosts
    size = shape.element_bytes

    def product(weights: int, of_rows: int) -> float:
        own = weights / ranks
        return own * size / machine.bandwidth + 2 * of_rows * own / machine.flops

    layers = shape.layers
    seen = cached + (rows + 1) / 2
    payload = rows * shape.hidden * size
    reduce = 0.0
    if machine.ranks > 1:
        reduce += machine.few + payload / machine.many
    if hosts > 1:
        reduce += 2 * math.log2(hosts) * machine.latency + 2 * (hosts - 1) / hosts * 4 * rows * shape.hidden / machine.link
    last = 1 if heads_rows is None else heads_rows
    return Parts(
        products=layers * product(shape.layer_weights(), rows) + product(shape.head_weights(), last),
        attention=layers * 4 * rows * seen * shape.hidden / ranks / machine.attention,
        passes=layers * PASSES * payload / machine.stream,
        calls=layers * machine.call,
        reduces=2 * layers * reduce,
    )


def fastest(shape: Shape, machine: Machine, *, rows: int, cached: int = 0, most_hosts: int = 64) -> "tuple[int, Parts]":
    """The number of hosts, a power of two, with which a pass takes least."""
    hosts = [1 << i for i in range(most_hosts.bit_length()) if 1 << i <= most_hosts]
    passes = {h: pass_seconds(shape, machine, rows=rows, cached=cached, hosts=h) for h in hosts}
    best = min(hosts, key=lambda h: passes[h].total())
    return best, passes[best]
