# SPDX-License-Identifier: Apache-2.0
"""The command epilogue as a package: the executable lies beside the libraries that came with it."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "epilogue")
    os.execv(program, [program, *sys.argv[1:]])
