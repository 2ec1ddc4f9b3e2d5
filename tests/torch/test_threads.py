# SPDX-License-Identifier: Apache-2.0
"""fuse() while other threads call modules, and fused modules that several threads call."""

import math
import threading
import time

import models
import pytest
import torch
from torch import fx, nn

import epilogue.torch
from epilogue.torch import linear_state
from epilogue.torch.tracing import Tracer


class _Beside:
    """Threads that call do() over and over; what they raise."""

    def __init__(self, *calls):
        self.errors, self.counts, self._over = [], [0] * len(calls), False
        self._threads = [threading.Thread(target=self._run, args=call) for call in enumerate(calls)]

    def _run(self, i, do):
        while not self._over:
            try:
                do()
                self.counts[i] += 1
            except Exception as error:
                self.errors.append(repr(error))
                return

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over = True
        for thread in self._threads:
            thread.join()


@torch.no_grad()
def test_models_run_while_another_is_fused():
    own, fused = models.build("qwen2"), epilogue.torch.fuse(models.build("llama"), linears="always")
    ids = torch.arange(2, 9)[None]
    want = [m(ids).logits for m in (own, fused)]
    wrong = []

    def call(i, model):
        with torch.no_grad():
            if not torch.equal(model(ids).logits, want[i]):
                wrong.append(i)

    with _Beside(lambda: call(0, own), lambda: call(1, fused)) as beside:
        for kind in ("gpt2", "gemma3", "phi3", "llama", "bert", "vit") * 2:
            report = epilogue.torch.why(epilogue.torch.fuse(models.build(kind)))
            assert len(report.fused) == len(report.rows) == models.LAYERS
    assert not beside.errors and not wrong and min(beside.counts) > 2


def test_models_are_fused_by_several_threads():
    before = nn.Module.__call__, nn.Module.__getattr__
    built = [models.build(kind) for kind in ("gpt2", "gemma3", "llama", "bert") * 6]
    models_of = {}  # by class, those of their MLPs

    def fuse_one():
        if built:
            model = epilogue.torch.fuse(built.pop())
            assert len(epilogue.torch.why(model).fused) == models.LAYERS
            models_of.setdefault(type(model).__name__, []).append({type(m).__name__: type(m) for m in model.modules()})

    with _Beside(*[fuse_one] * 3) as beside:
        while built and not beside.errors:
            time.sleep(0.01)
    assert not beside.errors and len(models_of) == 4
    for found in models_of.values():
        assert len(found) == 6 and all(classes == found[0] for classes in found)
    assert (nn.Module.__call__, nn.Module.__getattr__) == before


class _Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.linear(x) * self.weight * math.sqrt(2)


def test_another_threads_modules_leave_no_trace():
    other = _Scaled()
    started, ended = threading.Event(), threading.Event()
    outs = []

    class Slow(_Scaled):
        def forward(self, x):
            started.set()
            assert ended.wait(60)
            return super().forward(x)

    def call():
        assert started.wait(60)
        outs.append(other(torch.ones(1, 3)))
        ended.set()

    with torch.no_grad():
        want = other(torch.ones(1, 3))
    thread = threading.Thread(target=call)
    thread.start()
    graph = Tracer().trace(Slow())
    thread.join()
    assert [(n.op, str(n.target)) for n in graph.nodes if n.op in ("call_module", "get_attr")] == [("call_module", "linear"), ("get_attr", "weight")]
    assert torch.equal(outs[0], want) and not isinstance(outs[0], fx.Proxy)


def test_what_cannot_be_traced_leaves_modules_as_they_were():
    before = nn.Module.__call__, nn.Module.__getattr__

    class Choice(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(fx.proxy.TraceError):
        Tracer().trace(Choice())
    assert (nn.Module.__call__, nn.Module.__getattr__) == before
    assert len(Tracer().trace(_Scaled()).nodes) > 3


def test_layers_of_one_input_are_found_while_other_threads_call_them():
    """By turns: each thread's q between the others' q and k."""
    count = 3
    attention = epilogue.torch.fuse(models.build("qwen2"), linears="always").model.layers[0].self_attn
    layers = attention.q_proj, attention.k_proj, attention.v_proj
    turn = threading.Barrier(count)
    wrong = []

    def call():
        with torch.no_grad():
            for _ in range(3):
                x = torch.randn(1, 5, 48)
                for layer in layers:
                    turn.wait(60)
                    if not torch.allclose(layer(x), nn.functional.linear(x, layer.weight, layer.bias), atol=1e-5):
                        wrong.append(layer)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    sets = [layer.__dict__[linear_state.STATE].together for layer in layers]
    assert sets[0] is not None and sets == [sets[0]] * 3
