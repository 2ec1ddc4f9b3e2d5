#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills the output blocks of README.md from what the programs print, or checks the sources in them.

  scripts/update_readme.py [--build build]     run tour, quickstart and benchmarks, rewrite README.md
  scripts/update_readme.py --check             exit 1 if a quoted source file differs from README.md

A block is  <!-- output: NAME -->, a fenced text, <!-- end -->. NAME is a source file, a benchmark, or
one of tour-mlp, tour-crossover, quickstart, explain, diff, compile-plan. Needs a build with EPILOGUE_BENCH=ON (make bench).
trace_bench and fusion_truth are kept unless --trace TRACE and --pairs DIR say what to run them on, as
is predict_fusion (minutes) unless --predict is given, and bench-mlp unless --torch PYTHON is.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- output: (\S+) -->\n```\w*\n)(.*?)(```\n<!-- end -->)", re.S)


def run(*command, cwd):
    print("running", " ".join(map(str, command)), file=sys.stderr)
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if result.returncode not in (0, 1):
        sys.exit(f"{command[0]}: exit {result.returncode}\n{result.stderr}")
    return result.stdout


def section(text, start, stop):
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if start in line)
    last = next((i for i in range(first + 1, len(lines)) if stop in lines[i]), len(lines))
    return "\n".join(lines[first:last]).strip() + "\n"


def explanations(build):
    eager, compiled = (f"tests/data/torch/mlp_geglu_rich_{mode}.json.gz" for mode in ("eager", "compile"))
    explain = run(build / "epilogue", "explain", eager, "--top", "3", cwd=ROOT)
    return {
        "explain": section(explain, eager + ":", "Dispatch chains"),
        "compile-plan": run(build / "epilogue", "compile", "mlp", "--dump", "plan", cwd=ROOT).strip()
        + "\n",
        "diff": run(build / "epilogue", "diff", eager, compiled, "--top", "5", cwd=ROOT).strip() + "\n",
    }


def produce(build, trace, pairs, predict, torch):
    with tempfile.TemporaryDirectory() as folder:
        tour = run(build / "epilogue", "tour", "--out", "traces", cwd=folder)
        quickstart = run(build / "examples" / "example_quickstart", cwd=folder)
    outputs = {
        "tour-mlp": section(tour, "the GeGLU MLP, eager", "Trace: "),
        "tour-crossover": section(tour, "matmul-add in f32 over n", "Plot: "),
        "quickstart": quickstart.strip() + "\n",
    }
    outputs.update(explanations(build))
    python = sys.executable
    if trace:
        outputs["trace_bench"] = run(python, "bench/trace_bench.py", build / "epilogue", trace,
                                     cwd=ROOT).strip() + "\n"
    if predict:
        with tempfile.TemporaryDirectory() as folder:
            outputs["predict_fusion"] = run(python, "bench/predict_fusion.py", build / "epilogue",
                                            "--out", folder, cwd=ROOT).strip() + "\n"
    if pairs:
        outputs["fusion_truth"] = run(python, "bench/fusion_truth.py", build / "epilogue", pairs,
                                      cwd=ROOT).strip() + "\n"
    outputs["bench-ladder"] = run(build / "epilogue", "bench", "ladder", cwd=ROOT).strip() + "\n"
    if torch:
        small = ("--batch", "1", "--seq", "64", "--dim", "64", "--hidden", "256")
        outputs["bench-mlp"] = "\n\n".join(
            run(build / "epilogue", "bench", "mlp", "--torch", torch, *size, cwd=ROOT).strip()
            for size in ((), small)) + "\n"
    for name in ("dispatch_bench", "profiler_bench", "gemm_bench", "mlp_bench", "train_bench",
                 "optimizer_bench"):
        outputs[name] = run(build / "bench" / name, cwd=ROOT).strip() + "\n"
    return outputs


def source(name):
    path = ROOT / name
    return path.read_text() if "/" in name and path.is_file() else None


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--trace")
    parser.add_argument("--pairs")
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--torch", metavar="PYTHON")
    args = parser.parse_args()
    readme = ROOT / "README.md"
    text = readme.read_text()
    blocks = BLOCK.findall(text)
    if args.check:
        bad = [name for _, name, body, _ in blocks if source(name) not in (None, body)]
        empty = [name for _, name, body, _ in blocks if not body.strip()]
        for name in bad:
            print(f"README.md: the block '{name}' differs from the file")
        for name in empty:
            print(f"README.md: the block '{name}' is empty")
        sys.exit(1 if bad or empty else 0)
    outputs = produce(pathlib.Path(os.path.abspath(args.build)), args.trace, args.pairs,
                      args.predict, args.torch)
    text = BLOCK.sub(lambda m: m[1] + (source(m[2]) or outputs.get(m[2], m[3])) + m[4], text)
    readme.write_text(text)


if __name__ == "__main__":
    main()
