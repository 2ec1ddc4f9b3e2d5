#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/: small runs as PyTorch records them. The first byte chooses no part."""
import json
from pathlib import Path

X = {"ph": "X", "pid": 1, "tid": 2}
GEMM = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long)"


def step(number, begin, events):
    return [{**X, "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": begin, "dur": 200,
             "args": {"External id": 1000 + number}}, *events]


def op(name, begin, length, identity, dims=(), dtype="float"):
    return {**X, "cat": "cpu_op", "name": name, "ts": begin, "dur": length,
            "args": {"External id": identity, "Input Dims": [list(d) for d in dims],
                     "Input type": [dtype for _ in dims], "Sequence number": identity}}


def launch(begin, correlation, name="cudaLaunchKernel"):
    return [{**X, "cat": "cuda_runtime", "name": name, "ts": begin, "dur": 3,
             "args": {"cbid": 211, "correlation": correlation, "External id": correlation}},
            {"ph": "s", "id": correlation, "pid": 1, "tid": 2, "ts": begin, "cat": "ac2g", "name": "ac2g"}]


def kernel(name, begin, length, correlation, stream=7, category="kernel", **more):
    return [{"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": begin, "dur": length,
             "args": {"device": 0, "stream": stream, "correlation": correlation, "grid": [64, 1, 1],
                      "block": [256, 1, 1], "registers per thread": 64, "est. achieved occupancy %": 40,
                      "External id": correlation, **more}},
            {"ph": "f", "id": correlation, "pid": 0, "tid": stream, "ts": begin, "cat": "ac2g", "name": "ac2g",
             "bp": "e"}]


def gpu_step(number, begin):
    first = 10 * number
    return step(number, begin, [
        op("aten::linear", begin + 5, 40, first, [(64, 128), (256, 128)], "c10::BFloat16"),
        op("aten::addmm", begin + 8, 30, first + 1, [(256,), (64, 128), (128, 256)], "c10::BFloat16"),
        *launch(begin + 12, first + 1), *kernel(GEMM, begin + 30, 20, first + 1),
        op("aten::gelu", begin + 60, 12, first + 2, [(64, 256)], "c10::BFloat16"),
        *launch(begin + 62, first + 2), *kernel(GELU, begin + 80, 5, first + 2),
        op("aten::item", begin + 100, 60, first + 3),
        *launch(begin + 102, first + 3, "cudaMemcpyAsync"),
        *kernel("Memcpy DtoH (Device -> Pageable)", begin + 110, 2, first + 3, category="gpu_memcpy", bytes=4),
        {**X, "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "ts": begin + 115, "dur": 40,
         "args": {"correlation": first + 4}},
    ])


def nccl_step(number, begin):
    return step(number, begin, [
        op("c10d::allreduce_", begin + 5, 20, number), *launch(begin + 8, number),
        *kernel(NCCL, begin + 20, 90, number, 20, **{"Collective name": "allreduce", "In msg nelems": 4096,
                                                     "Out msg nelems": 4096, "Group size": 4, "dtype": "BFloat16",
                                                     "Process Group Ranks": "[0, 1, 2, 3]"})])


def cpu_step(number, begin):
    first = 10 * number
    memory = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 2}
    return step(number, begin, [
        {**X, "cat": "user_annotation", "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
         "ts": begin + 1, "dur": 30},
        {**X, "cat": "python_function", "name": "nn.Module: Linear_0", "ts": begin + 35, "dur": 90,
         "args": {"Python id": number * 2 + 1, "Python parent id": None, "Python module id": 0}},
        {**X, "cat": "python_function", "name": "model.py(7): forward", "ts": begin + 36, "dur": 80,
         "args": {"Python id": number * 2 + 2, "Python parent id": number * 2 + 1}},
        op("aten::addmm", begin + 40, 60, first, [(32,), (8, 16), (16, 32)]),
        op("aten::copy_", begin + 42, 3, first + 1, [(8, 32), (32,)]),
        {**memory, "ts": begin + 43, "args": {"Addr": 4096, "Bytes": 1024, "Total Allocated": 1024,
                                               "Device Type": 0, "Device Id": -1}},
        op("aten::softmax", begin + 105, 10, first + 2, [(8, 32)]),
        {**memory, "ts": begin + 120, "args": {"Addr": 4096, "Bytes": -1024, "Total Allocated": 0,
                                                "Device Type": 0, "Device Id": -1}}])


def document(make, count=3, **more):
    events = [event for number in range(count) for event in make(number, 1000 + 250 * number)]
    return " " + json.dumps({"schemaVersion": 1, **more, "traceEvents": events})


SEEDS = {
    "gpu.json": document(gpu_step, deviceProperties=[{"id": 0, "name": "NVIDIA A100", "numSms": 108,
                                                      "computeMajor": 8, "computeMinor": 0}]),
    "nccl.json": document(nccl_step, distributedInfo={"backend": "nccl", "rank": 0, "world_size": 4}),
    "cpu.json": document(cpu_step, with_stack=1, record_shapes=1, profile_memory=1),
}

if __name__ == "__main__":
    folder = Path(__file__).parent / "corpus"
    folder.mkdir(exist_ok=True)
    for name, text in SEEDS.items():
        (folder / name).write_text(text, encoding="utf-8")
