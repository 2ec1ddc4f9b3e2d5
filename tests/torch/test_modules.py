# SPDX-License-Identifier: Apache-2.0
"""What users do with modules works as before, or runs the module's own forward."""

import copy
import subprocess
import sys
import threading

import models
import pytest
import torch

import epilogue.torch


@pytest.fixture
def mlp(llama):
    return models.mlp_of(llama, "llama")[0]


def runs(module, x, fused):
    """module(x), checking whether it ran fused."""
    before = epilogue.torch.why(module).fused_calls
    with torch.no_grad():
        y = module(x)
    assert epilogue.torch.why(module).fused_calls - before == (1 if fused else 0), str(epilogue.torch.why(module))
    return y


X = torch.randn(3, 48)


def test_fuse_and_unfuse_leave_everything_else(llama):
    keys, names = list(llama.state_dict()), [type(m) for m in llama.modules()]
    assert epilogue.torch.fuse(llama) is llama
    assert list(llama.state_dict()) == keys
    assert isinstance(llama.model.layers[0].mlp, type(models.build("llama").model.layers[0].mlp))
    assert epilogue.torch.fuse(llama) is llama
    assert len(epilogue.torch.why(llama).fused) == models.LAYERS
    assert epilogue.torch.unfuse(llama) is llama
    assert [type(m) for m in llama.modules()] == names
    assert not epilogue.torch.why(llama).fused


def test_deepcopy_has_weights_of_its_own(mlp):
    want = mlp(X)
    epilogue.torch.fuse(mlp)
    runs(mlp, X, True)
    other = copy.deepcopy(mlp)
    with torch.no_grad():
        other.down_proj.weight.zero_()
    assert runs(other, X, True).abs().max() == 0
    torch.testing.assert_close(runs(mlp, X, True), want)


@pytest.mark.parametrize("save", ["pickle", "torch.save"])
def test_pickle(mlp, save):
    want = mlp(X)
    epilogue.torch.fuse(mlp)
    runs(mlp, X, True)
    other = models.copied(mlp, save)
    torch.testing.assert_close(runs(other, X, True), want)


def test_hooks_on_the_mlp_run(mlp):
    epilogue.torch.fuse(mlp)
    seen = []
    mlp.register_forward_pre_hook(lambda m, args: seen.append("before"))
    mlp.register_forward_hook(lambda m, args, out: out * 2)
    plain = epilogue.torch.unfuse(copy.deepcopy(mlp))
    torch.testing.assert_close(runs(mlp, X, True), plain(X))
    assert seen.count("before") == 2


def test_hook_on_a_layer_runs_the_own_forward(mlp):
    epilogue.torch.fuse(mlp)
    hook = mlp.up_proj.register_forward_hook(lambda m, args, out: out * 0)
    assert runs(mlp, X, False).abs().max() == 0
    assert "a hook on a layer" in str(epilogue.torch.why(mlp))
    hook.remove()
    assert runs(mlp, X, True).abs().max() > 0


def test_global_hook_runs_the_own_forward(mlp):
    epilogue.torch.fuse(mlp)
    seen = []
    hook = torch.nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__))
    runs(mlp, X, False)
    hook.remove()
    assert seen.count("Linear") == 3
    runs(mlp, X, True)


def test_forward_of_an_instance_runs(mlp):
    """As accelerate sets it."""
    epilogue.torch.fuse(mlp)
    mlp.up_proj.forward = lambda x: torch.zeros(*x.shape[:-1], 112)
    assert runs(mlp, X, False).abs().max() == 0


def test_parametrization_runs_the_own_forward(mlp):
    class Double(torch.nn.Module):
        def forward(self, w):
            return 2 * w

    epilogue.torch.fuse(mlp)
    want = runs(mlp, X, True)
    torch.nn.utils.parametrize.register_parametrization(mlp.down_proj, "weight", Double())
    torch.testing.assert_close(runs(mlp, X, False), 2 * want)


def test_another_activation_runs_the_own_forward(mlp):
    epilogue.torch.fuse(mlp)
    runs(mlp, X, True)
    mlp.act_fn = torch.nn.Tanh()
    plain = epilogue.torch.unfuse(copy.deepcopy(mlp))
    torch.testing.assert_close(runs(mlp, X, False), plain(X))
    assert "changed since it was fused" in str(epilogue.torch.why(mlp))


def test_active_dropout_runs_the_own_forward():
    model = models.build("gpt2")
    mlp = models.mlp_of(model, "gpt2")[0]
    epilogue.torch.fuse(mlp)
    mlp.train()
    runs(mlp, X, False)
    assert "dropout is active" in str(epilogue.torch.why(mlp))
    mlp.eval()
    runs(mlp, X, True)


def test_peft_after_and_before():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["up_proj", "down_proj"], init_lora_weights=False)
    prompt = models.ids(6)
    for is_first in (True, False):
        model = models.build("llama")
        if is_first:
            epilogue.torch.fuse(model)
        adapted = peft.get_peft_model(model, config).eval()
        if not is_first:
            epilogue.torch.fuse(adapted)
        with torch.no_grad():
            got = adapted(prompt).logits
            with adapted.disable_adapter():
                off = adapted(prompt).logits
            assert epilogue.torch.why(adapted).fused_calls == 0
            epilogue.torch.unfuse(adapted)
            torch.testing.assert_close(got, adapted(prompt).logits)
        assert not torch.allclose(got, off)


def test_merged_lora_is_fused():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["up_proj", "down_proj"], init_lora_weights=False)
    merged = peft.get_peft_model(models.build("llama"), config).eval().merge_and_unload()
    prompt = models.ids(6)
    with torch.no_grad():
        want = merged(prompt).logits
        torch.testing.assert_close(epilogue.torch.fuse(merged)(prompt).logits, want, rtol=1e-4, atol=1e-5)
    assert epilogue.torch.why(merged).fused_calls == models.LAYERS


def test_export_and_jit_trace(mlp):
    epilogue.torch.fuse(mlp)
    want = runs(mlp, X, True)
    exported = torch.export.export(mlp, (X,))
    torch.testing.assert_close(exported.module()(X), want)
    assert not any("epilogue" in str(n.target) for n in exported.graph.nodes)
    with torch.no_grad():
        torch.testing.assert_close(torch.jit.trace(mlp, X)(X), want)


def test_func_transforms_and_fake_tensors(mlp):
    epilogue.torch.fuse(mlp)
    want = runs(mlp, X, True)
    torch.testing.assert_close(torch.vmap(mlp)(X), want)
    doubled = {k: 2 * v for k, v in mlp.named_parameters()}
    plain = epilogue.torch.unfuse(copy.deepcopy(mlp))
    torch.testing.assert_close(
        torch.func.functional_call(mlp, doubled, (X,)), torch.func.functional_call(plain, doubled, (X,))
    )
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        assert mlp(torch.empty(5, 48)).shape == (5, 48)


def test_inference_mode(mlp):
    epilogue.torch.fuse(mlp)
    want = runs(mlp, X, True)
    with torch.inference_mode():
        y = mlp(X)
    assert y.is_inference()
    torch.testing.assert_close(y, want)
    assert epilogue.torch.why(mlp).fused_calls == 2


def test_keyword_and_wrong_arguments(mlp):
    epilogue.torch.fuse(mlp)
    with torch.no_grad():
        torch.testing.assert_close(mlp(x=X), mlp(X))
        assert epilogue.torch.why(mlp).fused_calls == 2
        with pytest.raises(TypeError, match="argument"):
            mlp(X, X)


def test_bad_input_gives_torchs_own_error(mlp):
    """The same type and words with and without fuse()."""
    plain = copy.deepcopy(mlp)
    epilogue.torch.fuse(mlp)
    meta = torch.empty(3, 48, device="meta")
    for x in (torch.randn(3, 47), torch.randn(3, 48).double(), torch.randint(0, 3, (3, 48)), torch.randn(()), torch.randn(3, 48).to_sparse(), meta, None):
        errors = []
        for module in (mlp, plain):
            try:
                with torch.no_grad():
                    module(x)
                errors.append(None)
            except Exception as error:
                errors.append((type(error), str(error)))
        assert errors[0] == errors[1]
    assert epilogue.torch.why(mlp).fused_calls == 0


def test_fuse_says_what_it_wants():
    with pytest.raises(TypeError, match="nn.Module, got int"):
        epilogue.torch.fuse(3)
    with pytest.raises(ValueError, match="'model' or 'measure'"):
        epilogue.torch.fuse(torch.nn.Linear(2, 2), tune="fast")


class Odd(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.fc1, self.fc2, self.act = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8), act

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


def test_why_says_why_not():
    class TwoPaths(Odd):
        def forward(self, x):
            return self.fc2(self.act(self.fc1(x))) if x.sum() > 0 else x

    cases = {
        Odd(torch.nn.Tanh()): "Tanh",
        Odd(torch.nn.Hardtanh(0, 100)): "Hardtanh",
        TwoPaths(torch.nn.ReLU()): "torch.fx cannot trace",
    }
    for module, words in cases.items():
        epilogue.torch.fuse(module)
        report = epilogue.torch.why(module)
        assert not report.fused and words in str(report)
        assert report.to_dict()["modules"][0]["is_fused"] is False


def test_two_threads_share_a_model(mlp):
    inputs = [torch.randn(rows, 48) for rows in (1, 5, 33)]
    with torch.no_grad():
        want = [mlp(x) for x in inputs]
    epilogue.torch.fuse(mlp)
    wrong = []

    def serve():
        with torch.no_grad():
            for i in range(150):
                x, y = inputs[i % 3], want[i % 3]
                if not torch.allclose(mlp(x), y, rtol=1e-4, atol=1e-5):
                    wrong.append(i)

    threads = [threading.Thread(target=serve) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_number_of_threads_is_torchs(mlp):
    epilogue.torch.fuse(mlp)
    before = torch.get_num_threads()
    x = torch.randn(300, 48)
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(runs(mlp, x, True))
        for y in results[1:]:
            torch.testing.assert_close(y, results[0])
    finally:
        torch.set_num_threads(before)


PROCESS = """
import os, torch, epilogue.torch
mlp = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).eval()
torch.set_num_threads(2)
x = torch.randn(512, 256)
with torch.no_grad():
    mlp(x)
    before = len(os.listdir("/proc/self/task"))
    epilogue.torch.fuse(mlp)
    mlp(x)
    after = len(os.listdir("/proc/self/task"))
assert epilogue.torch.why(mlp).fused_calls == 1
files = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
openmp = {f for f in files if any(n in f.rsplit("/", 1)[-1] for n in ("gomp", "iomp", "libomp"))}
engines = {f for f in files if "/libepilogue.so" in f}
print(len(openmp), len(engines), after - before)
"""


def test_one_openmp_one_engine_and_no_more_threads():
    out = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split() == ["1", "1", "0"]


def test_it_says_what_to_install():
    code = ("import sys; sys.modules['epilogue_torch'] = sys.modules['epilogue._torch_ops'] = None; "
            "import epilogue.torch")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "pip install ./python/epilogue_torch" in out.stderr
    code = "import sys; sys.modules['torch'] = None; import epilogue.torch"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "pip install torch" in out.stderr


def test_tune_measure_keeps_a_choice(mlp, tmp_path, monkeypatch):
    from epilogue.torch import choose

    monkeypatch.setenv("EPILOGUE_CACHE_DIR", str(tmp_path))
    choose.forget()
    want = mlp(X)
    epilogue.torch.fuse(mlp, tune="measure")
    with torch.no_grad():
        torch.testing.assert_close(mlp(X), want)
    (file,) = tmp_path.iterdir()
    text = file.read_text()
    assert "rows 4" in text and "torch.float32" in text
    # What the file says is obeyed, by a module that never measured.
    for kept, calls in (("true", 1), ("false", 0)):
        file.write_text(text.replace("true", kept).replace("false", kept))
        choose.forget()
        other = copy.deepcopy(mlp)
        with torch.no_grad():
            torch.testing.assert_close(other(X), want)
        assert epilogue.torch.why(other).fused_calls == calls
    assert "PyTorch is faster" in str(epilogue.torch.why(other))
    file.write_text("{")  # cut short: measured again
    choose.forget()
    with torch.no_grad():
        torch.testing.assert_close(copy.deepcopy(mlp)(X), want)
    choose.forget()
