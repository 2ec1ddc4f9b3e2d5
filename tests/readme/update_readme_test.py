# SPDX-License-Identifier: Apache-2.0
"""scripts/update_readme.py: what --check refuses, and how blocks are filled."""
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import update_readme  # noqa: E402

SOURCE = "tests/readme/update_readme_test.py"


def block(marker, body):
    return f"Text.\n\n<!-- {marker} -->\n```text\n{body}```\n<!-- end -->\n"


class Check(unittest.TestCase):
    def complaints(self, *blocks):
        return list(update_readme.complaints("x.md", "".join(blocks)))

    def test_full_blocks_and_equal_sources_pass(self):
        self.assertEqual(self.complaints(block("output: tour-mlp", "a\n"),
                                         block(f"output: {SOURCE}", (ROOT / SOURCE).read_text()),
                                         block("command: echo a", "$ echo a\na\n")), [])

    def test_each_defect_is_named(self):
        self.assertEqual(
            self.complaints(block("output: tour-mlp", ""), block(f"output: {SOURCE}", "old\n"),
                            block("output: figures", "1.00\n"),
                            block("command: echo a", "$ echo a\n"),
                            block("command: echo a", "$ echo b\nb\n"), "<!-- output: unfenced -->\n"),
            ["x.md: the block 'tour-mlp' is empty",
             f"x.md: the block '{SOURCE}' differs from the file",
             "x.md: the block 'figures' differs from what the pages' blocks give",
             "x.md: the block 'echo a' is empty",
             "x.md: the block 'echo a' shows another command",
             "x.md: a marker is not followed by a fenced text and <!-- end -->"])


class Pages(unittest.TestCase):
    def test_readme_is_filled_after_the_pages_that_its_figures_come_from(self):
        self.assertIn("docs/benchmarks.md", update_readme.DOCUMENTS)
        self.assertEqual(update_readme.DOCUMENTS[-1], "README.md")


class Fill(unittest.TestCase):
    def test_a_command_runs_with_the_builds_programs_and_the_tests_at_hand(self):
        command = f"ls {SOURCE} && echo \"${{PATH%%:*}}\" | grep -o build; printf '  a \\n\\n'"
        filled = update_readme.filled(block(f"command: {command}", ""), ROOT / "build", None)
        self.assertEqual(filled, block(f"command: {command}",
                                       f"$ {command}\n{SOURCE}\nbuild\n  a\n"))

    def test_a_command_that_fails_stops_the_script(self):
        for command in ("false", "false | cat"):
            with self.assertRaises(SystemExit):
                update_readme.shell(command, pathlib.Path(os.devnull))


if __name__ == "__main__":
    unittest.main()
