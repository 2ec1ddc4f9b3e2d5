# SPDX-License-Identifier: Apache-2.0
"""advise: which Python it runs, with what, and what it says where that cannot be."""
import os
import stat
import unittest

from command import CommandTest, run


class Advise(CommandTest):
    def setUp(self):
        super().setUp()
        self.script = os.path.join(self.out, "model.py")
        with open(self.script, "w", encoding="utf-8") as file:
            file.write("model = None\n")

    def program(self, body):
        path = os.path.join(self.out, "python")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + body)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def test_it_hands_its_options_on(self):
        python = self.program('shift 2; echo "$@"; exit 3\n')
        result = run("advise", self.script, "--python", python, "--out", "a b.html", "--rounds", "4",
                     "--seconds", "0.5", "--tolerance", "0.01", "--format", "json", "--no-compile")
        self.assertEqual(result.returncode, 3)
        self.assertEqual(result.stdout.split("\n")[0],
                         f"{self.script} --format json --rounds 4 --seconds 0.5 --tolerance 0.01 --no-compile --out a b.html")

    def test_a_python_without_the_package_is_one_line(self):
        import sys
        line = self.misuse("advise", self.script, "--python", sys.executable,
                           env={"PYTHONPATH": self.out, "PYTHONNOUSERSITE": "1"})
        self.assertIn("expected a Python with epilogue, epilogue-torch and torch (--python names one), got", line)
        self.assertIn("No module named", line)

    def test_misuse(self):
        self.assertIn("cannot run /no/python: No such file", self.misuse("advise", self.script, "--python", "/no/python"))
        self.assertIn("does not exist", self.misuse("advise", "/no/script.py"))
        self.assertIn("rounds", self.misuse("advise", self.script, "--rounds", "0"))

    def test_help_has_an_example(self):
        self.assertIn("Example: epilogue advise", self.ok("advise", "--help"))


if __name__ == "__main__":
    unittest.main()
