# SPDX-License-Identifier: Apache-2.0
"""check_tests.py on small trees, good and bad."""
import unittest

from small_tree import run

HELPERS = """
inline void expect_one(int x) { EXPECT_EQ(x, 1); }
template <class T>
void twice(const T& x) const noexcept {
  expect_one(x);
}
struct Silent { int x = 0; };
struct Strict { ~Strict() { EXPECT_TRUE(done); } };
inline void quiet(int) {}
#define CHECK_ONE(x) \\
  EXPECT_EQ(x, 1)
"""
NAMESPACE = "namespace epilogue::a_test {\n"
PYTHON = """
import unittest
from helper import Base
class A(Base):
    def test_it(self):
        {}
"""


class CheckTests(unittest.TestCase):
    def check(self, body, expected, more=None):
        path = "tests/ops/a_test.cpp"
        text = f'#include "ops/helpers.h"\n{NAMESPACE}TEST(A, B) {{\n{body}\n}}\n}}\n'
        code, out = run("check_tests.py", {path: text, "tests/ops/helpers.h": HELPERS, **(more or {})})
        self.assertEqual((code, out), (0, "") if expected else
                         (1, f"{path}:3: A.B asserts nothing\n"), body)

    def test_assertions_and_helpers_that_assert_pass(self):
        for body in ("EXPECT_EQ(f(), 1);", "ASSERT_NO_THROW(f());", "if (f()) FAIL() << 1;",
                     "expect_one(f());", "for (int i : list) { twice(i); }", "Strict s;",
                     "CHECK_ONE(f());", "const auto check = [&](int x) { expect_one(x); };\ncheck(1);",
                     "if (!f()) ADD_FAILURE();"):
            self.check(body, True)

    def test_what_asserts_nothing_is_found(self):
        for body in ("", "f();", "quiet(1);", "Silent s;", "EXPECT_TRUE(true);", "SUCCEED();",
                     "ASSERT_EQ(1, 1);", "// EXPECT_EQ(f(), 1);", "/* EXPECT_EQ(f(), 1); */",
                     'f("EXPECT_EQ(x, 1);");', "elsewhere(1);", "EXPECT_EQ(x, x);"):
            self.check(body, False)

    def test_a_helper_may_lie_in_the_source_beside_a_header(self):
        elsewhere = {"tests/ops/other.h": "void elsewhere(int);\n",
                     "tests/ops/other.cpp": "void elsewhere(int x) { EXPECT_EQ(x, 1); }\n"}
        self.check("elsewhere(1);", False, elsewhere)
        text = f'#include "other.h"\n{NAMESPACE}TEST_F(A, B) {{ elsewhere(1); }}\n}}\n}}\n'
        self.assertEqual(run("check_tests.py", {"tests/ops/a_test.cpp": text, **elsewhere}), (0, ""))

    def test_each_file_has_its_namespace(self):
        body = "TEST(A, B) { EXPECT_EQ(f(), 1); }\n"
        for opening, line in (("namespace epilogue {\nnamespace {\n", 3), ("namespace {\n", 2), ("", 1),
                              ("namespace epilogue::b_test {\n", 2), (NAMESPACE + "}\nnamespace {\n", 4)):
            code, out = run("check_tests.py", {"tests/ops/a_test.cpp": opening + body})
            self.assertEqual((code, out), (1, f"tests/ops/a_test.cpp:{line}: expected the test in a "
                                              "namespace a_test\n"), opening)
        for opening in (NAMESPACE, NAMESPACE + "namespace {\n", NAMESPACE + "struct S { int f() { return 1; } };\n"):
            self.assertEqual(run("check_tests.py", {"tests/ops/a_test.cpp": opening + body + "}\n}\n"}), (0, ""), opening)

    def test_helpers_without_a_use_are_found(self):
        body = "TEST(A, B) { EXPECT_EQ(two(), 1); }\n"
        for helper, name in (("int one() { return 1; }\nint two() { return 2; }\n", "one"),
                             ("int two() { return 2; }\nstd::vector<int>& all_of(int x) {\n}\n", "all_of")):
            code, out = run("check_tests.py", {"tests/ops/a_test.cpp": NAMESPACE + helper + body + "}\n"})
            self.assertEqual(code, 1, helper)
            self.assertIn(f": nothing uses {name}\n", out)
        helper = "int one() { return 1; }\nint two() { return one(); }\n"
        self.assertEqual(run("check_tests.py", {"tests/ops/a_test.cpp": NAMESPACE + helper + body + "}\n"}), (0, ""))

    def test_python_methods_are_checked(self):
        helper = "class Base:\n    def ok(self):\n        self.assertTrue(self.run())\n"
        for body, code in (("self.assertEqual(f(), 1)", 0), ("self.ok()", 0), ("assert f()", 0),
                           ("f()", 1), ("pass", 1)):
            files = {"tests/cli/a_test.py": PYTHON.format(body), "tests/cli/helper.py": helper}
            self.assertEqual(run("check_tests.py", files)[0], code, body)

    def test_an_empty_tree_is_not_a_pass(self):
        self.assertEqual(run("check_tests.py", {})[0], 1)


if __name__ == "__main__":
    unittest.main()
