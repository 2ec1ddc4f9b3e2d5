#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much do fewer bits lose? fewer_bits_error.py [--seeds 3] [--format text|markdown|json]

The relative L2 error of SwiGLU MLPs against float64, for each choice of fuse(weights=, activations=) and beside
torchao's same scheme where it is installed: weights drawn from a normal distribution, and from Student's t with 4
degrees of freedom, whose outliers are more like those of trained layers; in f32, so that nothing but the rounding
shows. Exit 1 if ours exceeds 1.02 times torchao's, by the geometric mean over seeds. Needs torch and epilogue.torch.
"""
import argparse
import copy
import json
import math
import sys
import warnings

import torch
from torch import nn

import epilogue.torch
from epilogue.torch.timing import relative

SHAPES = [(256, 1024), (1024, 2816)]
ROWS = 64
# name, options of fuse(), torchao's config by name
SCHEMES = [
    ("int8", {"weights": "int8"}, "int8"),
    ("int8, rows too", {"weights": "int8", "activations": "int8"}, "w8a8"),
    ("int4, groups of 128", {"weights": "int4"}, "int4 128 symmetric"),
    ("int4, groups of 32", {"weights": "int4", "group": 32}, "int4 32 symmetric"),
    ("int4, groups of 32, rows", {"weights": "int4", "group": 32, "activations": "int8"}, None),
    ("int4, groups of 128, zeros", {"weights": "int4", "zero_points": True}, "int4 128 asymmetric"),
    ("int4, groups of 32, zeros", {"weights": "int4", "group": 32, "zero_points": True}, "int4 32 asymmetric"),
]


class SwiGlu(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


def draw(module, kind, generator):
    """Weights of unit variance over the root of their inputs."""
    for w in module.parameters():
        values = torch.randn(w.shape, generator=generator)
        if kind == "student":
            squares = sum(torch.randn(w.shape, generator=generator) ** 2 for _ in range(4)) / 4
            values = values / squares.sqrt() / math.sqrt(2)
        with torch.no_grad():
            w.copy_(values / math.sqrt(w.shape[1]))


def torchao_config(name):
    from torchao.quantization import (Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig,
                                      IntxWeightOnlyConfig)
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_primitives import MappingType

    if name == "int8":
        return Int8WeightOnlyConfig()
    if name == "w8a8":
        return Int8DynamicActivationInt8WeightConfig()
    _, group, kind = name.split()
    mapping = MappingType.SYMMETRIC if kind == "symmetric" else MappingType.ASYMMETRIC
    return IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(int(group)), mapping_type=mapping)


def torchao_of(module, name):
    """The module by torchao; None where it is not installed or has no such scheme here."""
    if name is None:
        return None
    try:
        from torchao.quantization import quantize_

        theirs = copy.deepcopy(module)
        quantize_(theirs, torchao_config(name))
        return theirs
    except ImportError as e:
        print(f"fewer_bits_error.py: torchao takes no part: {e}", file=sys.stderr)
    except (RuntimeError, NotImplementedError, AssertionError, TypeError) as e:
        print(f"fewer_bits_error.py: torchao's {name} takes no part: {e}", file=sys.stderr)
    return None


def one(dim, hidden, kind, seed, scheme):
    """Our error and torchao's (None: it takes no part)."""
    _, options, theirs = scheme
    generator = torch.Generator().manual_seed(seed)
    module = SwiGlu(dim, hidden).eval()
    draw(module, kind, generator)
    x = torch.randn(ROWS, dim, generator=generator)
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(x.double())
        ours = epilogue.torch.fuse(copy.deepcopy(module), **options)
        error = relative(ours(x), exact)
        if epilogue.torch.why(ours).fused_calls != 1:
            sys.exit(f"fewer_bits_error.py: the call did not run fused: {epilogue.torch.why(ours)}")
        other = torchao_of(module, theirs)
        return error, None if other is None else relative(other(x), exact)


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--format", choices=["text", "markdown", "json"], default="text")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = []
    for dim, hidden in SHAPES:
        for kind in ("normal", "student"):
            for scheme in SCHEMES:
                pairs = [one(dim, hidden, kind, seed, scheme) for seed in range(options.seeds)]
                theirs = [b for _, b in pairs if b is not None]
                rows.append({"shape": f"{dim}x{hidden}", "weights": kind, "scheme": scheme[0],
                             "error": mean([a for a, _ in pairs]), "torchao": mean(theirs) if theirs else None})
    worse = [r for r in rows if r["torchao"] is not None and r["error"] > 1.02 * r["torchao"]]
    if options.format == "json":
        json.dump({"schema_version": 1, "rows": rows}, sys.stdout, indent=2)
        print()
        return 1 if worse else 0
    is_text = options.format == "text"
    line = "{:<10}{:<9}{:<28}{:>9}{:>10}{:>8}" if is_text else "| {} | {} | {} | {} | {} | {} |"
    print(line.format("shape", "weights", "scheme", "error", "torchao", "ratio"))
    if not is_text:
        print("|---|---|---|---:|---:|---:|")
    for r in rows:
        known = r["torchao"] is not None
        print(line.format(r["shape"], r["weights"], r["scheme"], f"{r['error']:.2e}",
                          f"{r['torchao']:.2e}" if known else "-",
                          f"{r['error'] / r['torchao']:.2f}" if known else "-"))
    for r in worse:
        print(f"fewer_bits_error.py: {r['scheme']}, {r['weights']} {r['shape']}: expected at most 1.02 times torchao's "
              f"error, got {r['error'] / r['torchao']:.2f}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
