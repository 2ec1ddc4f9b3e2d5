# SPDX-License-Identifier: Apache-2.0
"""epilogue advise SCRIPT.py: advise() of the model that a script defines.

    python -m epilogue.torch.advise_script SCRIPT.py [--format json] [-o FILE]

The script defines ``model`` (an nn.Module) and ``inputs`` (a tensor, a tuple, or a dict of keyword
arguments), and for a training step ``optimizer``, and ``loss`` (a function of the model's result)
unless the result has a ``.loss``. It runs with ``__name__`` set to "epilogue", so that what stands
under ``if __name__ == "__main__"`` does not run.
"""

import argparse
import json
import os
import runpy
import sys
import typing

EXAMPLE = "example: epilogue advise bert.py -o advice.html"


def _arguments(words: "list[str]") -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="epilogue advise",
        description="Profiles the model that SCRIPT.py defines, tries what can be done for it on copies, checks that the "
        "results agree, and measures each change. The script defines `model` and `inputs`; for a training step also "
        "`optimizer`, and `loss` unless the model's result has a .loss.",
        epilog=EXAMPLE,
    )
    parser.add_argument("script", metavar="SCRIPT.py")
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text", help="what is printed (default text)")
    parser.add_argument("-o", "--out", metavar="FILE", help="also write the advice as an HTML page")
    parser.add_argument("--rounds", type=int, default=9, help="of each measurement (default 9)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of each setting in a round (default 0.1)")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes Inductor's minutes")
    parser.add_argument("--tolerance", type=float, help="relative L2 difference of results that is accepted (default by dtype)")
    return parser.parse_args(words)


def _fail(message: str) -> typing.NoReturn:
    print(f"epilogue advise: {message}", file=sys.stderr)
    raise SystemExit(2)


def _defined(path: str) -> "dict[str, typing.Any]":
    if not os.path.isfile(path):
        _fail(f"{path}: no such file")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    names = runpy.run_path(path, run_name="epilogue")
    missing = [name for name in ("model", "inputs") if name not in names]
    if missing:
        _fail(f"{path} defines no {' and no '.join(missing)}: expected `model` (an nn.Module) and `inputs` (a tensor, a tuple or a dict)")
    return names


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.part", path)


def main(words: "list[str] | None" = None) -> int:
    options = _arguments(sys.argv[1:] if words is None else words)
    try:
        from . import advise
    except ImportError as error:
        _fail(str(error))
    names = _defined(options.script)
    inputs = names["inputs"]
    keywords = inputs if isinstance(inputs, dict) else {}
    values = () if isinstance(inputs, dict) else inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    settings = {"rounds": options.rounds, "seconds": options.seconds, "tolerance": options.tolerance, "compile": not options.no_compile}
    try:
        advice = advise(names["model"], *values, loss=names.get("loss"), optimizer=names.get("optimizer"), **settings, **keywords)
    except (TypeError, ValueError) as error:
        _fail(f"{options.script}: {error}")
    if options.format == "json":
        print(json.dumps({"schema_version": 1, **advice.to_dict()}, indent=2))
    else:
        print(advice.to_markdown() if options.format == "markdown" else advice)
    if options.out:
        _write(options.out, advice.to_html())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
