#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the workloads of this folder with PyTorch itself: collect.py OUT"""
import gzip
import json
import re
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function, schedule

FIELDS = ("key", "count", "cpu_time_total", "self_cpu_time_total", "device_time_total",
          "self_device_time_total", "cpu_memory_usage", "self_cpu_memory_usage",
          "device_memory_usage", "self_device_memory_usage", "flops")


ACTIVITIES = [ProfilerActivity.CPU]


class GatedMLP(torch.nn.Module):
    def __init__(self, dim, hidden, act):
        super().__init__()
        self.gate_proj = torch.nn.Linear(dim, hidden, bias=False)
        self.up_proj = torch.nn.Linear(dim, hidden, bias=False)
        self.down_proj = torch.nn.Linear(hidden, dim, bias=False)
        self.act = act

    def forward(self, x):
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def matmul_add(size, dtype):
    args = tuple(torch.randn(size, size, dtype=dtype) for _ in range(3))
    return (lambda x, w, b: torch.add(torch.matmul(x, w), b)), args


def linear(batch, in_dim, out_dim, dtype):
    return torch.nn.Linear(in_dim, out_dim).to(dtype), (torch.randn(batch, in_dim, dtype=dtype),)


def mlp(batch, seq, dim, hidden, act, dtype):
    return GatedMLP(dim, hidden, act).to(dtype), (torch.randn(batch, seq, dim, dtype=dtype),)


def train_step(accumulate, amp):
    model = torch.nn.Sequential(torch.nn.Linear(784, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(256, 784), torch.randint(0, 10, (256,))

    def step():
        for _ in range(accumulate):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                loss = F.cross_entropy(model(x), y) / accumulate
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, ()


def save(prof, path):
    text_path = path.with_suffix(".json")
    prof.export_chrome_trace(str(text_path))
    text = text_path.read_text()
    text_path.unlink()
    # The rest stays as PyTorch wrote it, to the byte.
    text = re.sub(r'"host_name": "[^"]*"', '"host_name": "host"', text)
    text = text.replace(str(text_path), text_path.name)
    with gzip.GzipFile(path.with_suffix(".json.gz"), "wb", mtime=0) as f:
        f.write(text.encode())
    rows = [{**{k: getattr(e, k) for k in FIELDS}, "device_type": str(e.device_type),
             "is_user_annotation": e.is_user_annotation} for e in prof.key_averages()]
    path.with_suffix(".averages.json").write_text(json.dumps(rows))


def record(path, make, label, compiled=False, train=False, rich=False, cold=False, stack=False):
    torch.manual_seed(0)
    torch._dynamo.reset()
    fn, args = make()
    if compiled:
        fn = torch.compile(fn)
    with torch.set_grad_enabled(train):
        for _ in range(0 if cold else 3):
            fn(*args)
        with profile(activities=ACTIVITIES, record_shapes=rich, profile_memory=rich,
                     with_flops=rich, with_stack=stack, schedule=schedule(wait=1, warmup=1, active=3, repeat=1)) as prof:
            for _ in range(5):
                with record_function(label):
                    fn(*args)
                prof.step()
    save(prof, path)


def record_stacks(out):
    """Eager only: a compiled run's frames name files of this machine."""
    record(out / "mlp_stack_eager", lambda: mlp(1, 16, 64, 256, gelu_tanh, torch.float32), "mlp_fwd",
           rich=True, stack=True)
    record(out / "train_stack_eager", lambda: train_step(1, False), "train_step", train=True,
           rich=True, stack=True)


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    bf16, f32 = torch.bfloat16, torch.float32
    shape = (8, 64, 256, 1024)
    for mode in ("eager", "compile"):
        compiled = mode == "compile"
        for name, make, label, options in (
                ("matmul_add_64", lambda: matmul_add(64, bf16), "matmul_add", {}),
                ("matmul_add_1024", lambda: matmul_add(1024, bf16), "matmul_add", {}),
                ("matmul_add_64_cold", lambda: matmul_add(64, bf16), "matmul_add", {"cold": True}),
                ("linear_1024_32_64", lambda: linear(1024, 32, 64, bf16), "linear_fwd", {}),
                ("mlp_geglu", lambda: mlp(*shape, gelu_tanh, bf16), "mlp_fwd", {}),
                ("mlp_geglu_rich", lambda: mlp(*shape, gelu_tanh, bf16), "mlp_fwd", {"rich": True}),
                ("mlp_swiglu_f32", lambda: mlp(*shape, F.silu, f32), "mlp_fwd", {}),
                ("mlp_tiny", lambda: mlp(1, 16, 64, 256, gelu_tanh, bf16), "mlp_fwd", {}),
                ("train_f32", lambda: train_step(1, False), "train_step",
                 {"train": True, "rich": True})):
            record(out / f"{name}_{mode}", make, label, compiled, **options)
    record(out / "train_bf16_accumulate4_eager", lambda: train_step(4, True), "train_step",
           train=True, rich=True)
    record_stacks(out)


if __name__ == "__main__":
    main()
