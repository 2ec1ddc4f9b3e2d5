# SPDX-License-Identifier: Apache-2.0
"""explain --shard and merge: the parts of a run joined are the run in one piece, bit for bit; damaged and foreign parts are refused."""
import json
import os
import random
import re
import shutil
import subprocess
import unittest

import rank_traces
from command import BINARY, CommandTest, run

EXPLAIN_PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/explain.md")

# Runs at once what Slurm would queue: a script, once for each task of its array and with the variables that Slurm sets, or the
# command of --wrap. A job that depends on one that failed does not start.
SBATCH = """#!/bin/sh
set -eu
while [ $# -gt 0 ]; do
  case $1 in
    --parsable) ;;
    --dependency=afterok:*) [ "${1#*:}" = 4711 ] || exit 1 ;;
    --wrap) exec sh -c "$2" >&2 ;;
    -*) echo "sbatch: unknown option $1" >&2; exit 1 ;;
    *)
      range=$(sed -n 's/^#SBATCH --array=//p' "$1")
      first=${range%-*} last=${range#*-}
      for i in $(seq "$first" "$last"); do
        SLURM_ARRAY_JOB_ID=4711 SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_MIN=$first SLURM_ARRAY_TASK_MAX=$last \\
          SLURM_ARRAY_TASK_COUNT=$((last - first + 1)) sh "$1" >&2
      done
      echo 4711 ;;
  esac
  shift
done
"""


class ShardTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.out, "run")
        rank_traces.write(self.folder, 8, 4)

    def shards(self, count, *more, folder=None, parts=None):
        parts = parts or os.path.join(self.out, f"parts{count}{''.join(more)}")
        for i in range(count):
            self.ok("explain", folder or self.folder, "--shard", f"{i + 1}/{count}", "--parts", parts, *more)
        return parts

    def same(self, folder, parts, *more):
        """explain and merge say the same, on stdout and stderr, in every format."""
        for form in (("text",), ("json",), ("markdown",), ("text", "--top", "-1")):
            whole = run("explain", folder, *more, "--format", *form)
            merged = run("merge", parts, "--format", *form)
            self.assertEqual(whole.returncode, 0, whole.stderr)
            self.assertEqual((merged.returncode, merged.stdout, merged.stderr), (0, whole.stdout, whole.stderr))
        return json.loads(run("merge", parts, "--format", "json").stdout)

    def test_parts_joined_are_the_run_bit_for_bit(self):
        for count in (1, 3, 8, 11):
            said = self.same(self.folder, self.shards(count))
            self.assertEqual([r["rank"] for r in said["ranks"]], list(range(8)))
            self.assertTrue(said["waits"])

    def test_the_example_for_slurm_runs_and_gives_the_page_of_the_run(self):
        with open(EXPLAIN_PAGE, encoding="utf-8") as page:
            blocks = re.findall(r"```sh\n(.*?)```", page.read(), re.S)
        script = next(b for b in blocks if "#SBATCH" in b)
        submit = next(b for b in blocks if "sbatch --parsable" in b)

        def here(text):
            return text.replace("/shared/run.html", f"{self.out}/run.html").replace("/shared/", f"{self.out}/")

        with open(os.path.join(self.out, "shards.sh"), "w", encoding="utf-8") as file:
            file.write(here(script))
        tools = os.path.join(self.out, "bin")
        os.mkdir(tools)
        for name, content in (("sbatch", SBATCH), ("epilogue", f'#!/bin/sh\nexec "{BINARY}" "$@"\n')):
            with open(os.path.join(tools, name), "w", encoding="utf-8") as file:
                file.write(content)
            os.chmod(os.path.join(tools, name), 0o755)
        done = subprocess.run(["sh", "-euc", here(submit)], cwd=self.out, capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stderr)
        parts = os.path.join(self.out, "parts")
        self.assertEqual(len(os.listdir(parts)), 64)
        self.assertTrue(os.path.exists(os.path.join(self.out, "run.html")))
        self.same(self.folder, parts)

    def test_findings_about_ddp_outlive_the_parts(self):
        folder = os.path.join(self.out, "ddp")
        os.mkdir(folder)
        for rank in range(2):
            events, ts = [], 0

            def add(name, dur, cat="user_annotation", tid=1):
                events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": {}})

            for step in range(2):
                start = ts
                for _ in range(4):
                    add("DistributedDataParallel.forward", 100)
                    add("gloo:broadcast", 60, tid=9)
                    ts += 60
                    add("aten::mm", 40, "cpu_op")
                    ts += 40
                    add("gloo:all_reduce", 100, tid=9)
                    ts += 100
                add("Optimizer.step#SGD.step", 50)
                ts += 50
                events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1,
                               "ts": start, "dur": ts - start, "args": {}})
            with open(os.path.join(folder, f"rank{rank}.json"), "w", encoding="utf-8") as file:
                json.dump({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}, file)
        said = self.same(folder, self.shards(2, folder=folder, parts=os.path.join(self.out, "ddp-parts")))
        ids = {f["id"] for f in said["findings"]}
        self.assertLessEqual({"repeated-reduction-of-ranks", "sent-buffers-of-ranks"}, ids)

    def test_the_page_is_the_same(self):
        parts = self.shards(3)
        pages = [os.path.join(self.out, name) for name in ("whole.html", "merged.html")]
        self.ok("report", self.folder, "-o", pages[0], "--title", "a run")
        self.ok("merge", parts, "--page", pages[1], "--title", "a run")
        texts = []
        for page in pages:
            with open(page, encoding="utf-8") as file:
                texts.append(file.read())
        self.assertEqual(texts[0], texts[1])

    def test_options_that_decide_what_is_read(self):
        self.same(self.folder, self.shards(3, "--step", "6"), "--step", "6")
        self.same(self.folder, self.shards(2, "--from", "1", "--to", "4"), "--from", "1", "--to", "4")

    def test_files_that_are_no_traces(self):
        for name in ("notes.json", "rank9999.json"):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write('{"a": 1}')
        said = self.same(self.folder, self.shards(4))
        self.assertEqual(len(said["left_out"]), 2)

    def test_ranks_that_do_not_say_which_they_are(self):
        for i in range(8):
            path = os.path.join(self.folder, f"rank{i:04}.json")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            start, end = text.index('"distributedInfo"'), text.index('"traceEvents"')
            with open(os.path.join(self.folder, "abcdefgh"[i] + ".json"), "w", encoding="utf-8") as file:
                file.write(text[:start] + text[end:])
            os.remove(path)
        self.same(self.folder, self.shards(3))

    def test_traces_of_different_runs_are_refused_alike(self):
        shutil.copy(os.path.join(self.folder, "rank0001.json"), os.path.join(self.folder, "rank1again.json"))
        parts = self.shards(3)
        self.assertEqual(self.misuse("merge", parts).split(": ", 2)[2].split(" (see")[0],
                         self.misuse("explain", self.folder).split(": ", 2)[2].split(" (see")[0])

    def test_groups_by_name_and_the_pipeline(self):
        said = json.loads(self.ok("explain", self.folder, "--format", "json"))
        groups = {g["name"]: g for g in said["groups"]}
        self.assertEqual({name: g["parallelism"] for name, g in groups.items()},
                         {"mesh_tp": "tensor", "mesh_pp": "pipeline", "mesh_dp": "data"})
        self.assertEqual(groups["mesh_tp"]["members"], ["[0, 1]", "[2, 3]", "[4, 5]", "[6, 7]"])
        self.assertEqual(groups["mesh_pp"]["members"], ["[0, 4]", "[1, 5]", "[2, 6]", "[3, 7]"])
        self.assertEqual(groups["mesh_pp"]["collectives"], ["send_recv"])
        # Python counts in the files themselves.
        total = {}
        sends, spans, idle = 0, 0, 0
        for i in range(8):
            with open(os.path.join(self.folder, f"rank{i:04}.json"), encoding="utf-8") as file:
                for e in json.load(file)["traceEvents"]:
                    name = e.get("args", {}).get("Process Group Description")
                    if e.get("cat") == "kernel" and name:
                        count, time, ranks = total.get(name, (0, 0, set()))
                        total[name] = (count + 1, time + e["dur"], ranks | {i})
        for name, (count, time, ranks) in total.items():
            self.assertEqual(groups[name]["count"], count)
            self.assertAlmostEqual(groups[name]["total_us"], time / len(ranks), delta=0.01)
        stages = said["pipeline"]["stages"]
        self.assertEqual([s["ranks"] for s in stages], [[0, 1, 2, 3], [4, 5, 6, 7]])
        for r in said["ranks"]:
            sends += sum(k["exposed_us"] for k in r["kinds"] if k["name"] == "send_recv")
            spans += r["span_us"]
            idle += r["device_time"]["idle_us"]
        self.assertAlmostEqual(said["pipeline"]["bubble_pct"], 100 * (sends + idle) / spans, places=6)
        finding, = (f for f in said["findings"] if f["id"] == "pipeline-bubbles")
        self.assertIn("2 stages", finding["title"])

    def test_a_run_without_names_has_no_groups(self):
        for i in range(8):
            path = os.path.join(self.folder, f"rank{i:04}.json")
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            del document["distributedInfo"]["pg_config"]
            for e in document["traceEvents"]:
                for key in ("Process Group Name", "Process Group Description", "Process Group Ranks"):
                    e.get("args", {}).pop(key, None)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(document, file)
        said = json.loads(self.ok("explain", self.folder, "--format", "json"))
        self.assertEqual((said["groups"], said["pipeline"]), ([], None))
        self.assertNotIn("Pipeline", self.ok("explain", self.folder))

    def test_parts_that_do_not_go_together(self):
        parts = self.shards(3)
        part = lambda i, of=parts, n=3: os.path.join(of, f"part-{i}-of-{n}.epart")
        self.assertIn("expected all 3 parts, got 2: 2 is missing", self.misuse("merge", part(1), part(3)))
        self.assertIn("are both part 1 of 3", self.misuse("merge", part(1), part(1)))
        self.assertIn("expected parts of one run", self.misuse("merge", part(1), part(1, self.shards(2), 2)))
        other = self.shards(3, "--step", "6")
        self.assertIn("expected the same options", self.misuse("merge", part(1), part(2, other)))
        rank_traces.write(self.folder, 9, 4)
        later = self.shards(3, parts=os.path.join(self.out, "later"))
        self.assertIn("expected the same files", self.misuse("merge", part(1), part(2, later)))
        self.assertIn("expected parts", self.misuse("merge", self.folder))
        self.assertIn("expected a part that epilogue explain --shard wrote",
                      self.misuse("merge", os.path.join(self.folder, "rank0000.json")))

    def test_shards_are_named_well_or_refused(self):
        for text in ("0/3", "4/3", "1", "1/", "/3", "a/b", "1/3x", "-1/3"):
            self.assertIn(f"expected a part such as 3/64, from 1/64 to 64/64, got '{text}'",
                          self.misuse("explain", self.folder, f"--shard={text}"))
        self.assertIn("expected a folder", self.misuse("explain", os.path.join(self.folder, "rank0000.json"), "--shard", "1/2"))
        self.assertIn("expected no --cpu", self.misuse("explain", self.folder, "--shard", "1/2", "--cpu", "here"))

    def test_one_trace_is_not_merged(self):
        folder = os.path.join(self.out, "one")
        os.mkdir(folder)
        shutil.copy(os.path.join(self.folder, "rank0000.json"), folder)
        self.assertIn("explain it by itself", self.misuse("merge", self.shards(2, folder=folder)))

    def test_damaged_parts_are_refused(self):
        parts = self.shards(2)
        path = os.path.join(parts, "part-1-of-2.epart")
        with open(path, "rb") as file:
            whole = file.read()
        rng = random.Random(3)
        for i in range(80):
            data = bytearray(whole)
            if i % 2:
                data = data[:rng.randrange(len(data))]
            else:
                data[rng.randrange(10, len(data))] ^= 1 << rng.randrange(8)
            with open(path, "wb") as file:
                file.write(data)
            line = self.misuse("merge", parts)
            self.assertIn("expected a part", line)


if __name__ == "__main__":
    unittest.main()
