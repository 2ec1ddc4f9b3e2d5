#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills the output blocks of README.md and of the pages docs/*.md, or checks them.

  scripts/update_readme.py [--build build]           run what all pages show, rewrite the blocks
  scripts/update_readme.py --only docs/claims.md     the blocks of one page (may be repeated)
  scripts/update_readme.py --check                   run nothing; exit 1 if a block is empty, a quoted
                                                     source differs or README's figures are old

A block is a marker, a fenced text and <!-- end -->. Markers:
  <!-- output: NAME -->      NAME is a source file, a benchmark, or one of tour-mlp, tour-crossover,
                             quickstart, explain, diff, compile-plan, figures; benchmarks need a build
                             with EPILOGUE_BENCH=ON (make bench)
  <!-- command: COMMAND -->  the fenced text is "$ COMMAND" and its output: bash runs it in a temporary
                             folder with the build's programs on PATH and tests/ beside it; it must
                             exit 0
trace_bench and fusion_truth are kept unless --trace TRACE, --pairs DIR, --pairs2 DIR and --pairs3 DIR say what to run them on, as
is predict_fusion (minutes) unless --predict is given, and bench-mlp and train_bench unless
--torch PYTHON is. figures is the table that benchmark_figures.py makes of the other pages' blocks.
"""
import argparse
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import benchmark_figures

ROOT = pathlib.Path(__file__).resolve().parents[1]
# README.md comes last: its figures are made of the blocks of the others.
DOCUMENTS = (*sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")), "README.md")
BENCHMARKS = ("dispatch_bench", "call_bench", "profiler_bench", "gemm_bench", "mlp_bench", "tile_bench",
              "optimizer_bench")
# The first line of a section of the tour, and the line after it.
TOUR = {"tour-mlp": ("the GeGLU MLP, eager", "Trace: "),
        "tour-crossover": ("matmul-add in f32 over n", "Plot: ")}
BLOCK = re.compile(r"(<!-- (output|command): (.+?) -->\n```\w*\n)(.*?)(```\n<!-- end -->)", re.S)


def run(*command, cwd, env=None, accepted=(0, 1)):
    print("running", " ".join(map(str, command)), file=sys.stderr)
    result = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if result.returncode not in accepted:
        sys.exit(f"{command[0]}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def section(text, start, stop):
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if start in line)
    last = next((i for i in range(first + 1, len(lines)) if stop in lines[i]), len(lines))
    return "\n".join(lines[first:last])


def clean(text):
    """Without blank lines around it and spaces at line ends."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def source(name):
    path = ROOT / name
    return path.read_text() if "/" in name and path.is_file() else None


def figures():
    """The table of README.md, of what the pages show now."""
    pages = (BLOCK.findall((ROOT / document).read_text()) for document in DOCUMENTS)
    return benchmark_figures.figures({name: body for page in pages for _, _, name, body, _ in page})


def shell(command, build):
    """The output of the command, typed in the repository's root."""
    programs = [str(build / folder) for folder in (".", "examples", "bench")]
    env = {**os.environ, "PATH": os.pathsep.join([*programs, os.environ["PATH"]])}
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ROOT / "tests", pathlib.Path(folder) / "tests")
        output = run("bash", "-o", "pipefail", "-c", command, cwd=folder, env=env, accepted=(0,))
    return f"$ {command}\n" + clean(output)


class Outputs:
    """The texts of <!-- output: NAME --> blocks, each made when it is first asked for."""

    def __init__(self, args, build):
        self.args = args
        self.build = build

    def of(self, name):
        """None: keep what is there."""
        if name in TOUR:
            return section(self.tour, *TOUR[name])
        if name in BENCHMARKS:
            return run(self.build / "bench" / name, cwd=ROOT)
        if name.startswith("tutorial_"):
            return self.tutorial(name)
        make = {"quickstart": self.quickstart, "explain": self.explain, "diff": self.diff,
                "compile-plan": self.compile_plan, "trace_bench": self.trace_bench,
                "fusion_truth": lambda: self.fusion_truth(self.args.pairs),
                "fusion_truth_second": lambda: self.fusion_truth(self.args.pairs2),
                "fusion_truth_third": lambda: self.fusion_truth(self.args.pairs3),
                "predict_fusion": self.predict_fusion,
                "bench-mlp": self.bench_mlp, "train_bench": self.train_bench,
                "bench-ladder": self.bench_ladder, "bench-ladder-bf16": self.bench_ladder_bf16,
                "figures": figures}.get(name)
        return make() if make else sys.exit(f"no output or source file is called '{name}'")

    @functools.cached_property
    def tour(self):
        with tempfile.TemporaryDirectory() as folder:
            return run(self.build / "epilogue", "tour", "--out", "traces", cwd=folder)

    def quickstart(self):
        with tempfile.TemporaryDirectory() as folder:
            return run(self.build / "examples" / "example_quickstart", cwd=folder)

    def tutorial(self, name):
        """The output of a program of the tutorial; the last one reads a trace."""
        trace = [ROOT / "tests/data/torch/mlp_geglu_rich_eager.json.gz"] if "trace" in name else []
        with tempfile.TemporaryDirectory() as folder:
            return run(self.build / "examples" / name, *trace, cwd=folder)

    def explain(self):
        trace = "tests/data/torch/mlp_geglu_rich_eager.json.gz"
        text = run(self.build / "epilogue", "explain", trace, "--top", "3", cwd=ROOT)
        return section(text, trace + ":", "Dispatch chains")

    def diff(self):
        traces = (f"tests/data/torch/mlp_geglu_rich_{mode}.json.gz" for mode in ("eager", "compile"))
        return run(self.build / "epilogue", "diff", *traces, "--top", "5", cwd=ROOT)

    def compile_plan(self):
        return run(self.build / "epilogue", "compile", "mlp", "--dump", "plan", cwd=ROOT)

    def script(self, name, *arguments):
        return run(sys.executable, f"bench/{name}.py", self.build / "epilogue", *arguments, cwd=ROOT)

    def trace_bench(self):
        return self.script("trace_bench", self.args.trace) if self.args.trace else None

    def fusion_truth(self, pairs):
        return self.script("fusion_truth", pairs) if pairs else None

    def bench_ladder(self):
        return run(self.build / "epilogue", "bench", "ladder", cwd=ROOT)

    def bench_ladder_bf16(self):
        # At this size k is cut for L1, and results exceed the caches.
        return run(self.build / "epilogue", "bench", "ladder", "--dtype", "bf16", "--rows", "4096", "--dim", "1024",
                   "--hidden", "1024", cwd=ROOT)

    def bench_mlp(self):
        if not self.args.torch:
            return None
        small = ("--batch", "1", "--seq", "64", "--dim", "64", "--hidden", "256")
        return "\n\n".join(
            run(self.build / "epilogue", "bench", "mlp", "--torch", self.args.torch, *size,
                cwd=ROOT).strip() for size in ((), small))

    def train_bench(self):
        if not self.args.torch:
            return None
        return run(self.build / "bench" / "train_bench", "--torch", self.args.torch, cwd=ROOT)

    def predict_fusion(self):
        if not self.args.predict:
            return None
        with tempfile.TemporaryDirectory() as folder:
            return self.script("predict_fusion", "--out", folder)


def complaints(document, text):
    for _, kind, name, body, _ in BLOCK.findall(text):
        shown = body.removeprefix(f"$ {name}\n")
        if not shown.strip():
            yield f"{document}: the block '{name}' is empty"
        elif kind == "output" and source(name) not in (None, body):
            yield f"{document}: the block '{name}' differs from the file"
        elif (kind, name) == ("output", "figures") and body != figures():
            yield f"{document}: the block '{name}' differs from what the pages' blocks give"
        elif kind == "command" and shown == body:
            yield f"{document}: the block '{name}' shows another command"
    if len(BLOCK.findall(text)) != len(re.findall(r"^<!-- (?:output|command): ", text, re.M)):
        yield f"{document}: a marker is not followed by a fenced text and <!-- end -->"


def filled(text, build, outputs):
    def block(match):
        _, kind, name, body, _ = match.groups()
        if kind == "command":
            new = shell(name, build)
        else:
            new = source(name)
            made = outputs.of(name) if new is None else None
            new = new if new is not None else body if made is None else clean(made)
        return match[1] + new + match[5]

    return BLOCK.sub(block, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=DOCUMENTS, metavar="PAGE", action="append",
                        help=", ".join(DOCUMENTS))
    parser.add_argument("--trace")
    parser.add_argument("--pairs")
    parser.add_argument("--pairs2")
    parser.add_argument("--pairs3")
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--torch", metavar="PYTHON")
    args = parser.parse_args()
    build = pathlib.Path(os.path.abspath(args.build))
    outputs = Outputs(args, build)
    found = []
    for document in DOCUMENTS:
        if args.only and document not in args.only:
            continue
        text = (ROOT / document).read_text()
        if args.check:
            found += complaints(document, text)
        else:
            (ROOT / document).write_text(filled(text, build, outputs))
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
