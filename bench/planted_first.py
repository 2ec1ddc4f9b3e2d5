# SPDX-License-Identifier: Apache-2.0
"""Runs with a planted cause and clean ones, first set: the rules were written with these in view."""
import math

from planted_case import AVX2, clean, inference, mlp, planted, training

# --- Planted causes, first set ---------------------------------------------------------------------


@planted("data-loader")
def slow_loader():
    import torch

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return 10000

        def __getitem__(self, i):
            return torch.tensor([(i * k) % 255 for k in range(4000)], dtype=torch.float32)
    loader = iter(torch.utils.data.DataLoader(Images(), batch_size=16))
    model = mlp(1000, 1, 1)

    def step():
        with torch.no_grad():
            model(next(loader).reshape(-1, 1000))
    return step


@planted("between-ops", says="preprocess", with_stack=True)
def python_between():
    import torch
    model = mlp(512)

    def preprocess(n):
        return [math.sin(i) * math.cos(i) for i in range(n)]

    def step():
        with torch.no_grad():
            for _ in range(2):
                model(torch.tensor(preprocess(64 * 512)).reshape(64, 512))
    return step


@planted("slow-dtype", says="bf16", env=AVX2)
def bf16_without_instructions():
    import torch
    model, x = mlp(256, 2), torch.randn(128, 256)

    def step():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            model(x)
    return step


@planted("double-precision", says="float64")
def float64_by_accident():
    import torch
    return inference(mlp(768).double(), torch.randn(256, 768, dtype=torch.float64))


@planted("unfused-attention", says="scaled_dot_product_attention")
def attention_by_hand():
    import torch

    class Block(torch.nn.Module):
        def __init__(self, d=512, heads=8):
            super().__init__()
            self.qkv, self.out, self.h = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d), heads

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = (y.view(b, t, self.h, -1).transpose(1, 2) for y in self.qkv(x).split(d, -1))
            s = q @ k.transpose(-1, -2) / math.sqrt(d / self.h)
            y = torch.softmax(s, -1) @ v
            return self.out(y.transpose(1, 2).reshape(b, t, d))
    return inference(Block(), torch.randn(4, 512, 512))


@planted("dispatch")
def item_in_a_loop():
    import torch
    x, model = torch.randn(4000), mlp(128, 1)

    def step():
        with torch.no_grad():
            model(torch.randn(32, 128))
            total = 0.0
            for i in range(len(x)):
                total += x[i].item()
    return step


@planted("thread-contention")
def too_many_threads():
    import torch
    torch.set_num_threads(64)
    model, x = mlp(256, 2), torch.randn(256, 256)

    def step():
        with torch.no_grad():
            y = model(x)
            for _ in range(10):
                y = torch.relu(y) + 1.0
    return step


@planted("bandwidth-products")
def batch_of_one():
    import torch
    return inference(mlp(2048, 3), torch.randn(1, 2048))


@planted("unfused-optimizer", says="fused=True")
def optimizer_of_many_ops():
    import torch
    model = mlp(1024, 4)
    return training(model, torch.optim.AdamW(model.parameters()), torch.randn(8, 1024))


@planted("page-faults")
def fresh_pages():
    import torch
    x = torch.randn(8, 4 << 20)

    def step():
        with torch.no_grad():
            y = x * 2.0
            z = y + 1.0
            z.sub_(y)
            z.mul_(0.5)
    return step


class RmsNorm:
    def __new__(cls, d, eps=1e-6):
        import torch

        class Norm(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(d))

            def forward(self, x):
                h = x.to(torch.float32)
                h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
                return self.weight * h.to(x.dtype)
        return Norm()


@planted("unfused-norm", says="rms_norm")
def rms_norm_by_hand():
    import torch
    return inference(torch.nn.Sequential(*[RmsNorm(1024) for _ in range(4)]), torch.randn(8, 256, 1024))


@planted("unfused-rotary", says="rotary")
def rotary_by_hand():
    import torch
    q, k = torch.randn(2, 16, 512, 64), torch.randn(2, 16, 512, 64)
    angle = torch.randn(512, 64)
    cos, sin = angle.cos(), angle.sin()

    def rotate_half(x):
        a, b = x[..., :x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
        return torch.cat((-b, a), -1)

    def step():
        with torch.no_grad():
            for _ in range(4):
                (q * cos) + (rotate_half(q) * sin)
                (k * cos) + (rotate_half(k) * sin)
    return step


@planted("unfused-gelu", says="approximate")
def gelu_by_hand():
    import torch

    class NewGelu(torch.nn.Module):
        def forward(self, x):
            return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), NewGelu(), torch.nn.Linear(1024, 256))
    return inference(model, torch.randn(2048, 256))


@planted("dispatch")
def cell_by_hand():
    import torch
    w, u, x = torch.randn(32, 128), torch.randn(32, 128), torch.randn(300, 8, 32)

    def step():
        with torch.no_grad():
            h, c = torch.zeros(8, 32), torch.zeros(8, 32)
            for t in range(x.shape[0]):
                i, f, g, o = (x[t] @ w + h @ u).chunk(4, 1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
    return step


@planted("copies", says="aten::cat")
def cache_grown_by_cat():
    import torch
    model = mlp(256, 1)
    keys = [torch.randn(8, 512, 256) for _ in range(8)]
    x = torch.randn(8, 256)

    def step():
        with torch.no_grad():
            grown = list(keys)
            for _ in range(4):
                y = model(x)
                grown = [torch.cat((k, y[:, None]), 1) for k in grown]
    return step


@planted("recompilation", says="torch.compile")
def compiled_in_the_recording():
    import torch
    model = torch.compile(mlp(128, 1), dynamic=False)
    sizes = iter(range(8, 200))

    def step():
        with torch.no_grad():
            model(torch.randn(next(sizes), 128))
    return step


@planted("boolean-mask", says="masked_fill")
def boolean_mask():
    import torch
    x = torch.randn(64, 64 * 512)

    def step():
        with torch.no_grad():
            y = x.abs()
            y[y > 0.5] = 0.0
            y[y > 0.2].sum()
    return step


# --- Clean runs, first set -------------------------------------------------------------------------
# Chains of elementwise ops that are run one by one could be fused: that is true of eager runs.


@clean()
def clean_products():
    import torch
    return inference(torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)]),
                     torch.randn(512, 1024))


@clean({"fusion"})
def clean_mlp():
    import torch
    return inference(mlp(768), torch.randn(512, 768))


class Attention:
    def __new__(cls, d=512, heads=8):
        import torch

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.norm1, self.norm2 = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)
                self.qkv, self.out, self.mlp = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d), mlp(d, 1)

            def forward(self, x):
                b, t, _ = x.shape
                q, k, v = (y.view(b, t, heads, -1).transpose(1, 2)
                           for y in self.qkv(self.norm1(x)).split(d, -1))
                y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
                x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
                return x + self.mlp(self.norm2(x))
        return Block()


@clean({"fusion"})
def clean_block():
    import torch
    return inference(torch.nn.Sequential(Attention(), Attention()), torch.randn(4, 256, 512))


@clean({"fusion"})
def clean_training():
    import torch
    model = Attention()
    return training(model, torch.optim.AdamW(model.parameters(), fused=True), torch.randn(8, 256, 512))


@clean()
def clean_compiled():
    import torch
    return inference(torch.compile(Attention()), torch.randn(4, 256, 512))


@clean({"fusion"})
def clean_convolutions():
    import torch
    n = torch.nn
    model = n.Sequential(n.Conv2d(3, 64, 3, padding=1), n.BatchNorm2d(64), n.ReLU(), n.Conv2d(64, 64, 3, padding=1),
                         n.BatchNorm2d(64), n.ReLU()).to(memory_format=torch.channels_last)
    return inference(model, torch.randn(8, 3, 96, 96).contiguous(memory_format=torch.channels_last))


@clean({"fusion"})
def clean_bf16():
    import torch
    return inference(mlp(1024).bfloat16(), torch.randn(512, 1024).bfloat16())


@clean()
def clean_lstm():
    import torch
    return inference(torch.nn.LSTM(256, 512, 2), torch.randn(64, 32, 256))
