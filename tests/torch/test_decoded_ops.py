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
    """The same of a layer of x."""

    form, post_form = 0, 2  # of the first norm: -1 is PyTorch's layer norm

    def __init__(self, dtype, post=False, **call):
        super().__init__(dtype, **call)
        columns = self.x.shape[-1]
        self.first_norm, self.first_bias = ((torch.rand(columns) + 0.5).to(dtype) for _ in range(2))
        self.post = (torch.rand(columns) + 0.5).to(dtype) if post else None
        self.of_mlp = [torch.randn(n, k).mul(0.2).to(dtype) for n, k in ((24, columns), (columns, 24))]
        self.mlp = Handle(self.of_mlp, [None, None], "gelu", around=Around(residual=True))

    def parts(self):
        """Arguments of the op that each layer has."""
        bias = self.first_bias if self.form == -1 else None
        parameters = [self.of_first, self.of_last, self.of_mlp]
        return ([h.number for h in (self.first, self.last, self.mlp)], sum(parameters, []), [len(p) for p in parameters],
                [self.first_norm, bias, *self.norms, self.post], [self.form, 1, self.post_form], [1e-6, 1e-5, 1e-6],
                [r.clone() for r in self.room], [self.before, self.at])  # fmt: skip

    def shared(self):
        return *self.waves, self.wide, self.mask, self.scale

    def call(self):
        parts = self.parts()
        return ops.decoded_layers(self.x, *parts, *self.shared()), parts[6]

    def want(self, x=None):
        given, x = self.x, self.x if x is None else x
        if self.form == -1:
            self.x = torch.nn.functional.layer_norm(x, x.shape[-1:], self.first_norm, self.first_bias, 1e-6)
        else:
            self.x = ops.rms_norm(x, self.first_norm, self.form, 1e-6)
        (y,), room = super().want()
        self.x = given
        y = y if self.post is None else ops.rms_norm(y, self.post, 2, 1e-6)
        return [ops.fused_mlp(x + y, self.mlp.number, self.of_mlp)], room


@pytest.mark.parametrize("dtype", [FLOAT, BF16])
def test_bits_of_a_layer_are_those_of_the_single_ops(dtype):
    for call in CALLS:
        for post, form in ((False, -1), (False, 1), (True, 0), (True, 2)):
            given = _Layer(dtype, post, **dict(call, wave=dtype if "wave" in call else None))
            given.form = form
            ((got,), room), ((want,), wanted) = given.call(), given.want()
            assert torch.equal(got, want) and got.dtype == dtype and all(map(torch.equal, room, wanted))


def _together(layers, x):
    """Several layers by one op: results, and each one's keys and values."""
    parts = [layer.parts() for layer in layers]
    return ops.decoded_layers(x, *(sum(p, []) for p in zip(*parts)), *layers[0].shared()), [p[6] for p in parts]


@pytest.mark.parametrize("dtype", [FLOAT, BF16])
def test_bits_of_layers_one_after_the_other(dtype):
    for call in CALLS:
        layers = [_Layer(dtype, post, **dict(call, wave=dtype if "wave" in call else None)) for post in (False, True, False)]
        layers[1].form = -1
        for layer in layers:
            layer.waves, layer.at, layer.before = layers[0].waves, layer.at - (layer is layers[2] and layer.at > layer.before), layer.before
        outs, rooms = _together(layers, layers[0].x)
        assert len(outs) == 3
        x = layers[0].x
        for layer, got, room in zip(layers, outs, rooms):
            (want,), wanted = layer.want(x)
            assert torch.equal(got, want) and all(map(torch.equal, room, wanted))
            x = want


def test_layers_end_before_one_whose_parameters_have_other_memory():
    layers = [_Layer(FLOAT, **CALLS[0]) for _ in range(3)]
    for layer in layers:
        layer.waves = layers[0].waves
    layers[1].of_mlp = [p.clone() for p in layers[1].of_mlp]
    outs, rooms = _together(layers, layers[0].x)
    (want,), wanted = layers[0].want()
    assert len(outs) == 1 and torch.equal(outs[0], want) and all(map(torch.equal, rooms[0], wanted))
    assert all(map(torch.equal, rooms[2], layers[2].room))


def test_what_does_not_fit_a_layer_is_named():
    def refused(match="decoded_layers: expected", dtype=FLOAT, **changes):
        given = _Layer(dtype, True, **dict(CALLS[2] if dtype is HALF else CALLS[0]))
        for name, value in changes.items():
            setattr(given, name, value(given))
        with pytest.raises(RuntimeError, match=match):
            given.call()

    refused(x=lambda g: g.x[0])
    refused(x=lambda g: g.x[:, :0])
    refused(x=lambda g: g.x.repeat(1, 2, 1))
    refused("decoded_attention: expected", x=lambda g: g.x.repeat(2, 1, 1))
    refused(x=lambda g: g.x[..., ::2])
    refused(x=lambda g: g.x.bfloat16())
    refused(x=lambda g: g.x.repeat(1, 1, 2)[..., ::2])
    refused(first_norm=lambda g: None)
    refused(first_norm=lambda g: g.first_norm[:20])
    refused(first_norm=lambda g: g.first_norm.bfloat16())
    refused("a form of 0 to 2", form=lambda g: 3)
    refused(post=lambda g: g.post[:20])
    refused(post=lambda g: g.post.bfloat16())
    refused("a form of 0 to 2", post_form=lambda g: 3)
    refused("the handle of an MLP", mlp=lambda g: g.first, of_mlp=lambda g: g.of_first)
    refused(dtype=HALF)


def test_what_is_no_whole_layer_is_named():
    given = _Layer(FLOAT, **CALLS[0])
    parts = given.parts()
    for i in range(len(parts)):
        for less in ([*parts[:i], parts[i][:-1], *parts[i + 1 :]], [*parts[:i], [], *parts[i + 1 :]]):
            with pytest.raises(RuntimeError, match="decoded_layers: expected for each layer 3 handles"):
                ops.decoded_layers(given.x, *less, *given.shared())
    for counts in ([-1, 3, 4], [1 << 62, 1 << 62, -(1 << 63)]):
        with pytest.raises(RuntimeError, match="decoded_layers: expected for each layer 3 handles"):
            ops.decoded_layers(given.x, *parts[:2], counts, *parts[3:], *given.shared())
    with pytest.raises(RuntimeError, match="decoded_layers: expected for each layer 3 handles"):
        ops.decoded_layers(given.x, *([] for _ in parts), *given.shared())


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
