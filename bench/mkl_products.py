#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mkl_products.py [--rounds 31]: f32 linear layers of 8 to 512 rows beside MKL's packed products.

Both have packed the weight beforehand and run in turn, round after round, on the same tensors, each by the op that a compiled
graph calls: ours by torch.ops.epilogue.linears, MKL's, as Inductor's freezing has it, by torch.ops.mkl._mkl_linear. A line has
the medians, both rates, the ratio with its quartiles over rounds (more is faster), and both errors against float64; it fails
where ours is above 1.05 times MKL's.
Limit both to AVX2 by EPILOGUE_ISA=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2. Needs torch with MKL, and epilogue.torch.
"""

import argparse
import statistics
import sys

import torch
from torch import nn

import epilogue.torch  # noqa: F401  (its ops)
from epilogue.torch.timing import interleaved, quartiles, relative

# Rows x inputs x outputs.
SHAPES = ["512x2048x8192", "512x8192x2048", "512x768x3072", "512x3072x768", "64x768x3072", "12x2048x8192", "8x768x3072"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="ROWSxINPUTSxOUTPUTS", help=" ".join(SHAPES))
    options = parser.parse_args()
    if not torch._C.has_mkl:
        sys.exit("mkl_products.py needs a torch with MKL; this one has none")
    torch.manual_seed(0)
    print(f"float32, {torch.get_num_threads()} threads, torch {torch.__version__}")
    failed = False
    for shape in options.shapes:
        try:
            rows, inputs, outputs = (int(size) for size in shape.split("x"))
        except ValueError:
            sys.exit(f"expected a shape as 512x768x3072, got {shape}")
        layer = nn.Linear(inputs, outputs).eval()
        x = torch.randn(rows, inputs)
        with torch.no_grad():
            exact = x.double() @ layer.weight.double().T + layer.bias.double()
            packed = torch.ops.mkl._mkl_reorder_linear_weight(layer.weight, rows)
            calls = {
                "ours": lambda: torch.ops.epilogue.linears.default(x, [layer.weight], [layer.bias], "")[0],  # noqa: B023
                "mkl": lambda: torch.ops.mkl._mkl_linear(x, packed, layer.weight, layer.bias, rows),  # noqa: B023
            }
            errors = [relative(call(), exact) for call in calls.values()]
            times = interleaved(calls, 0.02, options.rounds)
        low, middle, high = quartiles(times["mkl"], times["ours"])
        mine, theirs = (statistics.median(times[name]) for name in calls)
        flops = 2e-6 * rows * inputs * outputs
        wrong = errors[0] > 1.05 * errors[1]
        failed |= wrong
        print(
            f"{shape:16} ours {mine:8.3f} ms {flops / mine:5.0f} GFLOP/s  MKL {theirs:8.3f} ms {flops / theirs:5.0f} GFLOP/s"
            f"  {middle:5.2f}x [{low:.2f}, {high:.2f}]  errors {errors[0]:.2e} {errors[1]:.2e}{'  LESS EXACT' if wrong else ''}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
