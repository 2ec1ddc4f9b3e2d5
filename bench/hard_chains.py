#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Savings of torch.compile on chains of which bytes alone say too much: norms, random numbers,
softmax, scans. Measured, and, with EPILOGUE, beside what `epilogue explain` predicts.

  bench/hard_chains.py [EPILOGUE] [--set first|second|third] [--only TEXT] [--rounds 9] [--save DIR]

Runs each chain eagerly and compiled on one thread of the CPU, in turns, and takes the medians of
their CPU time, which other work on the machine hardly changes, less the time of calling a compiled
function. Below 0 %, Inductor's kernel takes longer. Three eager traces of each chain, recorded between
the turns, are explained: predicted = the pointwise-chain fusions of a step, in percent of the time of
its ops beside matrix products (medians of steps and traces). A chain that
`explain` does not offer is not advised to be fused: "-", and its error is what advice would have
saved (0 where Inductor is slower). The model was made looking at the first set; the others were
recorded afterwards. --save keeps traces and measurements, `--from DIR` predicts again from them.
Needs torch and a C++ compiler.
"""
import argparse
import json
import statistics
import time
from pathlib import Path

ROUNDS = 9
CALLS = 3
PRODUCTS = ("aten::matmul", "aten::mm", "aten::addmm", "aten::linear", "aten::bmm")


def chains():
    import torch
    import torch.nn.functional as F

    def norm(x, w, b):
        return F.layer_norm(x, (x.shape[-1],), w, b)

    def rms(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    def nucleus(x, y, w, b):
        p = torch.softmax(x, -1)
        return (p.cumsum(-1) - p) > 0.9

    def entropy(x, y, w, b):
        p = torch.softmax(x, -1)
        return -(p * torch.log(p + 1e-6)).sum(-1)

    first = {
        "add_layer_norm": lambda x, y, w, b: norm(x + y, w, b),
        "gelu_dropout": lambda x, y, w, b: F.dropout(F.gelu(x), 0.1, True),
        "nucleus": nucleus,
        "add_softmax": lambda x, y, w, b: torch.softmax(x + y, -1),
        "add_rms": lambda x, y, w, b: rms(x + y, w),
        "pointwise": lambda x, y, w, b: torch.relu(x * 0.5 + y) * y,
        "masked_softmax": lambda x, y, w, b: torch.softmax(x * 0.125 + b, -1),
        "dropout_add": lambda x, y, w, b: F.dropout(x, 0.1, True) + y,
        "noise": lambda x, y, w, b: torch.tanh(x + 0.1 * torch.randn_like(x)) * y,
        "entropy": entropy,
        "running_mean": lambda x, y, w, b: x.cumsum(-1) / 100 + y * 2,
        "modulated_norm": lambda x, y, w, b: norm(x, None, None) * (1 + w) + b,
        "norm_gelu": lambda x, y, w, b: F.gelu(norm(x, w, b)),
        "silu_gate": lambda x, y, w, b: F.silu(x) * y,
        "unit_rows": lambda x, y, w, b: x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6),
        "log_softmax_loss": lambda x, y, w, b: -(torch.log_softmax(x, -1) * y).sum(-1),
    }
    second = {
        "half_add_norm": lambda x, y, w, b: norm(x * 0.5 + y, w, b) * 2,
        "residual_dropout_norm": lambda x, y, w, b: norm(x + F.dropout(y, 0.2, True), w, b),
        "softmax_dropout": lambda x, y, w, b: F.dropout(torch.softmax(x * 0.2, -1), 0.1, True) * y,
        "gumbel": lambda x, y, w, b: torch.softmax(x - torch.log(-torch.log(torch.rand_like(x))),
                                                   -1),
        "survival": lambda x, y, w, b: torch.sigmoid(x).cumprod(-1) * y,
        "standardised": lambda x, y, w, b: (x - x.mean(-1, keepdim=True)) /
                                           (x.std(-1, keepdim=True) + 1e-5),
        "temperature": lambda x, y, w, b: torch.softmax((x - y) / 0.7, -1),
        "relu_rms": lambda x, y, w, b: rms(torch.relu(x) + y, w),
        "l1_rows": lambda x, y, w, b: x.abs() / (x.abs().sum(-1, keepdim=True) + 1e-6),
        "tanh_gate": lambda x, y, w, b: torch.tanh(x) * torch.sigmoid(y),
        "logit_loss": lambda x, y, w, b: F.softplus(x) - x * y,
        "cumsum_gate": lambda x, y, w, b: x.cumsum(-1) * torch.sigmoid(y),
        "gelu_bias": lambda x, y, w, b: F.gelu(x + b) * y,
        "min_max": lambda x, y, w, b: (x - x.amin(-1, keepdim=True)) /
                                      (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True) + 1e-6),
        "masked_rows": lambda x, y, w, b: torch.softmax(x.masked_fill(y > 1, -1e9), -1),
        "product_gate": lambda x, y, w, b: torch.sigmoid(x @ y[:x.shape[1], :x.shape[1]]) * x,
    }
    third = {
        "post_norm": lambda x, y, w, b: norm(F.silu(x) + y, w, b),
        "scaled_noise": lambda x, y, w, b: x * w + 0.01 * torch.randn_like(x) * y,
        "weighted_softmax": lambda x, y, w, b: torch.softmax(x * w, -1) * y,
        "cumsum_mask": lambda x, y, w, b: (torch.relu(x).cumsum(-1) < 5).to(x.dtype) * y,
        "centred": lambda x, y, w, b: (x - x.mean(-1, keepdim=True)) * w + b,
        "variance_gate": lambda x, y, w, b: x * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5) + y,
        "dropout_gelu_mul": lambda x, y, w, b: F.dropout(F.gelu(x) * y, 0.15, True),
        "mish_bias": lambda x, y, w, b: F.mish(x + b),
        "hinge": lambda x, y, w, b: torch.relu(1 - x * y).mean(-1),
        "kl_rows": lambda x, y, w, b: (torch.softmax(x, -1) *
                                       (torch.log_softmax(x, -1) - torch.log_softmax(y, -1))).sum(-1),
        "exp_rows": lambda x, y, w, b: torch.exp(x - x.amax(-1, keepdim=True)) * w,
        "elu_residual": lambda x, y, w, b: F.elu(x + y) + x,
        "soft_cap": lambda x, y, w, b: torch.softmax(20 * torch.tanh(x / 20) + b, -1),
        "polynomial": lambda x, y, w, b: ((x * 0.3 + 0.2) * x + 0.1) * x + y,
        "product_norm": lambda x, y, w, b: norm(x @ y[:x.shape[1], :x.shape[1]] + x, w, b),
        "cosine": lambda x, y, w, b: (x * y).sum(-1) * torch.rsqrt((x * x).sum(-1) + 1e-6),
    }
    return {"first": (first, ((512, 768), (4096, 1024))),
            "second": (second, ((1280, 640), (2816, 1536))),
            "third": (third, ((960, 896), (5120, 1152)))}


def cpu_us(f, args):
    start = time.thread_time()
    for _ in range(CALLS):
        f(*args)
    return (time.thread_time() - start) / CALLS * 1e6


def record(f, tensors, path):
    from torch.profiler import ProfilerActivity, profile, schedule
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=1, warmup=2, active=7, repeat=1)) as prof:
        for _ in range(10):
            f(*tensors)
            prof.step()
    prof.export_chrome_trace(str(path))


def shares(epilogue, path):
    """The share that ops beside products take of all, and the share of that which is predicted."""
    found = [share(epilogue, p) for p in sorted(path.parent.glob(f"{path.stem}.*.json"))]
    predicted = [p for _, p in found if p is not None]
    return (statistics.median(s for s, _ in found),
            statistics.median(predicted) if 2 * len(predicted) > len(found) else None)


def share(epilogue, path):
    from fusion_pairs import inside, run_json, steps
    trace = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]
    windows = steps(trace)
    all_us, chain_us = [0] * len(windows), [0] * len(windows)
    end = float("-inf")
    for e in sorted((e for e in trace if e.get("cat") == "cpu_op"), key=lambda e: e["ts"]):
        window = next((i for i, s in enumerate(windows) if inside(e, s)), None)
        if e["ts"] < end or window is None:
            continue  # called by the one before
        end = e["ts"] + e["dur"]
        all_us[window] += e["dur"]
        chain_us[window] += 0 if e["name"] in PRODUCTS else e["dur"]
    document = run_json(epilogue, "explain", path, "--format", "json")
    chosen = [f["predicted_saving_us"] for f in document["fusions"]
              if f["kind"] == "pointwise-chain"]
    chain = statistics.median(chain_us)
    return (chain / statistics.median(all_us),
            sum(chosen) / len(windows) / chain if chosen else None)


def measure(args, name, chain, shape, folder):
    import torch
    torch._dynamo.reset()
    torch.manual_seed(0)
    tensors = (torch.randn(*shape), torch.randn(max(shape), shape[1])[:max(shape)],
               torch.randn(shape[1]), torch.randn(shape[1]))
    tensors = (tensors[0], torch.randn(*shape) if shape[0] >= shape[1] else tensors[1][:shape[0]],
               *tensors[2:])
    compiled = torch.compile(chain)
    with torch.no_grad():
        for f in (compiled, compiled, chain):
            f(*tensors)
        times = []
        for i in range(args.rounds):
            times.append((cpu_us(chain, tensors), cpu_us(compiled, tensors)))
            if i % 3 == 1:
                record(chain, tensors, folder / f"{name}_{shape[0]}_{shape[1]}.{i}.json")
    eager, fused = (statistics.median(t[i] for t in times) for i in range(2))
    return eager, fused - args.call_us


def call_us():
    """Time of calling a compiled function that computes next to nothing."""
    import torch
    tiny = torch.compile(lambda x, y, w, b: x + y)
    tensors = tuple(torch.ones(2) for _ in range(4))
    with torch.no_grad():
        for _ in range(3):
            tiny(*tensors)
        return statistics.median(cpu_us(tiny, tensors) for _ in range(51))


def row(name, shape, before, after, share, predicted):
    """Prints a line; the error, in parts of the chain's time."""
    saved = (1 - after / before) / share
    error = predicted - saved if predicted is not None else -max(0.0, saved)
    text = "-" if predicted is None else f"{100 * predicted:.0f}%"
    print(f"{name:<24}{shape:>12}{before:>10.0f}{after:>10.0f}{100 * saved:>7.0f}%{text:>11}"
          f"{100 * error:>7.0f}%", flush=True)
    return error


def run(args, folder):
    from fusion_pairs import error_text
    figures, errors = {}, []
    saved = folder / "figures.json"
    print(f"{'chain':<24}{'shape':>12}{'eager':>10}{'compiled':>10}{'saved':>8}{'predicted':>11}"
          f"{'error':>8}   (us of CPU time)")
    if args.source:
        figures = json.loads(saved.read_text())
    else:
        import torch
        torch.set_num_threads(1)
        args.call_us = call_us()
        print(f"(calling a compiled function: {args.call_us:.0f} us)")
        blocks, shapes = chains()[args.set]
        for name, chain in blocks.items():
            for shape in shapes:
                if args.only in name:
                    times = measure(args, name, chain, shape, folder)
                    figures[f"{name}_{shape[0]}_{shape[1]}"] = times
                    saved.write_text(json.dumps(figures))
                    if args.epilogue:
                        share, predicted = shares(args.epilogue,
                                                  folder / f"{name}_{shape[0]}_{shape[1]}.json")
                        errors.append(row(name, f"{shape[0]}x{shape[1]}", *times, share, predicted))
                    else:
                        row(name, f"{shape[0]}x{shape[1]}", *times, 1, None)
    if args.source:
        for key, times in figures.items():
            name, m, n = key.rsplit("_", 2)
            if args.only in name:
                errors.append(row(name, f"{m}x{n}", *times,
                                  *shares(args.epilogue, folder / f"{key}.json")))
    if errors:
        print("\n" + error_text(errors, "the chain's time"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("epilogue", nargs="?", help="predict with this command")
    parser.add_argument("--set", choices=("first", "second", "third"), default="first")
    parser.add_argument("--only", default="", help="chains whose name holds this")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--save", type=Path, help="keeps traces and measurements here")
    parser.add_argument("--from", dest="source", type=Path, help="predicts from what --save kept")
    args = parser.parse_args()
    if args.source and not args.epilogue:
        parser.error("--from needs EPILOGUE")
    if args.source or args.save:
        folder = args.source or args.save
        folder.mkdir(parents=True, exist_ok=True)
        run(args, folder)
        return
    import tempfile
    with tempfile.TemporaryDirectory() as temporary:
        run(args, Path(temporary))


if __name__ == "__main__":
    main()
