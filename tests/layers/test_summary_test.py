# SPDX-License-Identifier: Apache-2.0
"""test_summary.py on hand-written results."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "test_summary.py"

FAILED = '<testcase name="{}" status="fail"><failure message="Timeout"/></testcase>'
GTEST = """<testsuites><testsuite>
<testcase name="A" classname="S" status="run" result="completed"/>
<testcase name="B" classname="S" status="run" result="completed"/>
<testcase name="C" classname="S" status="run" result="skipped">
  <skipped message="a_test.cpp:7&#x0A;no data set&#x0A;"/></testcase>
<testcase name="D" classname="S" status="notrun" result="suppressed"/>
{}
</testsuite></testsuites>"""
BAD = '<testcase name="E" classname="S" status="run"><failure message="no"/></testcase>'


def summarise(cases, **gtest):
    with tempfile.TemporaryDirectory() as folder:
        junit = f"<testsuite>{''.join(cases)}</testsuite>"
        Path(folder, "ctest.junit").write_text(junit, encoding="utf-8")
        for name, text in gtest.items():
            Path(folder, name + ".xml").write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True,
                              check=False)
    return done.returncode, done.stdout.splitlines()


class TestSummary(unittest.TestCase):
    def test_single_tests_are_counted(self):
        code, lines = summarise(['<testcase name="a" status="run"/>',
                                 '<testcase name="script" status="run"/>'], a=GTEST.format(""))
        self.assertEqual(code, 0)
        self.assertEqual(lines, ["skipped: a: S.C: no data set", "3 passed, 0 failed, 1 skipped"])

    def test_a_failure_is_named(self):
        code, lines = summarise([FAILED.format("a")], a=GTEST.format(BAD))
        self.assertEqual(code, 1)
        self.assertEqual(lines[-2:], ["failed: a: S.E", "2 passed, 1 failed, 1 skipped"])

    def test_a_crash_after_the_last_test_is_a_failure(self):
        code, lines = summarise([FAILED.format("a")], a=GTEST.format(""))
        self.assertEqual((code, lines[-1]), (1, "2 passed, 1 failed, 1 skipped"))

    def test_a_time_out_has_no_single_tests(self):
        code, lines = summarise([FAILED.format("a")])
        self.assertEqual((code, lines), (1, ["failed: a: Timeout",
                                             "0 passed, 1 failed, 0 skipped"]))

    def test_a_skipped_script(self):
        code, lines = summarise(['<testcase name="a" status="notrun"><skipped/></testcase>',
                                 '<testcase name="b" status="run"/>'])
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"))

    def test_a_skipped_script_may_say_why(self):
        _, lines = summarise(['<testcase name="a" status="notrun"><skipped/>'
                              '<system-out>skipped: no index\n</system-out></testcase>'])
        self.assertEqual(lines[0], "skipped: a: no index")

    def test_nothing_at_all_is_a_failure(self):
        self.assertEqual(summarise([]), (1, ["0 passed, 0 failed, 0 skipped"]))


if __name__ == "__main__":
    unittest.main()
