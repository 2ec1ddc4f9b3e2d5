# SPDX-License-Identifier: Apache-2.0
"""Made traces of many ranks of one run, in Kineto's format: tensor, pipeline and data parallel groups by name, steps, products,
collectives with sizes, sends and receives, one slow rank. No GPU ran them.

python3 rank_traces.py FOLDER RANKS [--mb MB] writes one trace.json for each rank, of about MB megabytes each."""
import argparse
import json
import os
import random

TENSOR, STAGES = 2, 2  # ranks of a tensor parallel group, stages of the pipeline


def groups_of(rank, world):
    """The process groups of a rank as distributedInfo has them: (name, description, ranks)."""
    data = world // (TENSOR * STAGES)
    tensor = rank - rank % TENSOR
    in_stage = rank % (TENSOR * data)
    stage = rank // (TENSOR * data)
    return [("0", "default_pg", list(range(world))),
            (str(1 + rank // TENSOR), "mesh_tp", list(range(tensor, tensor + TENSOR))),
            (str(1000 + in_stage), "mesh_pp", [in_stage + s * TENSOR * data for s in range(STAGES)]),
            (str(2000 + rank % TENSOR + TENSOR * stage), "mesh_dp",
             [stage * TENSOR * data + d * TENSOR + rank % TENSOR for d in range(data)])]


def trace(rank, world, layers, steps=4):
    """A part of a trace's text for each event, so that a large one never lies in memory."""
    rng = random.Random(rank)
    groups = groups_of(rank, world)
    info = {"backend": "nccl", "rank": rank, "world_size": world, "pg_count": len(groups),
            "pg_config": [{"pg_name": n, "pg_desc": d, "backend_config": "cuda:nccl", "pg_size": len(r), "ranks": r}
                          for n, d, r in groups]}
    yield '{"schemaVersion": 1, "distributedInfo": ' + json.dumps(info) + ', "traceEvents": [\n'
    yield json.dumps({"ph": "M", "name": "process_name", "pid": 1000, "tid": 0, "ts": 0, "args": {"name": "python"}})
    stage = rank // (world // STAGES)
    slow = 1.6 if rank == world // 3 else 1.0  # its products take longer: the others wait
    correlation = 0

    def span(cat, name, pid, tid, ts, dur, **args):
        return ",\n" + json.dumps({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": round(ts, 3),
                                   "dur": round(dur, 3), "args": args})

    def launched(op, kernel, host, at, dur, stream=7, **args):
        nonlocal correlation
        correlation += 1
        yield span("cpu_op", op, 1000, 1000, host, 8, **{"External id": correlation, "Input Dims": [[512, 1024], [1024, 4096]],
                                                         "Input type": ["c10::BFloat16", "c10::BFloat16"]})
        yield span("cuda_runtime", "cudaLaunchKernel", 1000, 1000, host + 2, 4, correlation=correlation, cbid=211)
        yield span("kernel", kernel, 0, stream, at, dur, correlation=correlation, device=0, stream=stream, context=1,
                   grid=[216, 1, 1], block=[128, 1, 1], **{"registers per thread": 128, "shared memory": 49152, **args})

    def collective(name, kernel, host, at, dur, group, count):
        yield from launched("c10d::" + name, kernel, host, at, dur, 20, **{
            "Collective name": name, "In msg nelems": count, "Out msg nelems": count, "dtype": "BFloat16",
            "Group size": len(group[2]), "Process Group Name": group[0], "Process Group Description": group[1],
            "Process Group Ranks": json.dumps(group[2])})

    clock = 1000.0
    for step in range(steps):
        begin = clock
        host = at = clock + 50
        if stage > 0:  # until the stage before has sent
            wait = 900.0 + rng.random()
            yield from collective("send_recv", "ncclDevKernel_SendRecv(ncclDevComm*)", host, at, wait, groups[2], 1 << 16)
            at += wait + 2
            host += 20
        for layer in range(layers):
            took = 100.0 * slow + rng.random()
            for i in range(3):
                yield from launched("aten::mm", f"nvjet_hsh_128x{64 << i}_64x4_2x1_v_bz_TNT", host, at, took / 3)
                host, at = host + 12, at + took / 3 + 1
            yield from launched("aten::add", "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add"
                                "<c10::BFloat16>>(int)", host, at, 11)
            host, at = host + 12, at + 12
            if layer % 2 == 0:
                wait = 20.0 + (60.0 if slow == 1.0 and rank % 2 == (world // 3 + 1) % 2 else 0.0) + rng.random()
                yield from collective("_allreduce_base" if layer % 4 else "allreduce",
                                      "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", host, at, wait,
                                      groups[1], 1 << 20)
                host, at = host + 12, at + wait + 1
        if stage < STAGES - 1:
            yield from collective("send_recv", "ncclDevKernel_SendRecv(ncclDevComm*)", host, at, 30, groups[2], 1 << 16)
            at += 31
        wait = 200.0 + 10 * (world - rank % 7)
        yield from collective("allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", host + 20, at,
                              wait, groups[3] if len(groups[3][2]) > 1 else groups[0], 1 << 24)
        clock = max(at + wait, host + 40) + 100
        yield span("user_annotation", f"ProfilerStep#{step + 5}", 1000, 1000, begin, clock - begin)
        clock += 50
    yield "\n]}\n"


def write(folder, world, layers):
    os.makedirs(folder, exist_ok=True)
    paths = []
    for rank in range(world):
        paths.append(os.path.join(folder, f"rank{rank:04}.json"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            for text in trace(rank, world, layers):
                file.write(text)
    return paths


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("ranks", type=int)
    parser.add_argument("--mb", type=float, default=1)
    options = parser.parse_args()
    if options.ranks < TENSOR * STAGES:
        parser.error(f"RANKS: expected {TENSOR * STAGES} or more, got {options.ranks}")
    a_layer = sum(len(text) for text in trace(0, options.ranks, 40)) / 40
    write(options.folder, options.ranks, max(1, round(options.mb * 1e6 / a_layer)))
