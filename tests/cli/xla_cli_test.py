# SPDX-License-Identifier: Apache-2.0
"""Traces of the XLA profiler (JAX): counts equal those of Python's json, lanes become kernels, copies, modules and ops, and no
finding speaks of PyTorch. The traces are made after the format (xla_traces.py); no JAX ran."""
import gzip
import json
import os
import unittest

import xla_traces
from command import CommandTest, run


class XlaTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.paths = xla_traces.write(self.out)

    def explain(self, path, *more):
        return json.loads(self.ok("explain", "--format", "json", path, *more))

    def lanes(self, path):
        """The spans of a trace by the names of their processes and threads, as Python reads them."""
        with gzip.open(path, "rt", encoding="utf-8") as file:
            events = [e for e in json.load(file)["traceEvents"] if e]
        names = {(e["pid"], e.get("tid")): e["args"]["name"] for e in events if e["ph"] == "M"}
        spans = {}
        for e in events:
            if e["ph"] == "X":
                spans.setdefault((names[e["pid"], None], names[e["pid"], e["tid"]]), []).append(e)
        return len(events), spans

    def test_counts_of_a_gpu_are_those_of_python(self):
        path = self.paths["gpu"]
        events, spans = self.lanes(path)
        said = self.explain(path)
        self.assertEqual(said["events"], events)
        self.assertEqual(said["skipped_events"], 0)
        streams = [e for (_, thread), list_ in spans.items() if thread.startswith("Stream #") for e in list_]
        kernels = [e for e in streams if "kernel_details" in e["args"]]
        self.assertEqual(said["kernels"], len(kernels))
        self.assertEqual(said["distinct_kernels"], len({e["name"] for e in kernels}))
        self.assertEqual(said["kernels_without_launch"], 0)
        self.assertEqual(said["launches_without_kernel"], 0)
        host = spans["/host:CPU", "python"]
        ops = [e for e in host if not e["name"].startswith(("$", "cu", "train"))]
        self.assertEqual(said["ops"], len(ops))
        steps = [e for e in host if "step_num" in e.get("args", {})]
        self.assertEqual([s["name"] for s in said["steps"]], [f"ProfilerStep#{e['args']['step_num']}" for e in steps])
        modules = spans["/device:GPU:0", "XLA Modules"]
        self.assertEqual([(r["name"], r["count"]) for r in said["device_ranges"]], [("jit_train_step", len(modules))])
        self.assertAlmostEqual(said["device_ranges"][0]["total_us"], sum(e["dur"] for e in modules), places=3)
        copies = [e for e in streams if "memcpy_details" in e["args"]]
        busy = sum(e["dur"] for e in streams)  # none overlaps another
        self.assertAlmostEqual(said["gpu_busy_us"], busy, places=3)
        spot, = said["hot_spots"]["copies"]
        self.assertEqual((spot["name"], spot["time"]["count"]), ("Memcpy HtoD (Pageable -> Device)", len(copies)))
        self.assertEqual([(c["name"], c["count"]) for c in said["collectives"]["kinds"]], [("all_reduce", len(steps))])

    def test_the_table_of_a_gpu(self):
        rows = json.loads(self.ok("table", "--format", "json", self.paths["gpu"]))["rows"]
        table = {row["name"]: row for row in rows}
        self.assertEqual(table["gemm_fusion_dot_general_7"]["count"], 6)
        self.assertEqual(table["cuLaunchKernelEx"]["count"], 18)
        self.assertEqual(table["PjitFunction(train_step)"]["count"], 6)
        self.assertNotIn("gemm_fusion_dot_general.7", table)  # derived of the kernel
        self.assertNotIn("train.py:42", table)

    def test_findings_speak_of_jax(self):
        for path in self.paths.values():
            said = self.explain(path)
            self.assertTrue(said["findings"])
            for finding in said["findings"]:
                text = json.dumps(finding)
                for word in ("torch", ".item()", "pin_memory", "num_workers", "DataLoader", "schedule("):
                    self.assertNotIn(word, text)
            self.assertIn("XLA profiler", json.dumps(said["health"]))
        gpu = {f["id"]: f for f in self.explain(self.paths["gpu"])["findings"]}
        self.assertIn("lax.scan", gpu["host-overhead"]["action"])
        self.assertIn("latency_hiding_scheduler", gpu["exposed-collectives"]["action"])
        self.assertEqual(gpu["exposed-collectives"]["evidence"].count(gpu["exposed-collectives"]["action"]), 1)

    def test_a_tpu_counts_what_loops_run_once(self):
        path = self.paths["tpu"]
        events, spans = self.lanes(path)
        said = self.explain(path)
        self.assertEqual(said["events"], events)
        ops = [e for (_, thread), list_ in spans.items() if thread == "XLA Ops" for e in list_]
        leaves = [e for e in ops if e["name"] != "while.5"]
        self.assertEqual(said["kernels"], len(leaves))
        kernels = {row["name"]: row for row in json.loads(self.ok("table", "--format", "json", path))["rows"]}
        self.assertEqual(kernels["fusion.3"]["count"], sum(e["name"] == "fusion.3" for e in ops))
        self.assertEqual(kernels["copy-start.1"]["count"], 8)
        ranges = {}
        for r in said["device_ranges"]:
            ranges[r["name"]] = ranges.get(r["name"], 0) + r["count"]
        self.assertEqual(ranges, {"jit_decode": 8, "while.5": 8})
        self.assertEqual(said["verdict"], "compute-bound")  # a "convolution fusion" is a product
        self.assertEqual([c["name"] for c in said["collectives"]["kinds"]], ["all_reduce"])
        self.assertIn("Self TPU", self.ok("table", path))

    def test_ops_of_a_cpu(self):
        _, spans = self.lanes(self.paths["cpu"])
        said = self.explain(self.paths["cpu"])
        host = [e for e in spans["/host:CPU", "python"] if not e["name"].startswith("$")]
        self.assertEqual((said["ops"], said["kernels"]), (len(host), 0))
        self.assertEqual(said["host_verdict"], "compute-bound")
        self.assertIn("f.py(3): f", self.ok("explain", self.paths["cpu"]))

    def test_traces_without_categories_of_others_stay(self):
        path = os.path.join(self.out, "other.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": [xla_traces.name(1, "my program"),
                                       xla_traces.span(1, 2, "work", 0, 5, hlo_op="x", correlation_id=3)]}, file)
        said = self.explain(path)
        self.assertEqual((said["events"], said["ops"], said["kernels"]), (2, 0, 0))
        self.assertNotIn("XLA", json.dumps(said["health"]))

    def test_broken_details_give_no_numbers(self):
        document = xla_traces.gpu(2)
        for i, e in enumerate(document["traceEvents"]):
            if e and "kernel_details" in e.get("args", {}):
                e["args"]["kernel_details"] = ["", "grid:1,2", "regs:x grid:1,2,3,4 block:a,b,c", "grid:9999999999999999999,1,1"][i % 4]
            if e and "memcpy_details" in e.get("args", {}):
                e["args"]["memcpy_details"] = "size:-"
        path = os.path.join(self.out, "broken.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)
        result = run("explain", "--format", "json", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["kernels"], 6)


if __name__ == "__main__":
    unittest.main()
