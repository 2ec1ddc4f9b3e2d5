#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every #include against the layer table: check_layers.py [ROOT]

CMake alone does not: all folders share one include path. A header that names a type of the project includes what declares
it; the compiler does not ask for it where sources are compiled many at a time. Exit 1 with one line per complaint.
docs/architecture.md explains the layers; this table is what counts.
"""
import re
import sys
from pathlib import Path

# Folders of src/explain that analyse. Only the findings may include all others; nobody but what
# renders and answers may include the findings and the comparison.
ROOMS = [
    f"explain/{room}"
    for room in ("index", "knowledge", "kernel_name", "memory", "table", "products", "timeline", "host", "method",
                 "path", "fusion", "ranks", "compare", "findings")
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
    "fused": ["base", "pointwise", "core", "graph"],
    "passes": ["base", "pointwise", "core", "ops", "graph", "fused"],
    "plan": ["base", "core", "ops", "autograd", "graph", "passes"],
    "backend/cpu/simd": ["base", "pointwise"],
    "backend/cpu/simd/panels": ["base", "pointwise", "backend/cpu/simd"],
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
    "memory_snapshot": ["base", "trace"],
    # The rooms of explain are two libraries (src/explain/CMakeLists.txt); what renders and what answers are one each.
    "explain/index": ["base", "pointwise", "trace"],
    "explain/knowledge": ["base", "pointwise"],
    "explain/kernel_name": ["base", "pointwise", "trace"],
    "explain/memory": ["base", "trace", "explain/index"],
    "explain/table": ["base", "trace", "explain/memory"],
    "explain/products": ["base", "trace", "explain/index", "explain/kernel_name"],
    "explain/timeline": ["base", "trace", "explain/index", "explain/kernel_name",
                         "explain/products"],
    "explain/host": ["base", "trace", "explain/index", "explain/knowledge", "explain/products",
                     "explain/timeline"],
    "explain/method": ["base", "trace", "explain/index", "explain/knowledge", "explain/products",
                       "explain/timeline", "explain/host"],
    "explain/path": ["base", "trace", "explain/index", "explain/timeline"],
    "explain/fusion": ["base", "trace", "explain/index", "explain/knowledge", "explain/kernel_name",
                       "explain/timeline", "explain/host"],
    "explain/ranks": ["base", "trace", "explain/index", "explain/timeline", "explain/host"],
    "explain/serving": ["base", "trace", "explain/index", "explain/kernel_name",
                        "explain/fusion"],
    "explain/compare": ["base", "trace", "explain/index", "explain/kernel_name",
                        "explain/timeline", "explain/fusion"],
    "explain/findings": ["base", "trace", "explain/index", "explain/knowledge", "explain/memory", "explain/table",
                         "explain/products", "explain/timeline", "explain/host", "explain/method",
                         "explain/path", "explain/fusion", "explain/serving", "explain/ranks"],
    "explain/sections": ["base", "trace", "memory_snapshot", *ROOMS],
    "explain/render": ["base", "base/text", "trace", "memory_snapshot", *ROOMS, "explain/sections"],
    "explain/answer": ["base", "base/text", "trace", "memory_snapshot", *ROOMS, "explain/sections", "explain/render"],
    "profile": ["base", "core", "ops", "trace", "explain/memory", "explain/table",
                "explain/products", "explain/render"],
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
    "int4_weight.h": "core",
    "rounded_weight.h": "core",
    "round_weight.h": "backend/cpu",
    "rounded_file.h": "io",
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
    "trace/memory_snapshot.h": "memory_snapshot",
    "trace/tables.h": "trace",
    "trace/kernel_name.h": "explain/kernel_name",
    "trace/memory.h": "explain/memory",
    "trace/table.h": "explain/table",
    "trace/cpu.h": "explain/products",
    "trace/gemms.h": "explain/products",
    "trace/time.h": "explain/timeline",
    "trace/compile_summary.h": "explain/timeline",
    "trace/hot_spots.h": "explain/timeline",
    "trace/idle.h": "explain/timeline",
    "trace/slow_steps.h": "explain/timeline",
    "trace/timeline.h": "explain/timeline",
    "trace/verdict.h": "explain/timeline",
    "trace/host.h": "explain/host",
    "trace/method.h": "explain/method",
    "trace/critical_path.h": "explain/path",
    "trace/queues.h": "explain/timeline",
    "trace/fusion.h": "explain/fusion",
    "trace/serving.h": "explain/serving",
    "trace/ranks.h": "explain/ranks",
    "trace/diff.h": "explain/compare",
    "trace/explain.h": "explain/findings",
    "trace/report.h": "explain/render",
    "trace/answer.h": "explain/answer",
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
    "sqlite3.h": ["src/trace/nsys"],
    "nlohmann/": ["src/base", "src/plan", "src/measure", "src/trace", "src/explain", "src/io", "src/train",
                  "tools"],
    "gtest/": [],
    "benchmark/": [],
}

# Names of hardware, and the layers that may not use them: these ask
# the backend's capabilities() and base/machine.
HARDWARE = re.compile(r"\b(?:DeviceType::\w+|Isa::\w+|CpuFeature::\w+|active_isa|cpu_has)\b")
ABOVE_HARDWARE = {"graph", "passes", "plan"}

# Lines of a public header by which a shared library exports its declarations.
EXPORTS = ("#pragma GCC visibility push(default)", "#pragma GCC visibility pop")

SUFFIXES = {".h", ".inc", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Types that a header declares, at the left for others and anywhere for itself; what it names.
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#[^\n]*', re.DOTALL | re.MULTILINE)
DECLARED = re.compile(r"^(?:template <.*>\n?)?(?:struct|class|enum class|using) (?:\[\[\w+\]\] )?([A-Z]\w+)", re.MULTILINE)
KNOWN = re.compile(r"\b(?:struct|class|typename|using|enum) (?:\[\[\w+\]\] |alignas\(\w+\) )?([A-Z]\w+)")
NAMED = re.compile(r"(?<![:.\w])([A-Z]\w+)")


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


def check_headers(root):
    """Yields (path, complaint) for headers of include/ and src/ that name a type without a header that declares it."""
    texts = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8")
             for top in ("include", "src") for file in (root / top).rglob("*.h")}
    code = {path: COMMENT_OR_TEXT.sub("", text) for path, text in texts.items()}
    declared = {path: set(DECLARED.findall(text)) for path, text in code.items()}
    everywhere = set().union(*declared.values())
    included = {path: [top + name for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
                       for top in ("include/", "src/") if top + name in texts] for path, text in texts.items()}
    for path, text in code.items():
        if path.endswith("-inl.h"):
            continue  # included where all of it is there
        reached, todo = set(), [path]
        while todo:
            current = todo.pop()
            if current not in reached:
                reached.add(current)
                todo += included[current]
        known = set(KNOWN.findall(text)).union(*(declared[other] for other in reached))
        for name in sorted(set(NAMED.findall(text)) & everywhere - known):
            yield path, f"names {name} without a header that declares it"


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
    for path, complaint in check_headers(root):
        print(f"{path}:1: {complaint}")
        complaints += 1
    if not files:
        print(f"check_layers.py: no sources under {root}")
        return 1
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
