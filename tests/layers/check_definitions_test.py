# SPDX-License-Identifier: Apache-2.0
"""check_definitions.py on small trees: what it refuses, and what it must let pass."""
import unittest

from small_tree import run as run_script


def run(files):
    return run_script("check_definitions.py", files)


def in_namespace(text):
    return "namespace epilogue::cpu {\n" + text + "\n}  // namespace epilogue::cpu\n"


class CheckDefinitions(unittest.TestCase):
    def expect_refusal(self, a, b, kind, name):
        code, out = run({"src/cpu/a.h": in_namespace(a), "src/cpu/b.h": in_namespace(b)})
        self.assertEqual(out, f"src/cpu/b.h: {kind} epilogue::cpu::{name} is defined in "
                              "src/cpu/a.h too\n")
        self.assertEqual(code, 1)

    def expect_silence(self, a, b):
        self.assertEqual(run({"src/cpu/a.h": in_namespace(a), "src/cpu/b.h": in_namespace(b)}),
                         (0, ""))

    def test_an_empty_tree_is_not_a_pass(self):
        self.assertEqual(run({})[0], 1)

    def test_constants(self):
        self.expect_refusal("inline constexpr int64_t kTile = 4096;  // floats",
                            "inline constexpr int64_t kTile = 1024;", "value", "kTile")
        self.expect_refusal("constexpr int kSizes[] = {1, 2};",
                            "inline constexpr std::array<int, 2> kSizes{1, 2};", "value", "kSizes")

    def test_types(self):
        self.expect_refusal("class Rows final : public Base {\n int count_;\n};",
                            "struct Rows {\n  const void* data = nullptr;\n};", "type", "Rows")
        self.expect_refusal("enum class Slot : size_t { a, b };", "enum class Slot { c };",
                            "type", "Slot")
        self.expect_refusal("template <class T>\nstruct Block { T* data; };",
                            "struct Block {};", "type", "Block")

    def test_aliases_and_inline_functions(self):
        self.expect_refusal("using Rows = int;", "using Rows = long;", "value", "Rows")
        self.expect_refusal("inline int one(int a) { return a; }",
                            "inline int one(int a) { return a + 1; }", "function", "one(int a)")

    def test_what_follows_a_body_is_still_seen(self):
        self.expect_refusal("inline int f(int a = int{1}) { if (a) { return 1; } return 2; }\n"
                            "struct X {};",
                            "template <class T = std::vector<int>>\nvoid g(T) {}\nstruct X {};",
                            "type", "X")

    def test_types_of_source_files_count(self):
        code, out = run({"src/a.cpp": in_namespace("struct Job { int a; };"),
                         "src/b.cpp": in_namespace("struct Job { long a; };")})
        self.assertEqual((code, out),
                         (1, "src/b.cpp: type epilogue::cpu::Job is defined in src/a.cpp too\n"))

    def test_unnamed_namespaces_are_the_files_own(self):
        text = "namespace {\nstruct Job {};\nconstexpr int kTile = 1;\n}\n"
        self.assertEqual(run({"src/a.cpp": in_namespace(text), "src/b.cpp": in_namespace(text)}),
                         (0, ""))

    def test_unnamed_namespaces_of_one_library(self):
        def in_unnamed(text):
            return in_namespace("namespace {\n" + text + "\n}  // namespace")
        pairs = [("struct Job { int a; };", "struct Job { long a; };", "Job"),
                 ("int f(int a) { return a; }", "int f(long a) { return 1; }", "f"),
                 ("std::function<int()> f(int a) { return {}; }",
                  "std::function<int(int)> f(long a) { return {}; }", "f"),
                 ("thread_local int count;", "constexpr int count = 1;", "count")]
        for a, b, name in pairs:
            files = {"src/cpu/a.cpp": in_unnamed(a), "src/cpu/x/b.cpp": in_unnamed(b),
                     "src/cpu/CMakeLists.txt": ""}
            self.assertEqual(run(files), (1, f"src/cpu/x/b.cpp: unnamed epilogue::cpu::{name} of "
                                             "src/cpu is defined in src/cpu/a.cpp too\n"))
            self.assertEqual(run(files | {"src/cpu/x/CMakeLists.txt": ""}), (0, ""))
        alias = in_unnamed("using Node = graph::Node;")
        self.assertEqual(run({"src/a/a.cpp": alias, "src/a/b.cpp": alias,
                              "src/a/CMakeLists.txt": ""}), (0, ""))

    def test_a_return_type_may_have_parentheses(self):
        text = "namespace {{\nstd::function<Tensor(int)> {}(int a) {{ return one; }}\n}}\n"
        self.assertEqual(run({"src/a/a.cpp": in_namespace(text.format("f")),
                              "src/a/b.cpp": in_namespace(text.format("g")),
                              "src/a/CMakeLists.txt": ""}), (0, ""))

    def test_other_namespaces_and_members_are_other_names(self):
        self.assertEqual(run({"src/a.h": "namespace epilogue::cpu { struct Rows {}; }",
                              "src/b.h": "namespace epilogue::cuda { struct Rows {}; }"}), (0, ""))
        self.expect_silence("struct A { struct Inner {}; static constexpr int kN = 1; };",
                            "struct B { struct Inner {}; static constexpr int kN = 2; };")

    def test_declarations_overloads_and_specialisations(self):
        self.expect_silence("struct Rows;\nint f(int a);\nextern const int kOne;",
                            "struct Rows;\nint f(int a);\nextern const int kOne;")
        self.expect_silence("inline int f(int a) { return a; }",
                            "inline int f(long a) { return 1; }")
        self.expect_silence("template <>\nstruct Of<int> {};", "template <>\nstruct Of<long> {};")

    def test_comments_and_strings_are_no_code(self):
        self.expect_silence('// struct Rows {};\ninline constexpr const char* a = "struct Rows {";',
                            "/* } */ struct Rows {};")

    def test_folders_that_replace_each_other(self):
        self.assertEqual(run({"src/backend/cuda/a.h": "namespace e { struct Device {}; }",
                              "src/backend/no_cuda/a.h": "namespace e { struct Device {}; }"}),
                         (0, ""))


if __name__ == "__main__":
    unittest.main()
