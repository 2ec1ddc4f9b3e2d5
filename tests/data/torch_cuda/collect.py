# SPDX-License-Identifier: Apache-2.0
"""Records the workloads of ../torch, and three of its own, on a CUDA device: collect.py OUT"""
import pickle
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function, schedule

sys.path.insert(0, str(Path(__file__).parent.parent / "torch"))
import collect  # noqa: E402  (the folder is known from here on)

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
SHAPE = (64, 128, 768, 3072)


def record_all(out):
    bf16, f32 = torch.bfloat16, torch.float32
    for mode in ("eager", "compile"):
        for name, make, label, options in (
                ("matmul_add_64", lambda: collect.matmul_add(64, bf16), "matmul_add", {}),
                ("matmul_add_4096", lambda: collect.matmul_add(4096, bf16), "matmul_add", {}),
                ("linear_1024_32_64", lambda: collect.linear(1024, 32, 64, bf16), "linear_fwd", {}),
                ("mlp_geglu", lambda: collect.mlp(*SHAPE, collect.gelu_tanh, bf16), "mlp_fwd", {}),
                ("mlp_geglu_rich", lambda: collect.mlp(*SHAPE, collect.gelu_tanh, bf16), "mlp_fwd",
                 {"rich": True}),
                ("mlp_swiglu_f32", lambda: collect.mlp(*SHAPE, F.silu, f32), "mlp_fwd", {}),
                ("mlp_tiny", lambda: collect.mlp(1, 16, 64, 256, collect.gelu_tanh, bf16), "mlp_fwd", {}),
                ("train_f32", lambda: collect.train_step(1, False), "train_step",
                 {"train": True, "rich": True})):
            collect.record(out / f"{name}_{mode}", make, label, mode == "compile", **options)


def record_graph_replay(out):
    """A CUDA graph made by hand, and a wait for the device behind each replay."""
    model, (x,) = collect.mlp(1, 16, 768, 3072, collect.gelu_tanh, torch.bfloat16)
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(x)
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        with profile(activities=BOTH, schedule=schedule(wait=1, warmup=1, active=3)) as prof:
            for _ in range(5):
                with record_function("mlp_fwd"):
                    graph.replay()
                torch.cuda.synchronize()
                prof.step()
    collect.save(prof, out / "mlp_graph_replay")


def record_without_warmup(out):
    """No schedule: the profiler gets its buffers within what it records."""
    model, (x,) = collect.mlp(*SHAPE, collect.gelu_tanh, torch.bfloat16)
    with torch.no_grad():
        for _ in range(3):
            model(x)
        torch.cuda.synchronize()
        with profile(activities=BOTH) as prof:
            for _ in range(3):
                with record_function("mlp_fwd"):
                    model(x)
            torch.cuda.synchronize()
    collect.save(prof, out / "mlp_no_warmup")


def without_folders(value, done):
    """The same snapshot with files' last two names alone; what is shared stays shared."""
    if not isinstance(value, (dict, list)):
        return value
    if id(value) not in done:
        done[id(value)] = (
            {k: done.setdefault(v, "/".join(v.split("/")[-2:])) if k == "filename"
             else without_folders(v, done) for k, v in value.items()}
            if isinstance(value, dict) else [without_folders(v, done) for v in value])
    return done[id(value)]


def record_memory(out):
    """Two training steps with AdamW, whose history begins with them, and an allocation that fails."""
    torch.cuda.memory._record_memory_history(max_entries=20000)
    step, _ = collect.train_step(1, False)
    for _ in range(2):
        step()
    try:
        torch.empty(1 << 44)
    except torch.OutOfMemoryError:
        pass
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    (out / "train_memory.pickle").write_bytes(pickle.dumps(without_folders(snapshot, {})))


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.set_default_device("cuda")
    collect.ACTIVITIES[:] = BOTH
    record_all(out)
    record_graph_replay(out)
    record_without_warmup(out)
    record_memory(out)


if __name__ == "__main__":
    main()
