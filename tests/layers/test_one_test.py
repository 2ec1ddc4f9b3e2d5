# SPDX-License-Identifier: Apache-2.0
"""test_one.py on a small tree: which tests match, what is built and run for them."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "test_one.py"
TREE = {
    "tests/ops/CMakeLists.txt": "epi_test(ops_test\n  SOURCES gelu_test.cpp sub/relu_test.cpp\n  DEPENDS ops)\n"
                                "epi_test(other_test SOURCES other_test.cpp)\n",
    "tests/ops/gelu_test.cpp": "TEST(Gelu, Edges) {\nTEST_P(Gelu,\n       Sizes) {\n",
    "tests/ops/sub/relu_test.cpp": "TEST_F(Relu, Edges) {\n",
    "tests/ops/other_test.cpp": "TYPED_TEST(Other, Sum) {\n",
    "tests/ops/lost_test.cpp": "TEST(Lost, One) {\n",
    "tests/cli/bench_cli_test.py": "class Bench(CommandTest):\n    def test_rows(self):\n    def helper(self):\n",
    "tests/python/test_diff.py": "def test_parts(x):\n    def test_inner():\nclass Diff:\n    def test_sum(self):\n",
    "tests/layers/words_test.py": "class Words(T):\n    def test_words(self):\n",
}


def listed(pattern):
    """(exit code, lines of stdout, stderr) of the script on TREE."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in TREE.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, SCRIPT, pattern, "--list", "--root", folder], capture_output=True,
                              text=True, check=False, env={"JOBS": "3"})
    return done.returncode, done.stdout.replace(sys.executable, "python3").splitlines(), done.stderr


class TestOne(unittest.TestCase):
    def test_a_name_builds_and_runs_its_target_alone(self):
        self.assertEqual(listed("Gelu.Edges"), (0, [
            "$ cmake --build build -j 3 --target ops_test",
            "$ build/tests/ops/ops_test --gtest_brief=1 --gtest_filter=Gelu.Edges:*/Gelu.Edges/*:Gelu/*.Edges"], ""))

    def test_a_pattern_may_match_several_files_and_kinds(self):
        code, lines, _ = listed("Edges|Other|Bench|test_sum|Words")
        self.assertEqual((code, lines), (0, [
            "$ cmake --build build -j 3 --target epilogue epilogue_bench epilogue_python ops_test other_test",
            "$ python3 tests/cli/bench_cli_test.py build/epilogue Bench.test_rows",
            "$ python3 tests/layers/words_test.py Words.test_words",
            "$ build/python-environment/bin/python -m pytest -q tests/python/test_diff.py::Diff::test_sum",
            "$ build/tests/ops/ops_test --gtest_brief=1 --gtest_filter=Gelu.Edges:*/Gelu.Edges/*:Gelu/*.Edges:"
            "Relu.Edges:*/Relu.Edges/*:Relu/*.Edges",
            "$ build/tests/ops/other_test --gtest_brief=1 --gtest_filter=Other.Sum:*/Other.Sum/*:Other/*.Sum"]))

    def test_a_file_is_a_pattern_too(self):
        code, lines, _ = listed("sub/relu_test")
        self.assertEqual((code, len(lines)), (0, 2))
        self.assertIn("Relu.Edges", lines[1])

    def test_a_pattern_without_tests_says_what_was_expected(self):
        self.assertEqual(listed("Gelu.Edgs"), (
            2, [], "test_one.py: expected a regular expression that matches one of 9 tests (Suite.Name, Class.test_name "
            "or a file under tests/), got 'Gelu.Edgs'; did you mean Gelu.Edges, Relu.Edges, Gelu.Sizes?\n"))
        self.assertIn("got ''", listed("")[2])
        code, _, err = listed("(")
        self.assertEqual(code, 2)
        self.assertIn("expected a regular expression, got '('", err)

    def test_a_test_of_no_target_is_named(self):
        self.assertEqual(listed("Lost"), (1, [], "test_one.py: expected an epi_test() that lists "
                                          "tests/ops/lost_test.cpp, got none\n"))


if __name__ == "__main__":
    unittest.main()
