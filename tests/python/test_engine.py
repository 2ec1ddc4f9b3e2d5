# SPDX-License-Identifier: Apache-2.0
"""The engine half: tensors over other memory, compile(), the fused MLP, the profiler."""

import gc
import math
import subprocess
import sys
import threading
import weakref

import pytest

import epilogue

np = pytest.importorskip("numpy")
from epilogue import _core  # noqa: E402

if not _core.has_engine:
    pytest.skip("this build holds the trace half only", allow_module_level=True)


@pytest.fixture
def mlp():
    epilogue.manual_seed(0)
    return epilogue.GatedMLP(64, 128)


def geglu(x, gate, up, down):
    """In f64, after the formula: tanh's GELU."""
    g, u = x @ gate.T, x @ up.T
    act = 0.5 * g * (1 + np.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)))
    return (act * u) @ down.T


def weights_of(mlp):
    return [w.numpy().astype(np.float64) for w in mlp.state_dict().values()]


@pytest.mark.parametrize(
    "kind, name",
    [
        (np.float32, "f32"),
        (np.float16, "f16"),
        (np.float64, "f64"),
        (np.int64, "i64"),
        (np.uint8, "u8"),
        (np.bool_, "bool"),
    ],
)
def test_memory_is_shared_with_numpy(kind, name):
    array = np.arange(12).reshape(3, 4).astype(kind)
    tensor = epilogue.from_numpy(array)
    assert (tensor.dtype, tensor.shape, tensor.ndim, tensor.size) == (name, (3, 4), 2, 12)
    assert tensor.nbytes == array.nbytes
    back = tensor.numpy()
    assert np.shares_memory(array, back) and back.dtype == kind
    assert np.shares_memory(array, np.from_dlpack(tensor))
    array[1, 2] = 1
    assert back[1, 2] == array[1, 2]


def test_strides_are_kept():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (array.T, array[:, ::2], array[1:3], array[:, :0], array[2, 3]):
        tensor = epilogue.from_numpy(np.asarray(view))
        assert tensor.shape == view.shape
        assert tensor.tolist() == view.ravel().tolist()
    assert np.shares_memory(epilogue.from_numpy(array.T).numpy(), array)


def test_writes_go_through():
    array = np.ones((2, 3), np.float32)
    epilogue.from_numpy(array).add_(epilogue.ones([2, 3]))
    assert (array == 2).all()


def test_an_array_that_is_read_only_refuses_writes():
    array = np.zeros(3, np.float32)
    array.setflags(write=False)
    tensor = epilogue.from_numpy(array)
    assert not tensor.is_writable
    with pytest.raises(epilogue.Error, match="may be written"):
        tensor.fill_(1.0)
    with pytest.raises(epilogue.Error, match="may be written"):
        tensor.reshape([3, 1]).fill_(1.0)
    assert not tensor.numpy().flags.writeable
    assert (array == 0).all()


def test_bf16_goes_by_dlpack_alone():
    tensor = epilogue.tensor([1, 2, 3], dtype="bf16")
    again = epilogue.from_dlpack(tensor)
    assert again.dtype == "bf16" and again.tolist() == [1, 2, 3]
    again.fill_(5.0)
    assert tensor.tolist() == [5, 5, 5]
    with pytest.raises(epilogue.Error, match="DLPack"):
        tensor.numpy()


def test_arrays_live_as_long_as_tensors_over_them():
    array = np.arange(1000, dtype=np.float32)
    alive = weakref.ref(array)
    tensor = epilogue.from_numpy(array)
    view = tensor.reshape([10, 100])
    del array, tensor
    gc.collect()
    assert alive() is not None and view.tolist()[-1] == 999
    del view
    gc.collect()
    assert alive() is None


def test_tensors_live_as_long_as_arrays_over_them():
    array = epilogue.ones([1000]).numpy()
    gc.collect()
    for _ in range(10):
        epilogue.zeros([1000])
    assert (array == 1).all()


def test_what_is_no_array_is_named():
    for bad, message in (
        (np.zeros(2, np.complex64), "expected elements of float32"),
        (np.zeros(2, np.int16), "expected elements of float32"),
        (np.zeros([1] * 9, np.float32), "at most 8 dimensions, got 9"),
    ):
        with pytest.raises(epilogue.Error, match=message):
            epilogue.from_numpy(bad)
    with pytest.raises(TypeError, match="expected an array on the CPU, got str"):
        epilogue.from_dlpack("text")
    with pytest.raises(epilogue.Error, match="rows of one length"):
        epilogue.tensor([[1, 2], [3]])
    with pytest.raises(epilogue.Error, match="expected f32, bf16"):
        epilogue.zeros([2], dtype="float128")
    with pytest.raises(epilogue.Error, match="detach"):
        epilogue.Linear(2, 2).weight.numpy()


def test_operators_are_numpys():
    a = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    t = epilogue.from_numpy(a)
    for got, want in (
        (t + 1, a + 1),
        (1 - t, 1 - a),
        (t * t, a * a),
        (t / 2.0, a / 2),
        (2.0 / t, 2 / a),
        (-t, -a),
        (t @ t.T, a @ a.T),
        (epilogue.relu(t), np.maximum(a, 0)),
        (epilogue.tanh(t), np.tanh(a)),
        (epilogue.sigmoid(t), 1 / (1 + np.exp(-a))),
    ):
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-6, atol=2e-6)
    assert epilogue.sum(t * t).item() == pytest.approx((a * a).sum())
    np.testing.assert_allclose(epilogue.softmax(t).numpy().sum(1), np.ones(3), rtol=1e-6)
    assert repr(epilogue.tensor([1.5])) == "tensor([1.5000])"


def test_linear_and_its_gradient():
    layer = epilogue.Linear(3, 2)
    x = epilogue.tensor([[1, 2, 3]])
    y = layer(x)
    weight, bias = (p.detach().numpy() for p in layer.parameters())
    np.testing.assert_allclose(y.detach().numpy(), x.numpy() @ weight.T + bias, rtol=1e-6)
    epilogue.sum(y).backward()
    assert layer.weight.grad.tolist() == [1, 2, 3, 1, 2, 3]
    layer.zero_grad()
    assert layer.weight.grad is None
    with epilogue.no_grad():
        assert not layer(x).requires_grad


def test_compile_and_the_fused_mlp_compute_the_formula(mlp):
    x = np.random.default_rng(0).standard_normal((16, 64), np.float32)
    want = geglu(x.astype(np.float64), *weights_of(mlp))
    gate, up, down = (p.weight for p in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    function = epilogue.compile(
        lambda t: (epilogue.gelu(t @ gate.T, "tanh") * (t @ up.T)) @ down.T
    )
    module = epilogue.compile(mlp)
    t = epilogue.from_numpy(x)
    with epilogue.no_grad():
        results = {
            "eager": mlp(t),
            "module": module(t),
            "function": function(t),
            "fused": epilogue.fused_gated_mlp(t, gate, up, down, activation="geglu"),
        }
    for name, got in results.items():
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5, err_msg=name)
    assert module.stats()["kernels"] == function.stats()["kernels"] == 1
    assert module.stats()["eager_kernels"] == 5
    assert "1 kernel for 5 ops" in module.explain()


@pytest.mark.parametrize(
    "bits, least, most",
    [({"weights": "int8"}, 1e-4, 0.02), ({"int8_weights": True}, 1e-4, 0.02), ({"weights": "int8", "activations": "int8"}, 1e-3, 0.04),
     ({"weights": "int4", "group": 32, "zero_points": True}, 1e-2, 0.3), ({"weights": "int4", "activations": "int8"}, 1e-2, 0.3)],
    ids=str,
)
def test_fewer_bits_are_near_and_the_same_both_ways(mlp, bits, least, most):
    x = np.random.default_rng(0).standard_normal((16, 64), np.float32)
    want = geglu(x.astype(np.float64), *weights_of(mlp))
    gate, up, down = (p.weight for p in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    t = epilogue.from_numpy(x)
    with epilogue.no_grad():
        compiled = epilogue.compile(mlp, **bits)(t).numpy()
        fused = epilogue.fused_gated_mlp(t, gate, up, down, activation="geglu", **bits).numpy()
    off = np.linalg.norm(compiled - want) / np.linalg.norm(want)
    assert least < off < most
    np.testing.assert_allclose(fused, compiled, rtol=1e-4, atol=1e-5)


def test_bits_that_do_not_fit_are_one_error(mlp):
    with pytest.raises(epilogue.Error, match=r"\[activations\] expected None unless weights are 'int8' or 'int4', got 'int8'"):
        epilogue.compile(mlp, activations="int8")
    with pytest.raises(epilogue.Error, match=r"\[weights\] expected 'int8' or None beside int8_weights=True, got 'int4'"):
        epilogue.compile(mlp, weights="int4", int8_weights=True)


def test_a_compiled_function_holds_what_it_needs():
    with epilogue.no_grad():
        fast = epilogue.compile(epilogue.GatedMLP(8, 16))
        gc.collect()
        assert fast(epilogue.ones([2, 8])).shape == (2, 8)


def test_what_a_function_raises_comes_out():
    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        epilogue.compile(broken)(epilogue.ones([2]))
    with pytest.raises(epilogue.Error, match="expected a module or a function"):
        epilogue.compile(3)
    with pytest.raises(epilogue.Error, match="expected tune"):
        epilogue.compile(lambda x: x, tune="always")
    with pytest.raises(epilogue.Error, match="aten::"):
        epilogue.matmul(epilogue.ones([2, 3]), epilogue.ones([2, 3]))


def test_several_results_are_a_tuple():
    with epilogue.no_grad():
        both = epilogue.compile(lambda x, y: (x + y, x * y))
        a, b = both(epilogue.tensor([1, 2]), epilogue.tensor([3, 4]))
    assert (a.tolist(), b.tolist()) == ([4, 6], [3, 8])


def test_any_number_of_threads_may_call(mlp):
    fast = epilogue.compile(mlp)
    inputs = [epilogue.randn([rows, 64]) for rows in (1, 3, 8, 16)]
    with epilogue.no_grad():
        wanted = [mlp(x).numpy() for x in inputs]
    bad = []

    def work():
        with epilogue.no_grad():
            for _ in range(20):
                for x, want in zip(inputs, wanted):
                    if not np.allclose(fast(x).numpy(), want, rtol=1e-4, atol=1e-5):
                        bad.append(x.shape)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bad == []


def test_state_goes_from_module_to_module(mlp):
    other = epilogue.GatedMLP(64, 128)
    other.load_state_dict(mlp.state_dict())
    x = epilogue.randn([4, 64])
    with epilogue.no_grad():
        assert other(x).tolist() == mlp(x).tolist()
    with pytest.raises(epilogue.Error, match="missing"):
        other.load_state_dict({})


def test_profile_is_torchs(mlp, tmp_path):
    ready = []
    x = epilogue.randn([4, 64])
    with epilogue.no_grad(), epilogue.profile(
        schedule=epilogue.schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda prof: ready.append(prof.step_num),
        record_shapes=True,
    ) as prof:
        for _ in range(4):
            with epilogue.record_function("forward"):
                mlp(x)
            prof.step()
    assert ready == [4]
    rows = {row.name: row for row in prof.key_averages()}
    assert rows["aten::mm"].count == 6 and rows["forward"].count == 2
    epilogue.check(prof, "kernels_per_step == 5")
    assert epilogue.explain(prof).kernels == 10
    prof.export_chrome_trace(tmp_path / "trace.json.gz")
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert epilogue.table(tmp_path / "trace.json.gz").to_dict()["rows"] == (
        prof.key_averages().to_dict()["rows"]
    )
    with pytest.raises(epilogue.TraceError):
        prof.export_chrome_trace("/proc/none/trace.json")


def test_profile_before_its_end_and_beside_another():
    prof = epilogue.profile()
    with pytest.raises(epilogue.Error):
        prof.key_averages()
    with prof, pytest.raises(epilogue.Error):
        epilogue.profile().start()


def test_what_on_trace_ready_raises_comes_out():
    def broken(prof):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        with epilogue.profile(on_trace_ready=broken):
            epilogue.ones([2]) + 1


def test_the_interpreter_ends_while_the_library_holds_arrays():
    code = """
import numpy, epilogue
weights = [epilogue.from_numpy(numpy.ones(s, numpy.float32)) for s in ((8, 4), (8, 4), (4, 8))]
with epilogue.no_grad():
    y = epilogue.fused_gated_mlp(epilogue.ones([2, 4]), *weights)
print(y.shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(2, 4)\n", "")
