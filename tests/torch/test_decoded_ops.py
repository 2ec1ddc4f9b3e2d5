# SPDX-License-Identifier: Apache-2.0
"""The ops of one new token, attention's and a layer's: bit for bit what the single ops give."""

import pytest
import torch

import epilogue.torch  # noqa: F401  (loads the ops)
from epilogue.torch.handle import Around, Handle

FLOAT, BF16, HALF = torch.float32, torch.bfloat16, torch.float16
ops = torch.ops.epilogue


class _Given:
    """An op's arguments, and what the single ops make of them."""

    def __init__(self, dtype, batch, heads, kv, depth, values, hidden=40, before=5, at=9, room=16, is_one=False, wave=None, turned=None,
                 wide=False, normed=(None, None), mask=None, scale=None, bias=True):  # fmt: skip
        def made(*sizes):
            return torch.randn(*sizes).mul(0.3).to(dtype)

        self.shape = batch, heads, kv, depth, values
        self.widths = [heads * depth, kv * depth, kv * values]
        weights = [made(sum(self.widths), hidden)] if is_one else [made(n, hidden) for n in self.widths]
        biases = [made(w.shape[0]) if bias else None for w in weights]
        self.out_weight = made(hidden, heads * values)
        self.first, self.last = Handle(weights, biases, "none"), Handle([self.out_weight], [None], "none")
        self.of_first, self.of_last = [*weights, *(b for b in biases if b is not None)], [self.out_weight]
        self.x = made(batch, 1, hidden)
        waves = wave and [torch.randn(batch, 1, turned or depth).to(wave) for _ in range(2)]
        self.waves, self.wide = waves or [None, None], wide
        self.norms = [None if n is None else made(n) for n in normed]
        self.room = [made(batch, kv, room, n) for n in (depth, values)]
        self.before, self.at, self.scale, self.mask = before, at, scale, mask

    def call(self):
        room = [r.clone() for r in self.room]
        out = ops.decoded_attention(self.x, self.first.number, self.of_first, self.norms, 1, 1e-5, *self.waves, self.wide, *room,
                                    self.before, self.at, self.mask, self.scale, self.last.number, self.of_last)  # fmt: skip
        return out, room

    def want(self):
        batch, heads, kv, depth, values = self.shape
        outs = ops.linear(self.x, self.first.number, self.of_first, None)
        outs = outs[0].split(self.widths, -1) if len(outs) == 1 else outs
        q, k = (y if n is None else ops.rms_norm(y.reshape(batch, -1, n.shape[0]).contiguous(), n, 1, 1e-5) for y, n in zip(outs, self.norms))
        q, k, v = q.reshape(batch, 1, heads, depth), k.reshape(batch, 1, kv, depth), outs[2].reshape(batch, 1, kv, values)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if self.waves[0] is not None:
            q, k = ops.rotary(q, k, *self.waves, 1, self.wide)
        room = [r.clone() for r in self.room]
        for r, x in zip(room, (k, v)):
            r[:, :, self.at : self.at + 1] = x
        keys, seen = (r[:, :, self.before : self.at + 1] for r in room)
        y = ops.attention(q, keys, seen, self.mask, False, self.scale)
        return ops.linear(y.reshape(batch, 1, -1), self.last.number, self.of_last, None), room


CALLS = [
    dict(batch=1, heads=4, kv=2, depth=16, values=16, wave=FLOAT),
    dict(batch=3, heads=6, kv=3, depth=12, values=20, wave=FLOAT, turned=6, normed=(12, 12), scale=0.7),
    dict(batch=1, heads=3, kv=1, depth=7, values=5, is_one=True),
    dict(batch=2, heads=5, kv=5, depth=8, values=8, is_one=True, wave=FLOAT, normed=(None, 40), bias=False),
    dict(batch=2, heads=2, kv=2, depth=64, values=64, before=0, at=0, wave=FLOAT, normed=(128, 64)),
    dict(batch=1, heads=8, kv=1, depth=32, values=32, before=0, at=300, room=302, wave=FLOAT),
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype, wave, wide", [(FLOAT, FLOAT, False), (BF16, BF16, False), (BF16, FLOAT, True), (HALF, None, False)])
def test_bits_are_those_of_the_single_ops(dtype, wave, wide, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    for call in CALLS:
        call = dict(call, wave=wave if "wave" in call else None, wide=wide)
        if dtype is HALF:
            call.update(normed=(None, None))
        for mask in (None, torch.bool, dtype):
            given = _Given(dtype, **call)
            keys = given.at + 1 - given.before
            if mask is not None:
                given.mask = (torch.randn(given.shape[0], 1, 1, keys) * 2).to(mask) if mask is dtype else torch.rand(1, given.shape[1], 1, keys) < 0.6
            (got,), room = given.call()
            (want,), wanted = given.want()
            assert torch.equal(got, want) and got.dtype == dtype and got.shape == given.x.shape
            assert all(map(torch.equal, room, wanted))
    torch.set_num_threads(before)


def test_what_does_not_fit_is_named():
    good = CALLS[0]

    def refused(match="decoded_attention: expected", **changes):
        given = _Given(FLOAT, **good)
        for name, value in changes.items():
            setattr(given, name, value(given))
        with pytest.raises(RuntimeError, match=match):
            given.call()

    refused(x=lambda g: g.x[0])
    refused(x=lambda g: g.x.repeat(1, 2, 1))
    refused(x=lambda g: g.x[..., :39])
    refused(x=lambda g: g.x.repeat(2, 1, 1))
    refused("dtype", x=lambda g: g.x.double())
    refused(x=lambda g: g.x.bfloat16())
    refused(room=lambda g: [g.room[0].bfloat16(), g.room[1]])
    refused(room=lambda g: [g.room[0][0], g.room[1]])
    refused(room=lambda g: [g.room[0], g.room[1][..., :8]])
    refused(room=lambda g: [g.room[0][:, :1], g.room[1][:, :1]])
    refused(at=lambda g: 16)
    refused(at=lambda g: -1)
    refused(before=lambda g: 10)
    refused(norms=lambda g: [torch.ones(7), None])
    refused(norms=lambda g: [torch.ones(8).bfloat16(), None])
    refused(norms=lambda g: [None])
    refused(room=lambda g: [torch.empty(1, 0, 16, 16)] * 2)
    refused(waves=lambda g: [torch.ones(1, 1, 16), None])
    refused(waves=lambda g: [torch.ones(1, 1, 18)] * 2)
    refused(waves=lambda g: [torch.ones(1, 2, 16)] * 2)
    refused(waves=lambda g: [torch.ones(1, 1, 16), torch.ones(1, 1, 8)])
    refused("mask", mask=lambda g: torch.ones(1, 1, 1, 3))
    refused(last=lambda g: g.first, of_last=lambda g: g.of_first)
    refused("no fused MLP of number", first=lambda g: type("Gone", (), {"number": 1 << 40}))


class _Layer(_Given):
    """The same of a layer: x, and what a norm made of it."""

    def __init__(self, dtype, post=False, **call):
        super().__init__(dtype, **call)
        self.normed, self.x = self.x, torch.randn_like(self.x)
        columns = self.x.shape[-1]
        self.post = (torch.rand(columns) + 0.5).to(dtype) if post else None
        self.of_mlp = [torch.randn(n, k).mul(0.2).to(dtype) for n, k in ((24, columns), (columns, 24))]
        self.mlp = Handle(self.of_mlp, [None, None], "gelu", around=Around(residual=True))

    def call(self):
        room = [r.clone() for r in self.room]
        out = ops.decoded_layer(self.x, self.normed, self.first.number, self.of_first, self.norms, 1, 1e-5, *self.waves, self.wide, *room,
                                self.before, self.at, self.mask, self.scale, self.last.number, self.of_last, self.post, self.post_form,
                                1e-6, self.mlp.number, self.of_mlp)  # fmt: skip
        return out, room

    post_form = 2

    def want(self):
        x, self.x = self.x, self.normed
        (y,), room = super().want()
        self.x = x
        y = y if self.post is None else ops.rms_norm(y, self.post, 2, 1e-6)
        return [ops.fused_mlp(x + y, self.mlp.number, self.of_mlp)], room


@pytest.mark.parametrize("dtype", [FLOAT, BF16])
def test_bits_of_a_layer_are_those_of_the_single_ops(dtype):
    for call in CALLS:
        for post in (False, True):
            given = _Layer(dtype, post, **dict(call, wave=dtype if "wave" in call else None))
            ((got,), room), ((want,), wanted) = given.call(), given.want()
            assert torch.equal(got, want) and got.dtype == dtype and all(map(torch.equal, room, wanted))


def test_what_does_not_fit_a_layer_is_named():
    def refused(match="decoded_layer: expected", dtype=FLOAT, **changes):
        given = _Layer(dtype, True, **dict(CALLS[2] if dtype is HALF else CALLS[0]))
        for name, value in changes.items():
            setattr(given, name, value(given))
        with pytest.raises(RuntimeError, match=match):
            given.call()

    refused(x=lambda g: g.x[0])
    refused(x=lambda g: g.x[:, :0])
    refused(x=lambda g: g.x.repeat(1, 2, 1))
    refused(x=lambda g: g.x.repeat(2, 1, 1))
    refused(x=lambda g: g.x[..., ::2])
    refused(x=lambda g: g.x.bfloat16())
    refused(x=lambda g: g.x.repeat(1, 1, 2)[..., ::2])
    refused(normed=lambda g: g.normed[0])
    refused(normed=lambda g: g.normed.bfloat16())
    refused("decoded_attention: expected", normed=lambda g: g.normed.repeat(1, 2, 1))
    refused(post=lambda g: g.post[:20])
    refused(post=lambda g: g.post.bfloat16())
    refused("a form of 0 to 2", post_form=lambda g: 3)
    refused("the handle of an MLP", mlp=lambda g: g.first, of_mlp=lambda g: g.of_first)
    refused(dtype=HALF)


def test_other_memory_gives_nothing():
    given = _Given(FLOAT, **CALLS[0])
    given.of_last = [given.out_weight.clone()]
    assert given.call()[0] == []
    given = _Given(FLOAT, **CALLS[0])
    given.of_first = [p.clone() for p in given.of_first]
    out, room = given.call()
    assert out == [] and all(map(torch.equal, room, given.room))
    layer = _Layer(FLOAT, **CALLS[0])
    layer.of_mlp = [p.clone() for p in layer.of_mlp]
    assert layer.call()[0] == []
