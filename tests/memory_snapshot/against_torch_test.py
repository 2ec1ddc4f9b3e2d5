# SPDX-License-Identifier: Apache-2.0
"""The answers of `epilogue memory` beside PyTorch's own reading of the same file: against_torch_test.py EPILOGUE

The snapshots are made (made_snapshot.py). Totals come from torch/cuda/_memory_viz.py where the interpreter that
EPILOGUE_TORCH_PYTHON names has torch; without it those tests skip, and sums of plain Python remain.
"""
import base64
import gzip
import importlib.util
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import unittest
from collections import Counter

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from made_snapshot import made  # noqa: E402

EPILOGUE = sys.argv.pop(1) if len(sys.argv) > 1 else None
TORCH_PYTHON = os.environ.get("EPILOGUE_TORCH_PYTHON")

RUNS = {
    "plain": [],
    "leak": ["--leak", "--steps", "6"],
    "expandable": ["--expandable", "--layers", "7"],
    "graph": ["--graph", "--seed", "3"],
    "ring": ["--ring", "--metadata"],
    "caches emptied": ["--empty-cache", "--steps", "5"],
    "out of memory": ["--capacity-mib", "70", "--layers", "6"],
    "bare": ["--form", "bare"],
    "gradients kept": ["--keep-gradients", "--seed", "9"],
}


def memory_viz():
    if not TORCH_PYTHON:
        return None
    code = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    folder = subprocess.run([TORCH_PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    spec = importlib.util.spec_from_file_location("memory_viz", os.path.join(folder, "cuda", "_memory_viz.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VIZ = memory_viz()


def run(*arguments, stdin=None):
    return subprocess.run([EPILOGUE, *arguments], capture_output=True, check=False, input=stdin)


def memory(path, *more):
    done = run("memory", path, "--format", "json", *more)
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode())
    return json.loads(done.stdout)


def by_stack(snapshot):
    """Requested bytes of blocks in use by their frames, as _memory_viz.memory() gives them."""
    sums = Counter()
    for line in VIZ.memory(snapshot, format_flamegraph=lambda text: text).splitlines():
        where, size = line.rsplit(" ", 1)
        _, state, stack = where.split(";", 2)
        if state == "active_allocated" and stack != "<gaps>":
            sums[stack] += int(size)
    return sums


def replayed(snapshot):
    """Peak of requested bytes from alloc to free_completed, with what was allocated before the history."""
    trace = snapshot["device_traces"][0]
    live, base, total, peak = {}, 0, 0, 0
    for e in trace:
        if e["action"] == "alloc":
            live[e["addr"]] = e["size"]
        elif e["action"] == "free_completed" and live.pop(e["addr"], None) is None:
            base += e["size"]
    for segment in snapshot["segments"]:
        for b in segment["blocks"]:
            if b["state"] != "inactive" and b["address"] not in live:
                base += b["requested_size"]
    total = peak = base
    for e in trace:
        total += {"alloc": e["size"], "free_completed": -e["size"]}.get(e["action"], 0)
        peak = max(peak, total)
    return peak


class Memory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "snapshot.pickle")

    def write(self, snapshot, protocol=4):
        with open(self.path, "wb") as out:
            pickle.dump(snapshot, out, protocol=protocol)
        return self.path

    def each(self):
        for name, arguments in RUNS.items():
            for protocol in (2, 3, 4, 5):
                with self.subTest(name, protocol=protocol):
                    snapshot = made(arguments)
                    self.write(snapshot, protocol)
                    yield snapshot, memory(self.path)["devices"][0]

    def test_totals_are_those_of_the_blocks(self):
        for snapshot, device in self.each():
            blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
            end = device["at_end"]
            self.assertGreater(end["reserved_bytes"], 0)
            self.assertEqual(end["reserved_bytes"], sum(s["total_size"] for s in snapshot["segments"]))
            self.assertEqual(end["allocated_bytes"], sum(s["allocated_size"] for s in snapshot["segments"]))
            self.assertEqual(end["active_bytes"], sum(s["active_size"] for s in snapshot["segments"]))
            self.assertEqual(end["requested_bytes"], sum(b["requested_size"] for b in blocks if b["state"] == "active_allocated"))
            self.assertEqual(device["events"], len(snapshot["device_traces"][0]))

    def test_peak_is_that_of_a_replay(self):
        for snapshot, device in self.each():
            self.assertEqual(device["peak_bytes"], replayed(snapshot))
            self.assertEqual(sum(h["bytes"] for h in device["at_peak_by_frame"]), device["peak_bytes"])
            self.assertEqual(sum(h["bytes"] for h in device["at_peak_by_category"]), device["peak_bytes"])
            self.assertEqual(sum(h["bytes"] for h in device["at_peak_by_module"]), device["peak_bytes"])

    def test_segsum_says_the_same(self):
        if VIZ is None:
            self.skipTest("EPILOGUE_TORCH_PYTHON names no interpreter with torch")
        for snapshot, device in self.each():
            text, end = VIZ.segsum(snapshot), device["at_end"]
            self.assertIn(f"segments: {end['segments']}\n", text)
            self.assertIn(f"total_reserved: {VIZ.Bytes(end['reserved_bytes'])}\n", text)
            self.assertIn(f"total_allocated: {VIZ.Bytes(end['requested_bytes'])}\n", text)
            self.assertEqual(end["allocated_bytes"], sum(VIZ.calc_active(s) for s in snapshot["segments"]))

    def test_memory_by_frames_is_the_same(self):
        if VIZ is None:
            self.skipTest("EPILOGUE_TORCH_PYTHON names no interpreter with torch")
        for snapshot, device in self.each():
            ours = {h["name"]: h["bytes"] for h in device["at_end_by_stack"]}
            self.assertTrue(ours)
            self.assertEqual(ours, dict(by_stack(snapshot)))

    def test_trace_has_as_many_entries(self):
        if VIZ is None:
            self.skipTest("EPILOGUE_TORCH_PYTHON names no interpreter with torch")
        for snapshot, device in self.each():
            text = VIZ.trace(snapshot)
            self.assertIn(f"{device['events']} entries\n", text)
            self.assertEqual(text.count("raise OutOfMemoryError"), len(device["out_of_memory"]))

    def test_compare_finds_the_same_segments(self):
        if VIZ is None:
            self.skipTest("EPILOGUE_TORCH_PYTHON names no interpreter with torch")
        before, after = made([]), made(["--leak", "--steps", "9", "--layers", "6"])
        other = self.path + ".before"
        with open(other, "wb") as out:
            pickle.dump(before, out)
        diff = memory(self.write(after), "--against", other)["devices"][0]["diff"]
        keys = [{(s["address"], s["total_size"]) for s in x["segments"]} for x in (before, after)]
        self.assertEqual(diff["segments_only_before"], len(keys[0] - keys[1]))
        self.assertEqual(diff["segments_only_after"], len(keys[1] - keys[0]))
        self.assertGreater(diff["segments_only_after"], 0)
        a, b = by_stack(before), by_stack(after)
        changes = {c["name"]: c["delta_bytes"] for c in diff["at_end_by_stack"]}
        self.assertEqual(changes, {k: b[k] - a[k] for k in a.keys() | b.keys() if a[k] != b[k]})

    def test_older_forms(self):
        now = memory(self.write(made(["--graph"])))["devices"][0]["at_end"]
        for form in ("list", "history"):
            for protocol in (2, 5):
                device = memory(self.write(made(["--graph", "--form", form]), protocol))["devices"][0]
                for key in ("reserved_bytes", "allocated_bytes", "requested_bytes", "active_bytes", "largest_free_block_bytes"):
                    self.assertEqual(device["at_end"][key], now[key], (form, key))
                self.assertEqual(device["peak_bytes"], sum(h["bytes"] for h in device["at_peak_by_frame"]))

    def test_gzip_and_stdin(self):
        plain = memory(self.write(made([])))
        with open(self.path, "rb") as file:
            content = file.read()
        with gzip.open(self.path + ".gz", "wb") as out:
            out.write(content)
        zipped = memory(self.path + ".gz")
        piped = json.loads(run("memory", "-", "--format", "json", stdin=content).stdout)
        self.assertEqual(zipped["devices"], plain["devices"])
        self.assertEqual(piped["devices"], plain["devices"])
        self.assertEqual(plain["schema_version"], 1)

    def test_made_runs_show_their_faults_and_no_others(self):
        wanted = {"leak": "growth", "out of memory": "out-of-memory", "caches emptied": "empty-cache", "gradients kept": "gradients-kept"}
        for name, finding in wanted.items():
            device = memory(self.write(made(RUNS[name])))["devices"][0]
            self.assertIn(finding, [f["id"] for f in device["findings"]], name)
        plain = [f["id"] for f in memory(self.write(made(RUNS["plain"])))["devices"][0]["findings"]]
        self.assertFalse(set(wanted.values()) & set(plain), plain)

    def test_the_leak_is_named(self):
        device = memory(self.write(made(RUNS["leak"])))["devices"][0]
        self.assertEqual([leak["name"] for leak in device["growth"]], ["metrics.py:12:remember"])
        self.assertEqual(device["growth"][0]["bytes_per_step"], (1 << 20) + 700 * 1024)
        self.assertEqual(device["steps_by"], "ProfilerStep")

    def test_a_page_holds_it_all(self):
        page = self.path + ".html"
        done = run("memory", self.write(made(["--graph"])), "--page", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(page, encoding="utf-8") as file:
            packed = re.search('id="data-report">([^<]*)</script>', file.read()).group(1)
        data = json.loads(gzip.decompress(base64.b64decode(packed)))
        self.assertEqual(data["explanation"]["devices"], memory(self.path)["devices"])
        drawing = data["snapshot"][0]
        self.assertEqual(drawing["map_bytes"], data["explanation"]["devices"][0]["at_end"]["reserved_bytes"])
        self.assertEqual(max(p[1] for p in drawing["curve"]), data["explanation"]["devices"][0]["peak_bytes"])
        for begin, end, at, size, _, _ in drawing["lives"]:
            self.assertLess(begin, end)
            self.assertLessEqual(at + size, drawing["map_bytes"])
        for section in data["sections"]:
            for block in section["blocks"]:
                rows = data["explanation"]
                for key in filter(None, block.get("list", "").split(".")):
                    rows = rows[int(key)] if key.isdigit() else rows[key]
                self.assertTrue(rows, block)

    def test_misuse_is_one_line(self):
        class Evil:
            def __reduce__(self):
                return os.mkdir, ("/tmp/epilogue_memory_evil",)

        cases = {pickle.dumps({"segments": [Evil()]}, 2): b"opcode GLOBAL", pickle.dumps({"segments": [Evil()]}, 4): b"opcode STACK_GLOBAL",
                 pickle.dumps({"a": 1}, 4): b"no memory snapshot", b"{}": b"protocols 2 to 5"}
        for content, says in cases.items():
            done = run("memory", "-", stdin=content)
            self.assertEqual(done.returncode, 2)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
        self.assertFalse(os.path.exists("/tmp/epilogue_memory_evil"))
        done = run("memory", self.write(made([])), "--device-index", "7")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"expected one of the snapshot's devices (0), got 7", done.stderr)

    def test_a_profile_of_the_cpu_has_its_categories(self):
        if not TORCH_PYTHON:
            self.skipTest("EPILOGUE_TORCH_PYTHON names no interpreter with torch")
        code = """
import pickle, sys, torch
from torch.cuda._memory_viz import _profile_to_snapshot
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256))
optimizer = torch.optim.Adam(model.parameters())
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as prof:
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(64, 512)).sum().backward()
        optimizer.step()
with open(sys.argv[1], "wb") as out:
    pickle.dump(_profile_to_snapshot(prof), out)
"""
        done = subprocess.run([TORCH_PYTHON, "-c", code, self.path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path, "rb") as file:
            snapshot = pickle.load(file)
        self.assertTrue(any(snapshot["device_traces"]))
        device = memory(self.path)["devices"][-1]
        self.assertEqual(device["events"], len(snapshot["device_traces"][-1]))
        names = {h["name"] for h in device["at_peak_by_category"]}
        self.assertIn("optimizer state", names)
        self.assertIn("gradients", names)


if __name__ == "__main__":
    unittest.main()
