# SPDX-License-Identifier: Apache-2.0
"""README's table: how many times as fast epilogue is as its peers, from the blocks of docs/benchmarks.md."""
import re
import statistics

NUMBER = r"(\d+\.\d+)"
SHAPE = r"^ *\d+ x +\d+ x +\d+ +"
SPEED = rf"{NUMBER} \+- *{NUMBER} %"
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
DTYPES = ("bf16", "f32")
HEAD = ("", "beside", "least", "mean", "most", "on")


def found(pattern, text, name):
    matches = re.findall(pattern, text, re.M)
    if not matches:
        raise SystemExit(f"the block '{name}' has no line like {pattern}")
    return matches


def machine(block, name):
    """'Intel Xeon, amx' of '...: Intel(R) Xeon(R) Processor, 2 thread(s), amx (found amx)'."""
    cpu, isa = found(r"^(?:.*: )?([^:\n]+), \d+ thread\(s\), (\w+) \(found", block, name)[0]
    return f"{cpu.replace('(R)', '').removesuffix(' Processor')}, {isa}"


def row(what, peer, ratios, where=""):
    mean = f"{statistics.geometric_mean(ratios):.2f}"
    if len(ratios) == 1:
        return (what, peer, "", mean, "", where)
    return (what, peer, f"{min(ratios):.2f}", mean, f"{max(ratios):.2f}", where)


def by_dtype(what, peer, block, name, pairs):
    """A row per dtype of the (dtype, ratio) pairs of a block."""
    for dtype in DTYPES:
        ratios = [float(ratio) for of, ratio in pairs if of == dtype]
        if not ratios:
            raise SystemExit(f"the block '{name}' has no shape in {dtype}")
        shapes = f"{len(ratios)} shape{'s' if len(ratios) > 1 else ''}"
        yield row(f"{what}, {shapes}, {dtype}", peer, ratios, machine(block, name))


def mlp_bench(block):
    # A line ends with two ratios (to oneDNN, to eager) and two errors.
    pairs = found(rf"{SHAPE}(\w+) .* {NUMBER} +\d+\.\d+ +\S+e-\d+ +\S+e-\d+$", block, "mlp_bench")
    return by_dtype("GeGLU MLP", "oneDNN, prepacked", block, "mlp_bench", pairs)


def gemm_bench(block):
    # A line begins with compiled, packed oneDNN and their ratio.
    lines = found(rf"{SHAPE}(\w+) +{SPEED} +{SPEED} +{NUMBER} ", block, "gemm_bench")
    pairs = [(line[0], line[-1]) for line in lines]
    return by_dtype("one product", "oneDNN, prepacked", block, "gemm_bench", pairs)


def bench_mlp(block):
    # One table per workload; the first number of a line is the fastest sample.
    for table in re.split(r"\n+(?=mlp: )", block):
        batch, rows, dim, hidden, dtype = found(
            r"^mlp: \w+ \[(\d+), (\d+), (\d+)\] -> (\d+), (\w+)", table, "bench-mlp")[0]
        lines = found(r"^  ([\w.]+) +(\d+\.?\d*) (ns|us|ms|s) ", table, "bench-mlp")
        seconds = {name: float(number) * UNITS[unit] for name, number, unit in lines}
        peer = min(found(r"^  (pytorch\.\w+) ", table, "bench-mlp"), key=seconds.get)
        yield row(f"GeGLU MLP, {int(batch) * int(rows)} x {dim} x {hidden}, {dtype}",
                  "torch.compile" if peer == "pytorch.compile" else "PyTorch, eager",
                  [seconds[peer] / seconds["epilogue.compile"]], machine(table, "bench-mlp"))


def train_bench(block):
    # A paragraph per shape; "1.12x" is the time of a line over that of epilogue.compile.
    pairs = []
    for paragraph in re.split(r"\n(?=\d)", block)[1:]:
        dtype = found(rf"{SHAPE}(\w+),", paragraph, "train_bench")[0]
        peers = found(rf"^  pytorch\..* {NUMBER}x ", paragraph, "train_bench")
        pairs.append((dtype, min(map(float, peers))))
    return by_dtype("training step", "PyTorch's best mode", block, "train_bench", pairs)


def trace_bench(block):
    # The first trace is the one that json.load reads too.
    megabytes = found(r": (\d+) MB of text", block, "trace_bench")[0]
    for peer in ("json.load", "gunzip"):
        ratio = found(rf"^  table.* is {NUMBER} times as fast as {peer}", block, "trace_bench")[0]
        yield row(f"table of a trace of {megabytes} MB", peer, [float(ratio)])


PARTS = {"mlp_bench": mlp_bench, "bench-mlp": bench_mlp, "gemm_bench": gemm_bench,
         "train_bench": train_bench, "trace_bench": trace_bench}


def figures(blocks):
    """The table, of the texts of the blocks in PARTS."""
    rows = [HEAD]
    for name, part in PARTS.items():
        if name not in blocks:
            raise SystemExit(f"no page has the block '{name}'")
        rows += part(blocks[name])
    widths = [max(len(cells[i]) for cells in rows) for i in range(len(HEAD))]
    lines = ["  ".join(cell.rjust(width) if 2 <= i <= 4 else cell.ljust(width)
                       for i, (cell, width) in enumerate(zip(cells, widths))).rstrip()
             for cells in rows]
    return "\n".join(lines) + "\n"
