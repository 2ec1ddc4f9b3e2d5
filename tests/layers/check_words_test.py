# SPDX-License-Identifier: Apache-2.0
"""check_words.py on small trees, good and bad."""
import unittest

from small_tree import run


class CheckWords(unittest.TestCase):
    def check(self, path, line, word):
        code, out = run("check_words.py", {path: "first\n" + line + "\n"})
        self.assertEqual(code, 1, line)
        self.assertTrue(out.startswith(f"{path}:2: "), out)
        self.assertIn(f"'{word}'", out)

    def test_sentences_without_a_subject_are_found(self):
        for path, line, word in (
                ("src/ops/a.cpp", "// Of every op its rule.", "Of"),
                ("src/ops/a.h", "  int x;  // one. Of two the first.", "Of"),
                ("tools/a.cpp", "// What a command prints.", "What"),
                ("scripts/a.py", '"""What this script does."""', "What"),
                ("docs/a.md", "* What is left out", "What"),
                ("cmake/a.cmake", "# Of targets the first.", "Of"),
                ("tests/a_test.cpp", "// A tracer is told of it.", "told"),
                ("bench/a.cpp", "// `top`: as of explain.", "as of"),
                ("examples/a.cpp", "// What stands behind.", "What"),
                ("docs/a.md", "The verifier reads what stands there.", "what stands")):
            self.check(path, line, word)

    def test_subjects_and_words_that_look_alike_pass(self):
        for path, line in (("src/ops/a.cpp", "// Offsets of rows. Whatever comes is summed."),
                           ("docs/a.md", "## What it promises"),
                           ("docs/a.md", "A list of what it reads"),
                           ("src/ops/a.cpp", 'f("as of version 2");'),
                           ("tests/data/a.md", "// Of data"),
                           ("tests/golden/a.txt", "// Of data"),
                           ("src/ops/a.json", "// Of data")):
            self.assertEqual(run("check_words.py", {path: line, "src/a.cpp": ""}), (0, ""), line)

    def test_an_empty_tree_is_not_a_pass(self):
        self.assertEqual(run("check_words.py", {})[0], 1)


if __name__ == "__main__":
    unittest.main()
