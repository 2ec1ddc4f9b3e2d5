# SPDX-License-Identifier: Apache-2.0
"""``python -m epilogue sql|mcp ...``: the commands that are Python's. ``epilogue sql`` runs this."""

import importlib
import sys

COMMANDS = ("sql", "mcp")


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        got = repr(sys.argv[1]) if len(sys.argv) > 1 else "nothing"
        print(f"python -m epilogue: expected one of {', '.join(COMMANDS)}, got {got}", file=sys.stderr)
        return 2
    return importlib.import_module(f".{sys.argv[1]}", "epilogue").main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
