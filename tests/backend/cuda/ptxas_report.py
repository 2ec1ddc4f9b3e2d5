#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ptxas_report.py NVCC ROOT FILE.cu...: every kernel fits its registers.

Assembles the files of the CUDA backend for sm_90a and reads ptxas's report: exit 1 where a kernel
spills, where wgmma is serialised (warning C75xx), or where no kernel was reported at all.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KERNELS = "src/backend/cuda/kernels"
SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
# The Hopper kernel's consumers take over what its producer gives up: 65536 / 384 threads.
HOPPER_REGISTERS = 168


def report(nvcc, root, source, folder):
    command = [nvcc, "-std=c++20", "-O3", "-gencode=arch=compute_90a,code=sm_90a",
               "--expt-relaxed-constexpr", f"-I{root}/src", f"-I{root}/include", "-cubin",
               "-Xptxas", "-v", str(source), "-o", f"{folder}/{source.stem}.cubin"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{source.name} does not compile:\n{done.stderr}")
    return done.stderr


def complaints(name, text):
    spills = SPILL.findall(text)
    if not spills:
        yield f"{name}: no kernel in ptxas's report"
    for stack, stores, loads in spills:
        if (stores, loads) != ("0", "0"):
            yield f"{name}: {stores} bytes spilled, {loads} bytes reloaded, stack {stack}"
    for line in text.splitlines():
        if re.search(r"C75\d\d", line):
            yield f"{name}: {line.strip()}"
    most = max((int(n) for n in REGISTERS.findall(text)), default=0)
    if "sm90" in name and most > HOPPER_REGISTERS:
        yield f"{name}: {most} registers, expected at most {HOPPER_REGISTERS}"


def main():
    nvcc, root = sys.argv[1], Path(sys.argv[2])
    sources = [root / KERNELS / name for name in sys.argv[3:]]
    found = [] if sources else ["no file was named"]
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            text = report(nvcc, root, source, folder)
            found += complaints(source.name, text)
            print(f"{source.name}: {len(SPILL.findall(text))} kernels, at most "
                  f"{max((int(n) for n in REGISTERS.findall(text)), default=0)} registers")
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
