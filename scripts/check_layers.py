#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every #include against the layer table, and the size of folders: check_layers.py [ROOT]

CMake alone does not: all folders share one include path. Exit 1 with one line per bad include.
docs/architecture.md explains the layers; this table is what counts.
"""
import re
import sys
from collections import Counter
from pathlib import Path

# Folders of src/analysis. Only the last two may include all others; nobody but the report may
# include these two.
ROOMS = [
    f"analysis/{room}"
    for room in ("kernel_name", "memory", "table", "products", "time", "fusion", "ranks",
                 "compare", "findings")
]

# Folder of src/ -> the layers that it may include besides itself. A file belongs to the longest
# folder that holds it.
LAYERS = {
    "base": [],
    "base/text": [],
    "pointwise": ["base"],
    "core": ["base", "pointwise"],
    "ops": ["base", "pointwise", "core"],
    "autograd": ["base", "core", "ops"],
    "nn": ["base", "pointwise", "core", "ops", "autograd"],
    "nn/optim": ["base", "core", "ops", "autograd"],
    "nn/amp": ["base", "core", "ops", "autograd", "nn/optim"],
    "graph": ["base", "core", "ops"],
    "passes": ["base", "pointwise", "core", "ops", "graph"],
    "plan": ["base", "core", "ops", "autograd", "graph", "passes"],
    "backend/cpu/simd": ["base", "pointwise"],
    "backend/cpu/simd/panels": ["base", "backend/cpu/simd"],
    "backend/cpu/simd/gemm": ["base", "backend/cpu/simd", "backend/cpu/simd/panels"],
    "backend/cpu": ["base", "pointwise", "core", "ops", "backend/cpu/simd", "backend/cpu/simd/panels",
                    "backend/cpu/simd/gemm"],
    "backend/cuda": ["base", "pointwise", "core", "ops"],
    "backend/no_cuda": ["base", "core", "ops", "backend/cuda"],
    "measure": ["base", "core", "ops", "autograd", "nn", "plan", "backend/cpu", "backend/cpu/simd",
                "backend/cpu/simd/panels"],
    "io": ["base", "base/text", "core"],
    "train": ["base", "base/text", "core", "ops", "autograd", "nn", "nn/optim", "nn/amp", "plan", "io"],
    "trace": ["base"],
    # src/analysis itself holds what its rooms share; the rooms are a library together.
    "analysis": ["base", "pointwise", "trace"],
    "analysis/kernel_name": ["base", "pointwise", "trace"],
    "analysis/memory": ["base", "trace", "analysis"],
    "analysis/table": ["base", "trace", "analysis/memory"],
    "analysis/products": ["base", "trace", "analysis", "analysis/kernel_name"],
    "analysis/time": ["base", "trace", "analysis", "analysis/kernel_name", "analysis/products"],
    "analysis/fusion": ["base", "trace", "analysis", "analysis/kernel_name", "analysis/time"],
    "analysis/ranks": ["base", "trace", "analysis", "analysis/time"],
    "analysis/compare": ["base", "trace", "analysis", "analysis/kernel_name", "analysis/time",
                         "analysis/fusion"],
    "analysis/findings": ["base", "trace", "analysis", "analysis/memory", "analysis/table",
                          "analysis/products", "analysis/time", "analysis/fusion",
                          "analysis/ranks"],
    "report": ["base", "base/text", "trace", "analysis", *ROOMS],
    "answer": ["base", "base/text", "trace", "analysis", *ROOMS, "report"],
    "profile": ["base", "core", "ops", "trace", "analysis/memory", "analysis/table",
                "analysis/products", "report"],
}
# The headers that include all others are for embedders: no layer of src/ may include them.
LAYERS["everything"] = list(LAYERS)

# Public header (or folder of them) under include/epilogue -> the layer that defines what it
# declares. A header may include what its layer may.
PUBLIC = {
    "base/": "base",
    "dtype.h": "core",
    "detail/": "core",
    "device.h": "core",
    "dims.h": "core",
    "memory.h": "core",
    "tensor.h": "core",
    "runtime.h": "core",
    "fusion_choices.h": "core",
    "ops.h": "ops",
    "autograd.h": "autograd",
    "module.h": "nn",
    "nn.h": "nn",
    "compile.h": "plan",
    "compile_step.h": "plan",
    "fused.h": "nn",
    "mlp_gradient.h": "backend/cpu",
    "optim.h": "nn/optim",
    "amp.h": "nn/amp",
    "io.h": "io",
    "csv.h": "io",
    "data.h": "train",
    "checkpoint.h": "train",
    "train.h": "train",
    "predictor.h": "train",
    "profiler.h": "profile",
    "trace/event.h": "trace",
    "trace/file.h": "trace",
    "trace/links.h": "trace",
    "trace/tables.h": "trace",
    "trace/kernel_name.h": "analysis/kernel_name",
    "trace/memory.h": "analysis/memory",
    "trace/table.h": "analysis/table",
    "trace/cpu.h": "analysis/products",
    "trace/gemms.h": "analysis/products",
    "trace/time.h": "analysis/time",
    "trace/compile_summary.h": "analysis/time",
    "trace/hot_spots.h": "analysis/time",
    "trace/idle.h": "analysis/time",
    "trace/slow_steps.h": "analysis/time",
    "trace/timeline.h": "analysis/time",
    "trace/verdict.h": "analysis/time",
    "trace/host.h": "analysis/time",
    "trace/critical_path.h": "analysis/time",
    "trace/queues.h": "analysis/time",
    "trace/fusion.h": "analysis/fusion",
    "trace/ranks.h": "analysis/ranks",
    "trace/diff.h": "analysis/compare",
    "trace/explain.h": "analysis/findings",
    "trace/report.h": "report",
    "trace/answer.h": "answer",
    "epilogue.h": "everything",
    "trace.h": "everything",
}

# Libraries that stay in one place: the prefix of the header -> the folders that may include it.
LIBRARIES = {
    "hwy/": ["src/backend/cpu/simd"],
    "CLI/": ["tools"],
    "httplib.h": ["tools"],
    "zlib.h": ["src/trace", "src/io"],
    "isa-l/": ["src/trace/read"],
    "simdjson.h": ["src/trace", "src/io"],
    "nlohmann/": ["src/base", "src/plan", "src/measure", "src/trace", "src/analysis", "src/report", "src/answer", "src/io", "src/train",
                  "tools"],
    "gtest/": [],
    "benchmark/": [],
}

# What code names -> the layers that may not name it: which hardware there is, they ask of the
# backend's capabilities() and of base/machine.
HARDWARE = re.compile(r"\b(?:DeviceType::\w+|Isa::\w+|CpuFeature::\w+|active_isa|cpu_has)\b")
ABOVE_HARDWARE = {"graph", "passes", "plan"}

# A folder of src/ has at most so many sources of its own; more want a folder in it.
MAX_SOURCES = 40

# What a public header says so that a shared library exports what it declares.
EXPORTS = ("#pragma GCC visibility push(default)", "#pragma GCC visibility pop")

SUFFIXES = {".h", ".inc", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of_source(path):
    """The layer of a path relative to src/, or None."""
    folders = [name for name in LAYERS if path.startswith(name + "/")]
    return max(folders, key=len, default=None)


def layer_of_public(path):
    """The layer of a path relative to include/epilogue/, or None."""
    if path in PUBLIC:
        return PUBLIC[path]
    folders = [name for name in PUBLIC if name.endswith("/") and path.startswith(name)]
    return PUBLIC[folders[0]] if folders else None


def may_include(layer, other):
    return other == layer or other in LAYERS[layer]


def check_library(path, header):
    for prefix, folders in LIBRARIES.items():
        if header.startswith(prefix) and not any(path.startswith(f + "/") for f in folders):
            return f"<{header}> is allowed in {', '.join(folders) or 'tests and benchmarks'} only"
    return None


def check_project(root, path, layer, header):
    """A quoted include of the file `path`, whose layer is None for tools/."""
    if header.startswith("epilogue/"):
        target = layer_of_public(header.removeprefix("epilogue/"))
        if target is None:
            return f'"{header}" is not in the table of public headers'
    elif path.startswith("python/"):
        if not (root / path).with_name(header).exists():
            return f'a binding includes "{header}": public headers and its own folder are allowed only'
        return None
    elif path.startswith("include/"):
        return f'a public header includes "{header}", which is not public'
    elif layer is None and header.startswith(("tools/", "bench/")) and (root / header).exists():
        return None  # tools/ runs what bench/ has; the library includes neither
    elif not (root / "src" / header).exists():
        return f'"{header}" is not a file of src/ (includes are written relative to it)'
    else:
        target = layer_of_source(header)
        if target is None:
            return f'"{header}" is in no layer'
    if layer is not None and not may_include(layer, target):
        return f'layer {layer} may not include "{header}" (layer {target})'
    return None


def check_file(root, path):
    """Yields (line, complaint) for one file, given relative to the root."""
    layer = None
    if path.startswith("src/"):
        layer = layer_of_source(path.removeprefix("src/"))
    elif path.startswith("include/epilogue/"):
        layer = layer_of_public(path.removeprefix("include/epilogue/"))
    if layer is None and not path.startswith(("tools/", "python/")):
        yield 1, "belongs to no layer; add it to the table in scripts/check_layers.py"
        return
    text = (root / path).read_text(encoding="utf-8")
    if path.startswith("include/") and "\nnamespace " in text:
        for line in EXPORTS:
            if line not in text:
                yield 1, f"a public header that declares names has the line {line}"
    for number, line in enumerate(text.splitlines(), start=1):
        hardware = HARDWARE.search(line.split("//")[0]) if layer in ABOVE_HARDWARE else None
        if hardware:
            yield number, f"layer {layer} asks capabilities(), it does not name {hardware.group()}"
        match = INCLUDE.match(line)
        if not match:
            continue
        bracket, header = match.groups()
        if bracket == "<":
            complaint = check_library(path, header)
        else:
            complaint = check_project(root, path, layer, header)
        if complaint:
            yield number, complaint


def check_folders(paths):
    """Yields (folder, complaint) for folders of src/ with too many sources among `paths`."""
    sources = Counter(Path(path).parent.as_posix() for path in paths)
    for folder, count in sorted(sources.items()):
        if folder.startswith("src/") and count > MAX_SOURCES:
            yield folder, f"{count} sources, the limit is {MAX_SOURCES}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    files = [
        file
        for top in ("include", "python", "src", "tools")
        for file in sorted((root / top).rglob("*"))
        if file.suffix in SUFFIXES
    ]
    complaints = 0
    for file in files:
        path = file.relative_to(root).as_posix()
        for number, complaint in check_file(root, path):
            print(f"{path}:{number}: {complaint}")
            complaints += 1
    for folder, complaint in check_folders(file.relative_to(root).as_posix() for file in files):
        print(f"{folder}: {complaint}")
        complaints += 1
    if not files:
        print(f"check_layers.py: no sources under {root}")
        return 1
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
