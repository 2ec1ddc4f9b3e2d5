# SPDX-License-Identifier: Apache-2.0
"""Made traces of the XLA profiler, as jax.profiler.trace() leaves them in plugins/profile/*/*.trace.json.gz.

No JAX and no device made these: they follow the public format (names of processes and threads from
tsl/profiler/utils/xplane_schema.cc, numbers as texts and a last empty event as the trace viewer writes them). Run it to write
them: python3 xla_traces.py FOLDER."""
import gzip
import json
import os
import sys

HOST = 701


def name(pid, text, tid=None):
    event = {"ph": "M", "pid": pid, "name": "process_name" if tid is None else "thread_name", "args": {"name": text}}
    return event if tid is None else {**event, "tid": tid}


def span(pid, tid, text, ts, dur, **args):
    event = {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": text}
    return {**event, "args": {k: str(v) for k, v in args.items()}} if args else event


def document(events):
    return {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*events, {}]}


def gpu(steps=6):
    """A training step on one GPU: a product by Triton, a fusion, an all-reduce, copies to and from the host."""
    events = [name(1, "/device:GPU:0"), name(1, "Stream #14(Compute,MemcpyH2D,Memset)", 14), name(1, "Stream #22(Compute)", 22),
              name(1, "XLA Modules", 101), name(1, "XLA Ops", 102), name(1, "Steps", 103), name(1, "Framework Ops", 104),
              name(1, "Source code", 105), name(HOST, "/host:CPU"), name(HOST, "python", 7), name(HOST, "tf_pjrt_thread/9", 9)]
    correlation = 0
    kernels = [("gemm_fusion_dot_general_7", "gemm_fusion_dot_general.7", 400.0, 14),
               ("loop_add_tanh_fusion", "loop_add_tanh_fusion", 60.0, 14),
               ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "all-reduce-start.1", 120.0, 22)]
    for step in range(steps):
        at = 1000.0 * step
        hlo = {"hlo_module": "jit_train_step", "group_id": step, "program_id": 12}
        events += [span(HOST, 7, "train", at, 950.0, step_num=step, _r=1, group_id=step),
                   span(HOST, 7, "$train.py:42 train_step", at + 5, 900.0),
                   span(HOST, 7, "PjitFunction(train_step)", at + 10, 300.0, group_id=step),
                   span(HOST, 7, "PjRtStreamExecutorLoadedExecutable::Execute", at + 20, 280.0, group_id=step),
                   span(HOST, 9, "ThreadpoolListener::Record", at + 20, 0.0)]
        start = at + 60
        for i, (kernel, op, dur, stream) in enumerate(kernels):
            correlation += 1
            events += [span(HOST, 7, "cuLaunchKernelEx", at + 30 + 20 * i, 10.0, correlation_id=correlation, context_id="$$1"),
                       span(1, stream, kernel, start, dur, correlation_id=correlation, context_id="$$1", hlo_op=op, **hlo,
                            name=f"jit(train_step)/jit(main)/{op}", tf_op="XlaModule:", scope_range_id=i + 1,
                            kernel_details="regs:64 static_shared:0 dynamic_shared:49152 grid:216,1,1 block:128,1,1 occ_pct:50"),
                       span(1, 102, op, start, dur, **hlo), span(1, 104, f"jit({op})", start, dur)]
            start += dur + 5
        correlation += 1
        events += [span(HOST, 7, "cuMemcpyHtoDAsync_v2", at + 200, 15.0, correlation_id=correlation, context_id="$$1",
                        memcpy_details="kind_src:pageable kind_dst:device size:4194304 dest:0 async:1"),
                   span(1, 14, "MemcpyH2D", at + 700, 100.0, correlation_id=correlation, context_id="$$1",
                        memcpy_details="kind_src:pageable kind_dst:device size:4194304 dest:0 async:1"),
                   span(1, 101, "jit_train_step(8812345)", at + 60, start - at - 65, run_id=step, **hlo),
                   span(1, 103, str(step), at + 60, 740.0, group_id=step), span(1, 105, "train.py:42", at + 60, 740.0)]
    return document(events)


def tpu(steps=4):
    """Two cores of a TPU: a loop that encloses its ops, a fused product, an all-reduce, a copy beside them. The host launches
    nothing that the trace tells."""
    events = [name(HOST, "/host:CPU"), name(HOST, "python", 7)]
    for core in range(2):
        pid = core + 2
        events += [name(pid, f"/device:TPU:{core}"), name(pid, "Steps", 1), name(pid, "XLA Modules", 2), name(pid, "XLA Ops", 3),
                   name(pid, "Async XLA Ops", 4), name(pid, "Framework Name Scope", 5)]
        for step in range(steps):
            at = 500.0 * step + core
            args = {"hlo_category": "convolution fusion", "flops": 2 << 30, "bytes_accessed": 1 << 20, "run_id": step,
                    "long_name": "%fusion.3 = bf16[1024,1024]{1,0:T(8,128)(2,1)} fusion(bf16[1024,1024] %p0)"}
            events += [span(pid, 1, str(step), at, 450.0), span(pid, 2, f"jit_decode(771{core})", at, 450.0, run_id=step),
                       span(pid, 3, "while.5", at, 300.0, hlo_category="while"),
                       span(pid, 3, "fusion.3", at + 1, 140.0, **args), span(pid, 3, "fusion.4", at + 150, 140.0, **args),
                       span(pid, 3, "all-reduce.9", at + 305, 80.0, hlo_category="all-reduce"),
                       span(pid, 3, "copy.2", at + 390, 20.0, hlo_category="copy"),
                       span(pid, 4, "copy-start.1", at + 10, 200.0, hlo_category="copy-start"),
                       span(pid, 5, "decode", at, 450.0)]
    for step in range(steps):
        events.append(span(HOST, 7, "PjitFunction(decode)", 500.0 * step, 40.0))
    return document(events)


def cpu(steps=3):
    """JAX on a CPU: thunks on a thread of the host, each with its op of HLO."""
    events = [name(HOST, "/host:CPU"), name(HOST, "python", 7), name(HOST, "tf_XLAEigen/11", 11)]
    for step in range(steps):
        at = 300.0 * step
        args = {"hlo_module": "jit_f", "program_id": 3}
        events += [span(HOST, 7, "$f.py:3 f", at, 290.0), span(HOST, 7, "PjitFunction(f)", at + 2, 280.0),
                   span(HOST, 7, "ThunkExecutor::Execute", at + 10, 260.0),
                   span(HOST, 7, "dot.4", at + 12, 200.0, hlo_op="dot.4", **args),
                   span(HOST, 7, "wrapped_tanh", at + 215, 50.0, hlo_op="wrapped_tanh", **args),
                   span(HOST, 11, "ThreadpoolListener::StartRegion", at + 12, 0.0)]
    return document(events)


def write(folder):
    paths = {}
    for maker in (gpu, tpu, cpu):
        paths[maker.__name__] = os.path.join(folder, f"{maker.__name__}.trace.json.gz")
        with gzip.open(paths[maker.__name__], "wt", encoding="utf-8") as file:
            json.dump(maker(), file)
    return paths


if __name__ == "__main__":
    print("\n".join(write(sys.argv[1]).values()))
