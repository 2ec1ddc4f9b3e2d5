#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast are MLPs with fewer bits beside torchao's? fewer_bits_torchao.py [--rows 64 512] [--isa avx512] [--minutes 4] [--json FILE]

A SwiGLU MLP of 2048 x 8192 in bf16, weights drawn from a normal distribution: fuse() with fewer bits, torchao's same scheme by
torch.compile with freezing, and PyTorch's own bf16, eager and compiled. All take turns, round after round. A line has the median,
the ratio of medians of the faster of torchao's and PyTorch's to ours with its 95 % interval over rounds, and the relative L2 error
against float64 beside torchao's. --isa limits ours, oneDNN, ATen and MKL to an instruction set; below bf16's, PyTorch's f32 is a peer
too, and ours is compared with our own f32. A scheme that torchao does not have on this CPU is named. Needs torch, torchao and epilogue.torch;
keep the machine quiet meanwhile.
"""
import argparse
import copy
import json
import os
import statistics
import sys
import time
import warnings

LIMITS = {
    "avx2": {"EPILOGUE_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"EPILOGUE_ISA": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "ATEN_CPU_CAPABILITY": "avx512",
               "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
}  # fmt: skip
LIMIT = sys.argv[sys.argv.index("--isa") + 1] if "--isa" in sys.argv[:-1] else ""
os.environ.update(LIMITS.get(LIMIT, {}))  # before torch looks

import torch  # noqa: E402
from torch import nn  # noqa: E402

import epilogue.torch  # noqa: E402
from epilogue.torch.timing import interleaved, quartiles, ratio, relative  # noqa: E402

DIM, HIDDEN = 2048, 8192
# Name, options of fuse(), torchao's config.
SCHEMES = {
    "w8a8": {"weights": "int8", "activations": "int8"},
    "int4 g128": {"weights": "int4"},
    "w4a8 g128": {"weights": "int4", "activations": "int8"},
    "w4a8 g32": {"weights": "int4", "activations": "int8", "group": 32},
}


class SwiGlu(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(DIM, HIDDEN, bias=False)
        self.up_proj = nn.Linear(DIM, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


def config(name):
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    if name == "w8a8":
        return Int8DynamicActivationInt8WeightConfig()
    from torchao.prototype.quantization.int4 import Int8DynamicActivationInt4WeightConfig, PrototypeInt4WeightOnlyConfig

    kind = PrototypeInt4WeightOnlyConfig if name.startswith("int4") else Int8DynamicActivationInt4WeightConfig
    return kind(group_size=int(name.rpartition("g")[2]))


def compiled(module):
    return torch.compile(module, dynamic=False, options={"freezing": True})


def torchao_of(plain, name, x):
    """Compiled and called once, or the reason why not."""
    try:
        from torchao.quantization import quantize_

        module = copy.deepcopy(plain)
        quantize_(module, config(name))
        call = compiled(module)
        call(x)
        return call
    except Exception as error:  # whatever the package does not have here
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120] if str(error).strip() else ''}"


def run(rows, seconds, rounds, schemes):
    torch.manual_seed(0)
    torch._dynamo.reset()
    plain = SwiGlu()
    for w in plain.parameters():
        nn.init.normal_(w, std=w.shape[1] ** -0.5)
    plain = plain.bfloat16().eval().requires_grad_(False)
    x = torch.randn(rows, DIM).bfloat16()
    want = copy.deepcopy(plain).double()(x.double())
    modules = {"eager": plain, "compile": compiled(copy.deepcopy(plain)), "fused bf16": epilogue.torch.fuse(copy.deepcopy(plain))}
    if LIMIT:
        wide, plain_f32 = x.float(), copy.deepcopy(plain).float()
        for name, of in (("eager", plain_f32), ("compile", compiled(plain_f32)), ("fused", epilogue.torch.fuse(copy.deepcopy(plain_f32)))):
            modules[f"{name} f32"] = lambda _, of=of: of(wide)
    for name, options in SCHEMES.items():
        if name not in schemes:
            continue
        modules[f"fused {name}"] = epilogue.torch.fuse(copy.deepcopy(plain), **options)
        theirs = torchao_of(plain, name, x)
        if isinstance(theirs, str):
            print(f"torchao {name}: does not run here: {theirs}")
        else:
            modules[f"torchao {name}"] = theirs
    off = {name: relative(module(x), want) for name, module in modules.items()}
    calls = {name: (lambda m=module: m(x)) for name, module in modules.items()}
    start = time.monotonic()
    for call in calls.values():
        call()
    once = time.monotonic() - start
    times = interleaved(calls, 0.0, max(5, min(rounds, int(seconds / once))))
    found = []
    for name in modules:
        row = {"rows": rows, "setting": name, "ms": statistics.median(times[name]), "error": off[name], "rounds": len(times[name])}
        if name.startswith("fused"):
            theirs = "torchao" + name[5:]
            peers = [n for n in ("eager", "compile", "eager f32", "compile f32", theirs) if n in times]
            best = min(peers, key=lambda n: statistics.median(times[n]))
            row.update(beside=best, ratio=ratio(times[best], times[name]), quartiles=quartiles(times[best], times[name])[::2])
            if LIMIT:
                row.update(to_f32=ratio(times["fused f32"], times[name]), to_f32_quartiles=quartiles(times["fused f32"], times[name])[::2])
            if theirs in times:
                row.update(to_torchao=ratio(times[theirs], times[name]), errors=off[name] / off[theirs])
        found.append(row)
    return found


def show(rows):
    print(f"{'rows':>5}  {'setting':<18}{'ms':>9}{'error':>10}   ratio to the best of torchao's and PyTorch's; to torchao's; error over torchao's")
    for row in rows:
        line = f"{row['rows']:>5}  {row['setting']:<18}{row['ms']:>9.2f}{row['error']:>10.2e}"
        if "ratio" in row:
            line += "   {:.2f} [{:.2f}, {:.2f}] of {}".format(*row["ratio"], row["beside"])
            line += " (quartiles {:.2f}, {:.2f})".format(*row["quartiles"])
        if "to_f32" in row:
            line += "; {:.2f} [{:.2f}, {:.2f}] of own f32 (quartiles {:.2f}, {:.2f})".format(*row["to_f32"], *row["to_f32_quartiles"])
        if "errors" in row:
            line += "; {:.2f} [{:.2f}, {:.2f}]; {:.2f}".format(*row["to_torchao"], row["errors"])
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--minutes", type=float, default=4, help="of timing, at most, about")
    parser.add_argument("--rounds", type=int, default=60, help="at most, for each number of rows")
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    parser.add_argument("--isa", choices=LIMITS, help="at most these instructions, for ours and all peers")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    found = []
    with torch.no_grad():
        for rows in options.rows:
            found += run(rows, 60 * options.minutes / len(options.rows), options.rounds, options.schemes)
    show(found)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
