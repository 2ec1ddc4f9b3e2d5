# SPDX-License-Identifier: Apache-2.0
"""Runs the command for the tests: result with stdout, stderr and exit code."""
import os
import subprocess
import sys
import tempfile
import unittest

BINARY = os.path.abspath(sys.argv.pop(1))

# Kept figures of this machine must not decide what a test sees, nor may a test change them.
os.environ["EPILOGUE_CACHE_DIR"] = "off"


def run(*args, env=None):
    return subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=280,
                          env={**os.environ, **(env or {})})


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = folder.name

    def ok(self, *args, **kwargs):
        result = run(*args, **kwargs)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        return result.stdout

    def misuse(self, *args, **kwargs):
        """Exit 2, nothing on stdout, one line on stderr; returns that line."""
        result = run(*args, **kwargs)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(result.stdout, "")
        lines = result.stderr.strip().splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        return lines[0]
