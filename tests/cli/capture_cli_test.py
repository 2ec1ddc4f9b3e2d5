# SPDX-License-Identifier: Apache-2.0
"""--capture of explain, table, diff and report: kernels of replayed graphs under the ops that captured them."""
import base64
import gzip
import json
import os
import re
import unittest

import graph_traces
from command import CommandTest, run

TIMES = ("count", "self_device_us", "device_total_us")


class CaptureTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.eager = self.write("eager", graph_traces.eager())
        self.graphs = self.write("graphs", graph_traces.replays(3))

    def write(self, name, trace):
        return graph_traces.write(os.path.join(self.out, name + ".json"), trace)

    def json(self, *args):
        return json.loads(self.ok(*args, "--format", "json"))

    def rows(self, *args):
        return {row["name"]: row for row in self.json("table", *args)["rows"] if row["device_type"] == "CPU"}

    def test_the_table_has_the_eager_runs_ops_times_the_replays(self):
        once, all = self.rows(self.eager), self.rows(self.graphs, "--capture", self.eager)
        for op in ("aten::linear", "aten::addmm", "aten::gelu"):
            for key in TIMES:
                self.assertAlmostEqual(all[op][key], 3 * once[op][key], places=6, msg=f"{op} {key}")
            self.assertEqual((all[op]["captured_count"], all[op]["cpu_total_us"]), (all[op]["count"], 0))
        self.assertEqual(self.json("table", self.graphs, "--capture", self.eager)["captured_pct"], 100)
        plain = self.json("table", self.graphs)
        self.assertNotIn("captured_pct", plain)
        self.assertEqual([r["name"] for r in plain["rows"] if r["device_type"] == "CPU"], ["cudaGraphLaunch"])
        text = self.ok("table", self.graphs, "--capture", self.eager)
        self.assertIn("100 % of the time of replayed graphs is booked to the ops that captured it.", text)
        self.assertIn("aten::addmm", text)
        shapes = self.rows(self.graphs, "--capture", self.eager, "--group-by-input-shape")["aten::addmm"]
        self.assertEqual((shapes["input_shapes"], shapes["count"]), ("[[8], [4, 16], [16, 8]]", 12))

    def test_a_difference_is_of_ops(self):
        faster = self.write("faster", graph_traces.replays(3, 0.5))
        plain = self.json("diff", self.graphs, faster)
        self.assertEqual(plain["captured_pct"], [None, None])
        self.assertFalse([p for p in plain["parts"] if "aten::" in p["what"]])
        once = self.json("diff", self.graphs, faster, "--capture", self.eager)
        each = self.json("diff", "--capture", self.eager, self.graphs, faster, "--capture", self.eager)
        self.assertEqual(once, each)
        self.assertEqual(once["captured_pct"], [100, 100])
        of_addmm = sum(p["delta_us"] for p in once["parts"] if p["what"].startswith("aten::addmm"))
        self.assertAlmostEqual(of_addmm, -3 * 4 * 15)
        self.assertAlmostEqual(sum(p["delta_us"] for p in once["parts"]), once["wall_us"][1] - once["wall_us"][0])
        self.assertIn("the op that captured them, by time: no graph replayed -> 100 %",
                      self.ok("diff", self.eager, self.graphs, "--capture", self.eager))

    def test_the_page_has_the_same(self):
        page = os.path.join(self.out, "page.html")
        self.ok("report", self.graphs, "--against", self.graphs, "--capture", self.eager, "-o", page)
        with open(page, encoding="utf-8") as f:
            text = re.search('id="data-report">([^<]*)</script>', f.read()).group(1)
        data = json.loads(gzip.decompress(base64.b64decode(text)))
        self.assertEqual(data["explanation"], self.json("explain", self.graphs, "--capture", self.eager))
        key = lambda row: (row["name"], row["device_type"])
        self.assertEqual(sorted(data["averages"]["rows"], key=key),
                         sorted(self.json("table", self.graphs, "--capture", self.eager)["rows"], key=key))
        self.assertEqual({k["op"] for k in data["kernels"]}, {"aten::addmm", "aten::gelu"})
        self.assertEqual(data["diff"], self.json("diff", self.graphs, self.graphs, "--capture", self.eager))
        rows = {r["name"]: r for r in data["averages"]["rows"]}
        self.assertEqual(rows["aten::addmm"]["captured_count"], 12)

    def test_misuse(self):
        nothing = run("table", self.eager, "--capture", self.eager)
        self.assertEqual(nothing.returncode, 0)
        self.assertIn("replays no graph, so that the capture names nothing", nothing.stderr)
        self.assertIn("replays no graph", run("diff", self.eager, self.eager, "--capture", self.eager).stderr)
        for command in (("table", self.graphs), ("diff", self.graphs, self.graphs), ("explain", self.graphs)):
            self.assertIn("nothere.json: cannot read", self.misuse(*command, "--capture", "nothere.json"))
        three = ("--capture", self.eager) * 3
        self.assertIn("expected one capture of both traces or one of each, got 3",
                      self.misuse("diff", self.graphs, self.graphs, *three))
        ranks = os.path.join(self.out, "ranks")
        os.mkdir(ranks)
        for rank in range(2):
            self.write(f"ranks/rank{rank}", graph_traces.eager())
        for command in (("explain", ranks), ("report", ranks, "-o", os.path.join(self.out, "p.html"))):
            self.assertIn("expected one trace beside a capture, got 2 of the folder", self.misuse(*command, "--capture", self.eager))


if __name__ == "__main__":
    unittest.main()
