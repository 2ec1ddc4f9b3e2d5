#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes memory snapshots: made_snapshot.py OUT.pickle [--steps N] [--protocol P] [--form FORM] [--seed N] ...

No GPU is involved and nothing was measured: a model of PyTorch's caching allocator (small and large pools, best fit, splits,
merges, pending frees, expandable segments, private pools) serves the allocations of a made training loop, and records what
torch.cuda.memory._record_memory_history() would. Keys, actions and their order are those of PyTorch 2.15.
"""
import argparse
import pickle
import random

MIB = 1 << 20
ROUND, SMALL, SMALL_SEGMENT, LARGE_SEGMENT, MIN_LARGE = 512, MIB, 2 * MIB, 20 * MIB, 10 * MIB


def frame(filename, line, name):
    return {"filename": filename, "line": line, "name": name}


SITE = "/usr/lib/python3.12/site-packages/torch/"
MAIN = frame("/home/user/train.py", 88, "<module>")
TRAIN = frame("/home/user/train.py", 61, "train")
CALL = [frame(SITE + "nn/modules/module.py", 1775, "_wrapped_call_impl"), frame(SITE + "nn/modules/module.py", 1786, "_call_impl")]
ENGINE = [frame("??", 0, "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)")]


def forward(file, line, qualified):
    """The frames of one module's forward, innermost first."""
    return [frame(file, line, qualified), *reversed(CALL)]


def stack(*parts):
    frames = []
    for part in parts:
        frames += part if isinstance(part, list) else [part]
    return frames + [TRAIN, MAIN]


BLOCK = forward("/home/user/model.py", 40, "Block.forward")
MODEL = forward("/home/user/model.py", 70, "Model.forward")
LINEAR = forward(SITE + "nn/modules/linear.py", 134, "Linear.forward")
GELU = forward(SITE + "nn/modules/activation.py", 734, "GELU.forward")
TO = [frame(SITE + "nn/modules/module.py", 1340, "convert"), frame(SITE + "nn/modules/module.py", 942, "_apply"),
      frame(SITE + "nn/modules/module.py", 1355, "to"), frame("/home/user/train.py", 20, "build"), MAIN]
BACKWARD = [frame(SITE + "autograd/graph.py", 841, "_engine_run_backward"), frame(SITE + "autograd/__init__.py", 354, "backward"),
            frame(SITE + "_tensor.py", 625, "backward"), frame("/home/user/train.py", 55, "step"), TRAIN, MAIN]
ACCUMULATE = [frame("??", 0, "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)"), *ENGINE, *BACKWARD]
GRAD_TEMP = [frame("??", 0, "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)"), *ENGINE, *BACKWARD]
OPTIMIZER = [frame(SITE + "optim/adam.py", 785, "adam"), frame(SITE + "optim/adam.py", 247, "step"),
             frame(SITE + "optim/optimizer.py", 526, "wrapper"), frame("/home/user/train.py", 57, "step"), TRAIN, MAIN]
STATE = [frame(SITE + "optim/adam.py", 180, "_init_group"), *OPTIMIZER[1:]]
LEAK = [frame("/home/user/metrics.py", 12, "remember"), frame("/home/user/train.py", 60, "train"), MAIN]
LOADER = [frame("/home/user/data.py", 31, "to_device"), frame("/home/user/train.py", 50, "step"), TRAIN, MAIN]
GRAPH = [frame(SITE + "cuda/graphs.py", 190, "capture_begin"), frame("/home/user/serve.py", 9, "capture"), MAIN]
EMPTY = [frame(SITE + "cuda/memory.py", 226, "empty_cache"), frame("/home/user/train.py", 63, "train"), MAIN]
ZERO = [frame(SITE + "optim/optimizer.py", 1008, "zero_grad"), frame("/home/user/train.py", 52, "step"), TRAIN, MAIN]


class OutOfMemory(Exception):
    pass


class Block:
    def __init__(self, segment, address, size):
        self.segment, self.address, self.size = segment, address, size
        self.requested, self.state, self.frames = 0, "inactive", []


class Segment:
    def __init__(self, address, size, kind, stream, pool, frames, expandable=False):
        self.address, self.size, self.kind, self.stream, self.pool = address, size, kind, stream, pool
        self.frames, self.expandable = frames, expandable
        self.blocks = [Block(self, address, size)]


class Allocator:
    """One device. Addresses are made; `capacity` is what it has."""

    def __init__(self, device=0, capacity=1 << 40, expandable=False, base=0x7F0000000000):
        self.device, self.capacity, self.expandable = device, capacity, expandable
        self.segments, self.trace, self.live = [], [], {}
        self.next_address, self.time_us, self.metadata = base + device * (1 << 40), 1_700_000_000_000_000, ""
        self.empty_frames = []

    def record(self, action, address, size, stream, frames, pool):
        self.time_us += 7
        entry = {"action": action}
        entry["device_free" if action == "oom" else "addr"] = address
        entry |= {"size": size, "stream": stream, "time_us": self.time_us, "compile_context": "N/A", "user_metadata": self.metadata,
                  "pool_id": pool, "frames": frames}
        self.trace.append(entry)

    def reserved(self):
        return sum(s.size for s in self.segments)

    def find(self, size, kind, stream, pool):
        best = None
        for segment in self.segments:
            if (segment.kind, segment.stream, segment.pool) == (kind, stream, pool):
                for block in segment.blocks:
                    if block.state == "inactive" and block.size >= size and (best is None or block.size < best.size):
                        best = block
        return best

    def alloc(self, requested, frames, stream=0, pool=(0, 0)):
        size = max(ROUND, -(-requested // ROUND) * ROUND)
        kind = "small" if size <= SMALL else "large"
        block = self.find(size, kind, stream, pool)
        if block is None:
            wanted = SMALL_SEGMENT if kind == "small" else LARGE_SEGMENT if size < MIN_LARGE else -(-size // (2 * MIB)) * 2 * MIB
            if self.reserved() + wanted > self.capacity:
                self.release_cached(frames)
            if self.reserved() + wanted > self.capacity:
                self.record("oom", self.capacity - self.reserved(), size, stream, frames, pool)
                raise OutOfMemory
            block = self.grow(wanted, kind, stream, pool, frames)
        self.split(block, size)
        block.requested, block.state, block.frames = requested, "active_allocated", frames
        self.live[block.address] = block
        self.record("alloc", block.address, requested, stream, frames, pool)
        return block.address

    def grow(self, wanted, kind, stream, pool, frames):
        if self.expandable:
            for segment in self.segments:
                if segment.expandable and (segment.kind, segment.stream, segment.pool) == (kind, stream, pool):
                    last = segment.blocks[-1]
                    self.record("segment_map", segment.address + segment.size, wanted, stream, frames, pool)
                    segment.size += wanted
                    if last.state == "inactive":
                        last.size += wanted
                        return last
                    segment.blocks.append(Block(segment, last.address + last.size, wanted))
                    return segment.blocks[-1]
        segment = Segment(self.next_address, wanted, kind, stream, pool, frames, self.expandable)
        self.next_address += (1 << 36) if self.expandable else wanted + 2 * MIB
        self.segments.append(segment)
        self.record("segment_map" if self.expandable else "segment_alloc", segment.address, wanted, stream, frames, pool)
        return segment.blocks[0]

    def split(self, block, size):
        keep = block.size - size
        if keep >= (ROUND if block.segment.kind == "small" else SMALL + 1):
            rest = Block(block.segment, block.address + size, keep)
            block.size = size
            index = block.segment.blocks.index(block)
            block.segment.blocks.insert(index + 1, rest)

    def free(self, address, frames=None, pending=False):
        block = self.live[address]
        pool = block.segment.pool
        self.record("free_requested", address, block.requested, block.segment.stream, frames or self.empty_frames, pool)
        block.state = "active_pending_free"
        if not pending:
            self.complete(address)

    def complete(self, address):
        block = self.live.pop(address)
        segment = block.segment
        self.record("free_completed", address, block.requested, segment.stream, self.empty_frames, segment.pool)
        block.state, block.frames, block.requested = "inactive", [], 0
        index = segment.blocks.index(block)
        for other in (index + 1, index - 1):
            if 0 <= other < len(segment.blocks) and segment.blocks[other].state == "inactive":
                first, second = sorted((block, segment.blocks[other]), key=lambda b: b.address)
                first.size += second.size
                segment.blocks.remove(second)
                block = first
                index = segment.blocks.index(block)

    def release_cached(self, frames):
        for segment in list(self.segments):
            if all(b.state == "inactive" for b in segment.blocks) and segment.pool == (0, 0):
                action = "segment_unmap" if segment.expandable else "segment_free"
                self.record(action, segment.address, segment.size, segment.stream, frames, segment.pool)
                self.segments.remove(segment)

    def snapshot_segments(self):
        out = []
        for s in sorted(self.segments, key=lambda s: s.address):
            allocated = sum(b.size for b in s.blocks if b.state == "active_allocated")
            active = sum(b.size for b in s.blocks if b.state != "inactive")
            out.append({"device": self.device, "address": s.address, "total_size": s.size, "allocated_size": allocated,
                        "active_size": active, "requested_size": sum(b.requested for b in s.blocks), "stream": s.stream,
                        "segment_type": s.kind, "segment_pool_id": s.pool, "is_expandable": s.expandable, "frames": s.frames,
                        "blocks": [{"address": b.address, "size": b.size, "requested_size": b.requested if b.state != "inactive" else 0,
                                    "state": b.state, "frames": b.frames} for b in s.blocks]})
        return out


class Run:
    """A training loop over one allocator, by the flags of the command line."""

    def __init__(self, o):
        self.o, self.random = o, random.Random(o.seed)
        self.a = Allocator(capacity=o.capacity_mib * MIB, expandable=o.expandable)
        self.annotations, self.gradients, self.leaked = [], [], []
        self.layers = [self.random.randrange(1, 5) * 3 * MIB + 4096 * self.random.randrange(3) for _ in range(o.layers)]

    def annotate(self, name, stage):
        self.a.time_us += 1
        self.annotations.append({"name": name, "stage": stage, "device": 0, "time_us": self.a.time_us})

    def prepare(self):
        self.parameters = [self.a.alloc(n, TO) for n in self.layers]
        if self.o.graph:
            for _ in range(3):
                self.a.alloc(5 * MIB, GRAPH, stream=7, pool=(1, 0))
        if self.o.ring:  # what came before is not in the history
            self.a.trace.clear()

    def step(self, number):
        a, o = self.a, self.o
        self.annotate(f"ProfilerStep#{number}", "START")
        a.metadata = f"step {number}" if o.metadata else ""
        if self.gradients and not o.keep_gradients:
            for g in self.gradients:
                a.free(g, ZERO)
            self.gradients = []
        data = a.alloc(2 * MIB + 512 * self.random.randrange(4), stack(LOADER[:1]))
        activations = []
        for i, n in enumerate(self.layers):
            scratch = a.alloc(n // 3 + 512 * self.random.randrange(1, 99), stack(GELU, BLOCK, MODEL))
            activations.append(a.alloc(n + 1024 * self.random.randrange(9), stack(LINEAR, BLOCK, MODEL)))
            a.free(scratch)
        new = []
        for i in reversed(range(len(self.layers))):
            temporary = a.alloc(self.layers[i], GRAD_TEMP, stream=0)
            if not (o.keep_gradients and self.gradients):
                new.append(a.alloc(self.layers[i], ACCUMULATE))
            a.free(activations[i], pending=i == 0)
            a.free(temporary)
        self.gradients = self.gradients or new
        if number == 0:
            self.state = [a.alloc(n, STATE) for n in self.layers for _ in range(2)]
        temporaries = [a.alloc(n, OPTIMIZER) for n in self.layers[:2]]
        for t in temporaries:
            a.free(t)
        a.complete(activations[0])
        a.free(data)
        if o.leak:
            self.leaked.append(a.alloc(MIB + 700 * 1024, LEAK))
        if o.empty_cache:
            a.release_cached(EMPTY)
        self.annotate(f"ProfilerStep#{number}", "END")

    def run(self):
        self.prepare()
        try:
            for number in range(self.o.steps):
                self.step(number)
        except OutOfMemory:
            pass
        self.a.record("snapshot", 0, 0, 0, self.a.empty_frames, (0, 0))
        snapshot = {"segments": self.a.snapshot_segments(), "device_traces": [self.a.trace, []],
                    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True" if self.o.expandable else "",
                                           "max_split_size": -1, "garbage_collection_threshold": 0.0,
                                           "expandable_segments": self.o.expandable, "pinned_num_register_threads": 1,
                                           "release_lock_on_cudamalloc": False, "pinned_use_cuda_host_register": False,
                                           "roundup_power2_divisions": {str(1 << i): 0 for i in range(4)}},
                    "external_annotations": self.annotations}
        return as_form(snapshot, self.o.form)


def as_form(snapshot, form):
    """Snapshots of other versions: `list`, the segments alone; `history`, of PyTorch 1.13; `bare`, without frames."""
    if form == "list":
        return snapshot["segments"]
    if form == "history":
        for segment in snapshot["segments"]:
            for key in ("segment_pool_id", "is_expandable", "frames", "requested_size"):
                segment.pop(key)
            for block in segment["blocks"]:
                frames, requested = block.pop("frames"), block.pop("requested_size")
                block.pop("address")
                if block["state"] != "inactive":
                    block["history"] = [{"addr": 1, "frames": frames, "real_size": requested}]
        return {"segments": snapshot["segments"], "device_traces": []}
    if form == "bare":
        for entry in snapshot["device_traces"][0]:
            entry["frames"] = []
        for segment in snapshot["segments"]:
            segment["frames"] = []
            for block in segment["blocks"]:
                block["frames"] = []
    return snapshot


def made(arguments=()):
    return Run(parser().parse_args(["-", *arguments])).run()


def parser():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("out")
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--protocol", type=int, default=5)
    p.add_argument("--capacity-mib", type=int, default=1 << 20)
    p.add_argument("--form", choices=["now", "list", "history", "bare"], default="now")
    for flag in ("expandable", "leak", "empty-cache", "keep-gradients", "graph", "ring", "metadata"):
        p.add_argument("--" + flag, action="store_true")
    return p


if __name__ == "__main__":
    options = parser().parse_args()
    with open(options.out, "wb") as out:
        pickle.dump(Run(options).run(), out, protocol=options.protocol)
