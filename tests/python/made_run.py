# SPDX-License-Identifier: Apache-2.0
"""A run of 64 ranks, made by rule, for the recipes of docs/query.md: python made_run.py FOLDER

Writes FOLDER/ranks/rank0.json to rank63.json, FOLDER/before.json and FOLDER/after.json. Three steps of
Linear, GELU, Linear, an all-reduce beside them and an optimizer that launches six kernels. Rank 17 is
late; after.json has the GELU in its GEMM.
"""

import json
import pathlib
import sys

STEP_US = 1000
SLOW_RANK, LATE_US = 17, 180
MIB = 1 << 20
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
FUSED = "ampere_bf16_s16816gemm_bf16_gelu_128x128_ldg8_f2f_stages_32x5_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Maker:
    def __init__(self):
        self.events, self.ids, self.allocated = [], 0, 0

    def new_id(self):
        self.ids += 1
        return self.ids

    def span(self, category, name, ts, dur, **args):
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}
        )

    def frame(self, name, ts, dur):
        self.span("python_function", name, ts, dur, **{"Python id": self.new_id()})

    def kernel(self, name, launched, ts, dur, stream=7):
        correlation = self.new_id()
        self.span("cuda_runtime", "cudaLaunchKernel", launched, 6, correlation=correlation)
        args = {"device": 0, "stream": stream, "correlation": correlation, "grid": [64, 1, 1], "block": [256, 1, 1]}
        self.events.append(
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}
        )

    def memory(self, ts, size, addr):
        self.allocated += size
        args = {
            "Total Reserved": 64 * MIB, "Total Allocated": self.allocated, "Bytes": size,
            "Device Id": 0, "Device Type": 1, "Addr": addr,
        }
        self.events.append(
            {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}
        )


def linear(make, module, ts, shapes, kernel, kernel_us):
    make.frame(f"nn.Module: {module}", ts, 150)
    make.span("cpu_op", "aten::linear", ts + 5, 140)
    make.span("cpu_op", "aten::addmm", ts + 20, 100, **{"Input Dims": shapes, "Input type": ["c10::BFloat16"] * 3})
    make.memory(ts + 30, 4 * MIB, 4096 + ts)
    make.kernel(kernel, ts + 60, ts + 80, kernel_us)


def step(make, number, late, fused):
    begin = number * STEP_US
    make.span("user_annotation", f"ProfilerStep#{number}", begin, STEP_US - 20)
    make.frame("train.py(10): step", begin + 1, STEP_US - 30)
    ts = begin + late
    linear(make, "Linear_0", ts + 10, [[1024], [512, 768], [768, 1024]], FUSED if fused else GEMM, 120)
    if not fused:
        make.frame("nn.Module: GELU_0", ts + 170, 80)
        make.span("cpu_op", "aten::gelu", ts + 175, 60, **{"Input Dims": [[512, 1024]], "Input type": ["c10::BFloat16"]})
        make.memory(ts + 180, MIB, 8192 + ts)
        make.kernel("void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>(int)", ts + 190, ts + 215, 40)
    linear(make, "Linear_1", ts + 260, [[768], [512, 1024], [1024, 768]], GEMM, 130)
    make.span("cpu_op", "c10d::allreduce_", ts + 430, 60)
    make.kernel(NCCL, ts + 440, ts + 455, 345 - late, stream=20)  # ends when the last rank is there
    make.span("cpu_op", "Optimizer.step#AdamW.step", ts + 500, 90)
    make.span("cpu_op", "aten::_foreach_add_", ts + 510, 75)
    for at in range(6):
        make.kernel("multi_tensor_apply_kernel", ts + 515 + 10 * at, ts + 530 + 15 * at, 12)
    for address, size in ((4096 + ts + 10, 4), (8192 + ts, 0 if fused else 1), (4096 + ts + 260, 4)):
        if size:
            make.memory(ts + 600, -size * MIB, address)


def trace(rank, world, fused=False):
    make = Maker()
    for number in (1, 2, 3):
        step(make, number, LATE_US if rank == SLOW_RANK else 0, fused)
    return {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": make.events}


def make_run(folder, ranks=64):
    folder = pathlib.Path(folder)
    (folder / "ranks").mkdir(parents=True)
    for rank in range(ranks):
        (folder / "ranks" / f"rank{rank}.json").write_text(json.dumps(trace(rank, ranks)))
    (folder / "before.json").write_text(json.dumps(trace(0, 1)))
    (folder / "after.json").write_text(json.dumps(trace(0, 1, fused=True)))


if __name__ == "__main__":
    make_run(sys.argv[1])
