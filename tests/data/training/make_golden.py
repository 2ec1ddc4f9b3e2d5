#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's optimizers, losses, schedules, scaler and autocast; writes golden.json beside this file.

    python make_golden.py

The numbers are what the tests of src/nn/optim, src/nn/amp and the losses are compared with. Inputs
are in the file too, so that the tests need no random numbers of PyTorch's. Needs torch; run again
only to add a case.
"""
import json
from pathlib import Path

import torch
import torch.nn.functional as F

SHAPES = [[3, 5], [37]]
STEPS = 4


def numbers(shape, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    # f32 values: they are the same numbers in both precisions.
    return (torch.randn(shape, generator=generator, dtype=torch.float32) * scale).double()


def flat(tensor):
    return tensor.detach().double().flatten().tolist()


OPTIMIZERS = [
    ("SGD", dict(lr=0.1)),
    ("SGD", dict(lr=0.1, weight_decay=0.05, maximize=True)),
    ("SGD", dict(lr=0.1, momentum=0.9)),
    ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.01)),
    ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
    ("Adam", dict(lr=0.01)),
    ("Adam", dict(lr=0.01, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1)),
    ("Adam", dict(lr=0.01, amsgrad=True, maximize=True)),
    ("AdamW", dict(lr=0.01)),
    ("AdamW", dict(lr=0.01, betas=(0.8, 0.95), weight_decay=0.3, amsgrad=True)),
    ("AdamW", dict(lr=0.01, maximize=True)),
]


def run_optimizer(name, options, dtype):
    params = [numbers(s, i).to(dtype).requires_grad_() for i, s in enumerate(SHAPES)]
    optimizer = getattr(torch.optim, name)(params, foreach=False, **options)
    for step in range(STEPS):
        for i, p in enumerate(params):
            # The second parameter has no gradient in the first step.
            skipped = i == 1 and step == 0
            p.grad = None if skipped else numbers(SHAPES[i], 100 + 10 * step + i, 0.3).to(dtype)
        optimizer.step()
    state = [
        {key: flat(torch.as_tensor(value)) for key, value in optimizer.state[p].items() if value is not None}
        for p in params
    ]
    return {"params": [flat(p) for p in params], "state": state}


def optimizers():
    cases = []
    for name, options in OPTIMIZERS:
        case = {"optimizer": name, "options": {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}}
        case["f64"] = run_optimizer(name, options, torch.float64)
        case["f32"] = run_optimizer(name, options, torch.float32)
        cases.append(case)
    return {
        "shapes": SHAPES,
        "initial": [flat(numbers(s, i)) for i, s in enumerate(SHAPES)],
        "gradients": [
            [flat(numbers(s, 100 + 10 * step + i, 0.3).float()) for i, s in enumerate(SHAPES)] for step in range(STEPS)
        ],
        "cases": cases,
    }


def clipping():
    cases = []
    for norm_type in (1.0, 2.0, 3.0, float("inf")):
        for max_norm in (0.5, 1e6):
            params = [torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in SHAPES]
            for i, p in enumerate(params):
                p.grad = numbers(SHAPES[i], 200 + i)
            total = torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
            cases.append(
                {
                    "norm_type": -1 if norm_type == float("inf") else norm_type,
                    "max_norm": max_norm,
                    "total": total.item(),
                    "gradients": [flat(p.grad) for p in params],
                }
            )
    return {"gradients": [flat(numbers(s, 200 + i)) for i, s in enumerate(SHAPES)], "cases": cases}


def cross_entropy():
    rows, classes = 6, 5
    logits = numbers([rows, classes], 300, 2.0)
    targets = [0, 4, 2, -100, 1, 2]
    weight = [0.5, 1.0, 2.0, 0.25, 1.5]
    cases = []
    for weighted in (False, True):
        for smoothing in (0.0, 0.1):
            for reduction in ("none", "mean", "sum"):
                z = logits.clone().requires_grad_()
                loss = F.cross_entropy(
                    z,
                    torch.tensor(targets),
                    torch.tensor(weight, dtype=torch.float64) if weighted else None,
                    ignore_index=-100,
                    reduction=reduction,
                    label_smoothing=smoothing,
                )
                upstream = torch.arange(1, loss.numel() + 1, dtype=torch.float64).reshape(loss.shape)
                loss.backward(upstream)
                cases.append(
                    {
                        "weighted": weighted,
                        "smoothing": smoothing,
                        "reduction": reduction,
                        "loss": flat(loss),
                        "gradient": flat(z.grad),
                    }
                )
    return {"rows": rows, "classes": classes, "logits": flat(logits), "targets": targets, "weight": weight, "cases": cases}


def schedules():
    def run(make):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
        scheduler = make(optimizer)
        rates = []
        for _ in range(12):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return rates

    return {
        "step": run(lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=3, gamma=0.5)),
        "cosine": run(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=11)),
        "cosine_min": run(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=11, eta_min=0.05)),
    }


def scaler():
    """Steps of a scaler with interval 2 over gradients that overflow where `overflows` says."""
    overflows = [False, False, True, False, False, True, True, False, False, False]
    p = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.1)
    s = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    rows = []
    for overflow in overflows:
        optimizer.zero_grad()
        s.scale((p * (float("inf") if overflow else 0.5)).sum()).backward()
        s.step(optimizer)
        s.update()
        rows.append({"overflow": overflow, "scale": s.get_scale(), "tracker": s._get_growth_tracker(), "params": flat(p)})
    return rows


def autocast():
    """The dtype of each op's result ("error" where it refuses), by dtype of the region and of the inputs."""
    names = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}
    rows = []
    for region in (torch.bfloat16, torch.float16):
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            a = torch.ones(2, 2, dtype=dtype)
            f32 = torch.ones(2, 2)
            labels = torch.tensor([0, 1])
            ops = {
                "aten::mm": lambda: torch.mm(a, a),
                "aten::addmm": lambda: torch.addmm(a, a, a),
                "aten::bmm": lambda: torch.bmm(a[None], a[None]),
                "aten::matmul": lambda: torch.matmul(a, a),
                "aten::linear": lambda: F.linear(a, a),
                "aten::mse_loss": lambda: F.mse_loss(a, a),
                "aten::nll_loss": lambda: F.nll_loss(a, labels),
                "aten::cross_entropy_loss": lambda: F.cross_entropy(a, labels),
                "aten::cat": lambda: torch.cat([a, a]),
                "aten::cat with f32": lambda: torch.cat([a, f32]),
                "aten::add": lambda: a + a,
                "aten::mul": lambda: a * f32,
                "aten::gelu": lambda: F.gelu(a),
                "aten::exp": lambda: torch.exp(a),
                "aten::softmax": lambda: torch.softmax(a, 1),
                "aten::log_softmax": lambda: torch.log_softmax(a, 1),
                "aten::layer_norm": lambda: F.layer_norm(a, [2]),
                "aten::sum": lambda: a.sum(),
            }
            for op, run in ops.items():
                with torch.autocast("cpu", dtype=region):
                    try:
                        result = names[run().dtype]
                    except RuntimeError:
                        result = "error"
                rows.append({"op": op, "region": names[region], "input": names[dtype], "result": result})
    return rows


def main():
    golden = {
        "torch": torch.__version__.split("+")[0],
        "optimizers": optimizers(),
        "clipping": clipping(),
        "cross_entropy": cross_entropy(),
        "schedules": schedules(),
        "scaler": scaler(),
        "autocast": autocast(),
    }
    path = Path(__file__).with_name("golden.json")
    path.write_text(json.dumps(golden) + "\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes, torch {golden['torch']}")


if __name__ == "__main__":
    main()
