# SPDX-License-Identifier: Apache-2.0
"""epilogue report: the file, what it says, what it refuses."""
import base64
import gzip
import json
import os
import re
import unittest

from command import CommandTest, run

TRACE = {"traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 5,
     "args": {"External id": 1}},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 8,
     "dur": 20}]}


def block(page, name):
    text = re.search(f'id="data-{name}">([^<]*)</script>', page).group(1)
    return base64.b64decode(text, validate=True)


class Report(CommandTest):
    def setUp(self):
        super().setUp()
        self.trace = self.write("a.json", json.dumps(TRACE))
        self.page = os.path.join(self.out, "out", "a.html")

    def write(self, name, text):
        path = os.path.join(self.out, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def read_page(self):
        with open(self.page, encoding="utf-8") as f:
            return f.read()

    def report(self, *args):
        text = self.ok("report", *args, "-o", self.page)
        return text, json.loads(gzip.decompress(block(self.read_page(), "report")))

    def test_warns_of_metadata_that_may_be_credentials(self):
        secret = {**TRACE, "env": {"HF_TOKEN": "hf_abc", "HOME": "/root", "API_KEY": "",
                                  "TOKENIZERS_PARALLELISM": "false"},
                  "max_tokens": 512, "aws-secret-access-key": "abc"}
        trace = self.write("secret.json", json.dumps(secret))
        result = run("report", trace, "-o", self.page)
        self.assertEqual(result.returncode, 0)
        self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertIn("credentials: aws-secret-access-key, env.HF_TOKEN; --no-trace", result.stderr)
        for args in ((trace, "--no-trace"), (self.trace,)):
            self.assertEqual(run("report", *args, "-o", self.page).stderr, "")

    def test_page_carries_the_trace(self):
        text, data = self.report(self.trace, "--title", "One <b> title")
        self.assertIn("a.html: ", text)
        self.assertIn("the trace included", text)
        self.assertEqual(json.loads(gzip.decompress(block(self.read_page(), "trace"))), TRACE)
        self.assertEqual(data["title"], "One <b> title")
        self.assertIn("<title>One &lt;b&gt; title</title>", self.read_page())
        self.assertEqual(data["explanation"],
                         json.loads(self.ok("explain", self.trace, "--format", "json")))

    def test_trace_can_be_left_out(self):
        text, data = self.report(self.trace, "--no-trace")
        self.assertIn("without the trace", text)
        self.assertFalse(data["has_trace"])
        self.assertEqual(block(self.read_page(), "trace"), b"")

    def test_comparison_is_that_of_diff(self):
        other = self.write("b.json", json.dumps(TRACE).replace('"dur": 20', '"dur": 50'))
        _, data = self.report(other, "--against", self.trace)
        self.assertEqual(data["diff"], json.loads(self.ok("diff", self.trace, other, "--format", "json")))
        self.assertEqual(data["diff"]["wall_us"], [20.0, 50.0])

    def test_part_of_a_trace(self):
        _, data = self.report(self.trace, "--step", "3")
        self.assertEqual(data["timeline"]["events"], 2)
        self.assertIn("whole file", data["trace_note"])

    def test_json_outcome(self):
        outcome = json.loads(self.ok("report", self.trace, "-o", self.page, "--format", "json"))
        self.assertEqual(outcome["file"], self.page)
        self.assertEqual(outcome["bytes"], os.path.getsize(self.page))
        self.assertTrue(outcome["has_trace"])

    def write_ranks(self, count):
        """A folder with so many ranks, each with steps, an all-reduce in each, and a product."""
        folder = os.path.join(self.out, "ranks")
        os.makedirs(folder, exist_ok=True)
        for rank in range(count):
            events = []
            for step in range(3):
                at, id = 1000 * step, 2 * step + 1
                late = 300 if rank == 1 else 0
                events += [
                    {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1,
                     "ts": at, "dur": 1000},
                    *({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                       "ts": at + 1 + 3 * i, "dur": 2, "args": {"correlation": id + i}} for i in (0, 1)),
                    {"ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x64_tn", "pid": 0, "tid": 7,
                     "ts": at + 10, "dur": 390 + late, "args": {"correlation": id, "device": 0, "stream": 7}},
                    {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0,
                     "tid": 20, "ts": at + 400 + late, "dur": 400 - late,
                     "args": {"correlation": id + 1, "device": 0, "stream": 20, "Collective name": "allreduce",
                              "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float",
                              "Group size": count}}]
            with open(os.path.join(folder, f"rank{rank}.json"), "w", encoding="utf-8") as f:
                json.dump({"distributedInfo": {"rank": rank, "world_size": count},
                           "traceEvents": events}, f)
        return folder

    def test_page_of_ranks_has_all_that_explain_says(self):
        folder = self.write_ranks(4)
        text, data = self.report(folder)
        self.assertIn("without the trace", text)
        self.assertEqual(data["title"], "ranks")
        self.assertFalse(data["has_trace"])
        self.assertEqual(data["ranks"], json.loads(self.ok("explain", folder, "--format", "json")))
        self.assertEqual([s["last_rank"] for s in data["ranks"]["steps"]], [1, 1, 1])
        self.assertEqual([k["kind"] for k in data["kernels"]], ["gemm", "collective"])
        verdict = re.search('class="verdict-text">([^<]*)<', self.read_page()).group(1)
        self.assertEqual(verdict, "rank 1 arrives last: rank 3 waits 900 us in collectives")
        self.assertEqual(self.report(folder + "/", "--title", "Run 7")[1]["title"], "Run 7")

    def test_pages_of_ranks_are_those_of_their_traces(self):
        folder = self.write_ranks(4)
        text, data = self.report(folder, "--rank-pages", "--title", "Run 7")
        out = os.path.join(self.out, "out")
        pages = [f"a_ranks/rank_{rank:04}.html" for rank in range(4)]
        self.assertEqual(data["rank_pages"], pages)
        self.assertIn("a_ranks: 4 pages of ranks, ", text)
        self.assertEqual(sorted(os.listdir(out)), ["a.html", "a_ranks"])
        self.assertEqual(sorted(os.listdir(os.path.join(out, "a_ranks"))), [os.path.basename(p) for p in pages])
        for rank, page in enumerate(pages):
            with open(os.path.join(out, page), encoding="utf-8") as f:
                html = f.read()
            of_rank = json.loads(gzip.decompress(block(html, "report")))
            trace = os.path.join(folder, f"rank{rank}.json")
            self.assertEqual(of_rank["explanation"], json.loads(self.ok("explain", trace, "--format", "json")))
            self.assertEqual(of_rank["ranks_page"], "../a.html")
            self.assertEqual(of_rank["title"], f"Run 7: rank {rank}")
            with open(trace, encoding="utf-8") as f:
                self.assertEqual(json.loads(gzip.decompress(block(html, "trace"))), json.load(f))
        _, data = self.report(folder)
        self.assertEqual(data["rank_pages"], [])

    def test_pages_of_ranks_in_json_and_without_traces(self):
        folder = self.write_ranks(2)
        outcome = json.loads(self.ok("report", folder, "--rank-pages", "--no-trace", "-o", self.page, "--format", "json"))
        self.assertEqual((outcome["file"], outcome["has_trace"], outcome["note"]), (self.page, False, ""))
        self.assertEqual([p["rank"] for p in outcome["rank_pages"]], [0, 1])
        for page in outcome["rank_pages"]:
            self.assertEqual(page["bytes"], os.path.getsize(page["file"]))
            with open(page["file"], encoding="utf-8") as f:
                self.assertEqual(block(f.read(), "trace"), b"")

    def test_ranks_that_do_not_go_together_leave_no_page(self):
        folder = self.write_ranks(2)
        with open(os.path.join(folder, "rank1.json"), encoding="utf-8") as f:
            again = f.read()
        with open(os.path.join(folder, "rank9.json"), "w", encoding="utf-8") as f:
            f.write(again)
        self.assertIn("are both of rank 1", self.misuse("report", folder, "--rank-pages", "-o", self.page))
        self.assertEqual(os.listdir(os.path.join(self.out, "out")), [])
        self.assertIn("expected a folder with one trace for each rank, to write a page of each, got one trace",
                      self.misuse("report", self.trace, "--rank-pages", "-o", self.page))

    def test_credentials_of_any_rank_are_warned_of_once(self):
        folder = self.write_ranks(2)
        for rank in range(2):
            path = os.path.join(folder, f"rank{rank}.json")
            with open(path, encoding="utf-8") as f:
                trace = json.load(f)
            with open(path, "w", encoding="utf-8") as f:
                json.dump({**trace, "env": {"HF_TOKEN": "hf_abc"}}, f)
        result = run("report", folder, "--rank-pages", "-o", self.page)
        self.assertEqual((result.returncode, result.stderr.count("HF_TOKEN")), (0, 1))
        self.assertEqual(run("report", folder, "-o", self.page).stderr, "")

    def test_files_of_a_folder_that_are_no_traces_are_counted(self):
        folder = self.write_ranks(2)
        with open(os.path.join(folder, "broken.json"), "w", encoding="utf-8") as f:
            f.write("no JSON")
        result = run("report", folder, "-o", self.page)
        self.assertEqual(result.returncode, 0)
        self.assertIn("broken.json", result.stderr)
        data = json.loads(gzip.decompress(block(self.read_page(), "report")))
        self.assertEqual(len(data["ranks"]["left_out"]), 1)
        self.assertIn("broken.json: ", data["ranks"]["left_out"][0])
        finding = next(f for f in data["ranks"]["findings"] if f["id"] == "left-out-files")
        self.assertEqual(finding["title"], "1 file of the folder is left out: it cannot be read as a trace")

    def test_a_folder_of_one_trace_has_the_page_of_that_trace(self):
        folder = self.write_ranks(1)
        _, data = self.report(folder)
        self.assertTrue(data["has_trace"])
        self.assertNotIn("ranks", data)

    def test_misuse_of_folders(self):
        empty = os.path.join(self.out, "empty")
        os.mkdir(empty)
        self.assertIn("expected traces (*.json, *.json.gz, *.sqlite, *.pftrace), one per rank, got none",
                      self.misuse("report", empty, "-o", self.page))
        folder = self.write_ranks(2)
        self.assertIn("expected one trace to compare with another, got a folder of 2",
                      self.misuse("report", folder, "--against", self.trace, "-o", self.page))
        self.assertFalse(os.path.exists(self.page))

    def test_misuse(self):
        self.assertIn("--out", self.misuse("report", self.trace))
        self.assertIn("none.json", self.misuse("report", "none.json", "-o", self.page))
        self.assertIn("none.json", self.misuse("report", self.trace, "--against", "none.json",
                                               "-o", self.page))
        self.assertFalse(os.path.exists(self.page))

    def test_help_has_an_example(self):
        self.assertIn("Example: epilogue report", run("report", "--help").stdout)


if __name__ == "__main__":
    unittest.main()
