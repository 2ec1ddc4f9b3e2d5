#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time and memory of reading a large memory snapshot: memory_snapshot_bench.py EPILOGUE [--mib 1024] [--frames 40]

The snapshot is made: opcodes are written as CPython's pickler of protocol 4 writes them (a small one is loaded with pickle
first, and must be what was meant), because a pickler would need several times the file's size in memory. Each event has a list
of its own with references to frames, as torch.cuda.memory._snapshot() gives them. Prints CPU seconds, elapsed seconds and the
largest resident size of `epilogue memory`, in turns with a plain read of the file; run it on a quiet machine.
"""
import argparse
import os
import pickle
import random
import struct
import subprocess
import sys
import tempfile
import time

SITES = 400
STACKS = 300


class Writer:
    """Just enough of a pickler, streamed."""

    def __init__(self, out):
        self.out, self.memo, self.texts = out, 0, {}
        self.put(b"\x80\x04")

    def put(self, data):
        self.out.write(data)

    def memoize(self):
        self.put(b"\x94")
        self.memo += 1
        return self.memo - 1

    def get(self, index):
        return b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)

    def text(self, value):
        if value in self.texts:
            self.put(self.get(self.texts[value]))
            return
        data = value.encode()
        self.put(b"\x8c" + bytes([len(data)]) + data)
        self.texts[value] = self.memoize()

    def number(self, value):
        if 0 <= value < 256:
            self.put(b"K" + bytes([value]))
        elif 0 <= value < 65536:
            self.put(b"M" + struct.pack("<H", value))
        elif -(2**31) <= value < 2**31:
            self.put(b"J" + struct.pack("<i", value))
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self.put(b"\x8a" + bytes([len(data)]) + data)


def write(path, events, depth):
    rng = random.Random(1)
    stacks = [[rng.randrange(SITES) for _ in range(depth)] for _ in range(STACKS)]
    frames = {}
    with open(path, "wb", buffering=1 << 20) as out:
        w = Writer(out)
        w.put(b"}")
        w.memoize()
        w.put(b"(")
        w.text("segments")
        w.put(b"]")
        w.memoize()
        w.text("device_traces")
        w.put(b"]")
        w.memoize()
        w.put(b"]")
        w.memoize()
        live, address = [], 0x7F0000000000
        for i in range(events):
            if i % 1000 == 0:
                w.put(b"e(" if i else b"(")
            frees = len(live) > 5000
            if not frees or i % 3 == 0:
                action, (place, size) = "alloc", (address, 512 * rng.randrange(1, 5000))
                live.append((place, size))
                address += size
            else:
                action, (place, size) = "free_completed", live.pop(rng.randrange(len(live)))
            w.put(b"}")
            w.memoize()
            w.put(b"(")
            for key, value in (("action", action), ("addr", place), ("size", size), ("stream", 0), ("time_us", 1_700_000_000_000_000 + 3 * i)):
                w.text(key)
                (w.text if isinstance(value, str) else w.number)(value)
            w.text("frames")
            w.put(b"]")
            w.memoize()
            w.put(b"(")
            for site in stacks[i % STACKS]:
                if site in frames:
                    w.put(w.get(frames[site]))
                    continue
                w.put(b"}")
                frames[site] = w.memoize()
                w.put(b"(")
                w.text("filename")
                w.text(f"/home/user/project/module_{site % 40}.py")
                w.text("line")
                w.number(site)
                w.text("name")
                w.text(f"Block_{site}.forward")
                w.put(b"u")
            w.put(b"eu")
        w.put(b"eau.")


def check():
    with tempfile.NamedTemporaryFile() as file:
        write(file.name, 2500, 12)
        with open(file.name, "rb") as source:
            snapshot = pickle.load(source)
        trace = snapshot["device_traces"][0]
        if len(trace) != 2500 or any(len(e["frames"]) != 12 for e in trace) or snapshot["segments"] != []:
            raise SystemExit("the writer of pickles is wrong")


def measured(command):
    start = time.perf_counter()
    with open(os.devnull, "w", encoding="utf-8") as null:
        process = subprocess.Popen(command, stdout=null)
        _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{command}: status {status}")
    elapsed = time.perf_counter() - start
    return usage.ru_utime + usage.ru_stime, elapsed, usage.ru_maxrss * 1024


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("epilogue")
    p.add_argument("--mib", type=int, default=1024)
    p.add_argument("--frames", type=int, default=40)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--folder", default=tempfile.gettempdir())
    o = p.parse_args()
    check()
    path = os.path.join(o.folder, "epilogue_memory_bench.pickle")
    try:
        write(path, 20_000, o.frames)
        per_event = os.path.getsize(path) / 20_000
        write(path, int(o.mib * 2**20 / per_event), o.frames)
        size = os.path.getsize(path)
        print(f"{size / 2**20:.0f} MiB, {per_event:.0f} bytes per event, {o.frames} frames each")
        for _ in range(o.runs):
            cat = measured(["cat", path])
            cpu, elapsed, rss = measured([o.epilogue, "memory", path])
            print(f"epilogue memory: {cpu:.2f} s of CPU, {elapsed:.2f} s, {rss / 2**20:.0f} MiB resident ({rss / size:.2f} of the file); "
                  f"cat: {cat[0]:.2f} s of CPU, {cat[1]:.2f} s")
    finally:
        if os.path.exists(path):
            os.remove(path)


if __name__ == "__main__":
    sys.exit(main())
