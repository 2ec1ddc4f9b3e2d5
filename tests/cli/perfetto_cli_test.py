# SPDX-License-Identifier: Apache-2.0
"""Perfetto's protobuf traces: PyTorch's own files beside the JSON of the same run and beside a reader of the wire format that shares
no code with the command's; damaged files."""
import collections
import gzip
import json
import os
import random
import shutil
import subprocess
import unittest

from command import BINARY, CommandTest, run

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/perfetto")


def data(name):
    return os.path.join(DATA, name)


# --- An independent reader --------------------------------------------------------------------------------------------------

def fields(message):
    """(number, value) of a protobuf message: ints, or bytes of what has a length."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            size = varint()
            yield key >> 3, message[at:at + size]
            at += size
        else:
            size = {1: 8, 5: 4}[key & 7]
            yield key >> 3, int.from_bytes(message[at:at + size], "little")
            at += size


def first(message, number, default=None):
    return next((value for n, value in fields(message) if n == number), default)


def read_perfetto(path):
    """How often slices of each (category, name) begin, how often tracks' slices end, and (kind, name, ns) of each GPU stage, and how many tracks
    there are."""
    with gzip.open(path) as f:
        packets = [p for n, p in fields(f.read()) if n == 1]
    names, categories, stages = {}, {}, {}
    for packet in packets:
        for number, interned in fields(packet):
            if number != 12:
                continue
            for kind, entry in fields(interned):
                table = {1: categories, 2: names, 24: stages}.get(kind)
                if table is not None:
                    table[first(entry, 1)] = first(entry, 2).decode()
    begins, ends, gpu = collections.Counter(), 0, []
    for packet in packets:
        event, stage = first(packet, 11), first(packet, 53)
        if event is not None and first(event, 9) == 1:
            begins[categories[first(event, 3)], names[first(event, 10)]] += 1
        elif event is not None and first(event, 9) == 2:
            ends += 1
        if stage is not None:
            kind = stages[first(stage, 14)]
            gpu.append((kind, names.get(first(stage, 20), kind), first(stage, 2)))
    return begins, ends, gpu, sum(first(packet, 60) is not None for packet in packets)


class PerfettoTest(CommandTest):
    def json(self, *args):
        return json.loads(self.ok(*args, "--format", "json"))

    def test_a_run_is_what_its_json_says(self):
        """PyTorch exported JSON of one run, and its encoder wrote a trace of Perfetto."""
        of_json, of_proto = data("mlp_train.json.gz"), data("mlp_train.pftrace.gz")
        for options in ((), ("--group-by-input-shape",)):
            rows = [self.json("table", path, "--sort-by", "count", *options)["rows"] for path in (of_json, of_proto)]
            self.assertGreater(len(rows[0]), 20)
            key = lambda row: (row["name"], row.get("input_shapes", ""))
            self.assertEqual(*(sorted(r, key=key) for r in rows))
        explained = [self.json("explain", path) for path in (of_json, of_proto)]
        for key in ("verdict", "ops", "steps", "span_us", "host", "findings", "fusions", "products"):
            self.assertEqual(explained[0].get(key), explained[1].get(key), key)

    def test_counts_are_those_of_an_independent_reader(self):
        for name in ("mlp_train.pftrace.gz", "mlp_train_made_gpu.pftrace.gz"):
            begins, ends, gpu, tracks = read_perfetto(data(name))
            self.assertEqual(sum(begins.values()), ends)
            said = self.json("explain", data(name))
            self.assertEqual(said["events"], ends + len(gpu) + tracks)  # tracks have names, which are events of metadata
            self.assertEqual(said["skipped_events"], 0)
            self.assertEqual(said["ops"], sum(n for (category, _), n in begins.items() if category == "cpu_op"))
            self.assertEqual(said["kernels"], sum(kind == "Kernel" for kind, _, _ in gpu))
            rows = self.json("table", data(name))["rows"]
            hosts = {r["name"]: r["count"] for r in rows if r["device_type"] == "CPU"}
            for (category, op), n in begins.items():
                if category == "cuda_runtime":
                    self.assertEqual(hosts[op], n)
            for kind, kernel in {(kind, kernel) for kind, kernel, _ in gpu}:
                row = next(r for r in rows if r["name"] == kernel)
                times = [ns for k, n, ns in gpu if (k, n) == (kind, kernel)]
                self.assertEqual((row["count"], row["self_device_us"]), (len(times), sum(times) / 1000))

    def test_kernels_have_their_launches_and_args(self):
        said = self.json("explain", data("mlp_train_made_gpu.pftrace.gz"))
        self.assertEqual((said["kernels"], said["kernels_without_launch"], said["launches_without_kernel"]), (4, 0, 0))
        rows = {r["name"]: r for r in self.json("table", data("mlp_train_made_gpu.pftrace.gz"))["rows"]}
        self.assertAlmostEqual(rows["aten::addmm"]["device_total_us"], 4 * 4 + 2 * 0.4, places=6)
        page = os.path.join(self.out, "page.html")
        self.ok("report", data("mlp_train_made_gpu.pftrace.gz"), "-o", page)

    def test_plain_packed_and_piped_are_the_same(self):
        packed = data("mlp_train_made_gpu.pftrace.gz")
        plain = os.path.join(self.out, "run.pftrace")
        with gzip.open(packed) as source, open(plain, "wb") as f:
            shutil.copyfileobj(source, f)
        expected = self.json("explain", packed)
        for path in (packed, plain):
            with open(path, "rb") as f:
                piped = subprocess.run([BINARY, "explain", "-", "--format", "json"], stdin=f, capture_output=True, check=True)
            for said in (self.json("explain", path), json.loads(piped.stdout)):
                self.assertEqual(said["findings"], expected["findings"])
                self.assertEqual(said["events"], expected["events"])

    def test_ranks_may_be_traces_of_perfetto(self):
        folder = os.path.join(self.out, "ranks")
        os.mkdir(folder)
        for rank in range(2):
            shutil.copy(data("mlp_train_made_gpu.pftrace.gz"), os.path.join(folder, f"rank{rank}.pftrace.gz"))
        self.assertEqual([r["rank"] for r in self.json("explain", folder)["ranks"]], [0, 1])

    def test_damaged_traces_are_one_clear_error(self):
        with gzip.open(data("mlp_train.pftrace.gz")) as f:
            whole = f.read()
        path = os.path.join(self.out, "broken.pftrace")

        def error(content):
            with open(path, "wb") as f:
                f.write(content)
            return self.misuse("explain", path)

        for size in (300, 5000, len(whole) - 1):
            self.assertIn("cannot be read at byte", error(whole[:size]))
        huge = b"\x0a" + b"\xff" * 8 + b"\x7f" + whole[2:200]
        self.assertIn("cannot be read at byte 0: it is damaged there, or ends early", error(huge))
        compressed = b"\x0a\x05\x92\x03\x02ab"
        self.assertIn("packets in it are compressed", error(whole[:0] + compressed + whole))
        self.assertIn("without slices", error(b"\x0a\x02\x50\x01"))
        with open(data("mlp_train.pftrace.gz"), "rb") as f:
            packed = f.read()
        self.assertIn("a compressed file that ends early", error(packed[:-2000]))

    def test_any_bytes_are_a_trace_or_one_line(self):
        with gzip.open(data("mlp_train_made_gpu.pftrace.gz")) as f:
            whole = f.read()[:30000]
        pick = random.Random(7)
        path = os.path.join(self.out, "fuzzed.pftrace")
        for _ in range(60):
            content = bytearray(whole)
            for _ in range(pick.choice([1, 3, 30])):
                content[pick.randrange(len(content))] = pick.randrange(256)
            with open(path, "wb") as f:
                f.write(content)
            result = run("table", path)
            self.assertIn(result.returncode, (0, 2), result.stderr)
            if result.returncode == 2:
                self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)


if __name__ == "__main__":
    unittest.main()
