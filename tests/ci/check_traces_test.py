# SPDX-License-Identifier: Apache-2.0
"""The action check-traces: check_traces_test.py EPILOGUE. Runs its script as a runner of GitHub does."""
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest

COMMAND = sys.argv.pop(1)
ACTION = pathlib.Path(__file__).resolve().parents[2] / ".github" / "actions" / "check-traces"


def write_trace(path, scale):
    """Eight steps of some 1000 us times `scale`, each with one op."""
    events, now = [], 1000.0
    for step in range(8):
        length = (1000 + 3 * (step % 4)) * scale
        common = {"ph": "X", "pid": 1, "tid": 1}
        events.append({**common, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": now, "dur": length})
        events.append({**common, "cat": "cpu_op", "name": "aten::mm", "ts": now + 1, "dur": length - 2})
        now += length + 10
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))


class Action(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("old", "new", "slow", "bin", "tmp"):
            (self.folder / name).mkdir()
        for number in (1, 2):
            write_trace(self.folder / "old" / f"{number}.json", 1)
            write_trace(self.folder / "new" / f"{number}.json", 1)
            write_trace(self.folder / "slow" / f"{number}.json", 1.5)

    def run_action(self, traces, baseline, **more):
        """Exit status, what the log says, the summary, the outputs."""
        files = {name: self.folder / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
        for file in files.values():
            file.write_text("")
        env = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "EPILOGUE_COMMAND": COMMAND,
               "EPILOGUE_TRACES": traces, "EPILOGUE_BASELINE": baseline, "RUNNER_TEMP": str(self.folder / "tmp"),
               **{name: str(file) for name, file in files.items()}, **more}
        done = subprocess.run(["bash", str(ACTION / "check_traces.sh")], cwd=self.folder, env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        return done.returncode, done.stdout, files["GITHUB_STEP_SUMMARY"].read_text(), outputs

    def fake_gh(self, status=0):
        gh = self.folder / "bin" / "gh"
        gh.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{self.folder}/gh"\n'
                      f'while [ "$1" != --body-file ]; do shift; done; cat "$2" >>"{self.folder}/gh"\nexit {status}\n')
        gh.chmod(gh.stat().st_mode | stat.S_IXUSR)

    def test_equal_traces_pass_and_the_summary_has_the_difference(self):
        status, log, summary, outputs = self.run_action("new/*.json", "old/*.json")
        self.assertEqual((status, outputs["result"]), (0, "pass"), log)
        self.assertIn("### Steps", summary)
        self.assertIn("### old/1.json and new/1.json", summary)
        self.assertEqual(pathlib.Path(outputs["report"]).read_text(), summary)

    def test_slower_steps_fail_with_the_ops_that_take_longer(self):
        status, log, summary, outputs = self.run_action("slow/1.json\n  slow/2.json", "old/1.json old/2.json")
        self.assertEqual((status, outputs["result"]), (1, "regression"), log)
        self.assertIn("aten::mm", summary)
        self.assertIn("::error title=epilogue check::", log)

    def test_a_tolerance_lets_it_pass(self):
        status, log, _, outputs = self.run_action("slow/*.json", "old/*.json", EPILOGUE_TOLERANCE="60")
        self.assertEqual((status, outputs["result"]), (0, "pass"), log)

    def test_without_a_baseline_nothing_is_compared_and_a_notice_says_so(self):
        for baseline in ("none/*.json", "none/1.json"):
            status, log, summary, outputs = self.run_action("new/*.json", baseline)
            self.assertEqual((status, outputs["result"]), (0, "no-baseline"), log)
            self.assertIn(f"::notice title=epilogue check::no baseline: '{baseline}' names no file", log)
            self.assertIn("There is no baseline yet", summary)

    def test_expressions_are_checked_of_each_trace_without_a_baseline_too(self):
        status, log, summary, outputs = self.run_action("new/*.json", "none", EPILOGUE_EXPRESSIONS="ops > 1000\n")
        self.assertEqual((status, outputs["result"]), (1, "regression"), log)
        self.assertIn("### new/1.json", summary)
        self.assertIn("### new/2.json", summary)
        status, log, _, _ = self.run_action("new/*.json", "none", EPILOGUE_EXPRESSIONS="\n  ops >= 1 \n ops < 1000\n")
        self.assertEqual(status, 0, log)

    def test_a_token_posts_the_report_as_a_comment(self):
        self.fake_gh()
        status, log, summary, _ = self.run_action("slow/*.json", "old/*.json", GH_TOKEN="t", EPILOGUE_PULL_REQUEST="7",
                                                  GITHUB_REPOSITORY="a/b")
        self.assertEqual(status, 1, log)
        said = (self.folder / "gh").read_text()
        self.assertTrue(said.startswith("pr\ncomment\n7\n--body-file\n"), said)
        self.assertIn("--repo\na/b\n", said)
        self.assertTrue(said.endswith(summary))

    def test_a_comment_that_is_refused_changes_nothing(self):
        self.fake_gh(status=1)
        status, log, _, _ = self.run_action("new/*.json", "old/*.json", GH_TOKEN="t", EPILOGUE_PULL_REQUEST="7")
        self.assertEqual(status, 0, log)
        self.assertIn("::warning title=epilogue check::the comment was refused", log)

    def test_no_comment_without_a_token(self):
        self.fake_gh()
        self.run_action("new/*.json", "old/*.json", EPILOGUE_PULL_REQUEST="7")
        self.assertFalse((self.folder / "gh").exists())

    def test_wrong_inputs_are_named(self):
        (self.folder / "new" / "broken.json").write_text("no trace")
        for traces, more, line in (
                ("", {}, "traces: expected one trace or more, got none for ''"),
                ("none/*.json", {}, "traces: expected one trace or more, got none for 'none/*.json'"),
                ("new/9.json", {}, "traces: expected a file, got 'new/9.json'"),
                ("new/1.json", {"EPILOGUE_TOLERANCE": "much"}, "tolerance: expected a percentage such as 2, got 'much'"),
                ("new/1.json", {"EPILOGUE_COMMAND": "no-epilogue"}, "expected the command epilogue, got 'no-epilogue'"),
                ("new/broken.json", {}, "broken.json")):
            with self.subTest(traces=traces, **more):
                status, log, _, _ = self.run_action(traces, "old/*.json", **more)
                self.assertEqual(status, 2, log)
                self.assertIn("::error title=epilogue check::", log)
                self.assertIn(line, log)

    def test_the_action_gives_the_script_what_it_reads(self):
        given = set(re.findall(r"^        (\w+): \$\{\{", (ACTION / "action.yml").read_text(), re.M))
        read = set(re.findall(r"\$\{(EPILOGUE_\w+|GH_TOKEN)", (ACTION / "check_traces.sh").read_text()))
        self.assertEqual(given, read)


if __name__ == "__main__":
    unittest.main()
