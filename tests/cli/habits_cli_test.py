# SPDX-License-Identifier: Apache-2.0
"""Habits that all commands share, checked for every command that --help names (docs/command.md)."""
import json
import os
import re
import shutil
import subprocess
import unittest

from command import BINARY, CommandTest, run

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "torch")
TRACE = os.path.join(DATA, "linear_1024_32_64_eager.json.gz")
OTHER = os.path.join(DATA, "linear_1024_32_64_compile.json.gz")
SNAPSHOT = os.path.join(DATA, "..", "memory_snapshots", "train_protocol_5.pickle")

# Their result is one table.
ONE_TABLE = {("table",), ("check",), ("ops",)}

# An option that several commands have: one text, up to its default and what is special there.
SAME_DOC = {
    "--format": "text, json (one object on stdout) or markdown",
    "--device": "cpu or cuda",
    "--step": "only ProfilerStep#N: what it launched, and what ran during it",
    "--from": "only what happens at MS milliseconds or later",
    "--to": "only what happens before MS milliseconds",
    "--group-by-input-shape": "one row per op and shapes",
}


def blocks(text):
    """The options of --help: {"--out": ("-o,--out", "DIR [traces]", "folder of ...")}."""
    found = {}
    section = re.search(r"^Options:\n((?:  .*\n)*)", text, re.M).group(1)
    for block in re.findall(r"^  -.*\n(?:    +.*\n)*", section, re.M):
        # Doc begins two blanks behind the option, or on its own line.
        head, _, doc = block.strip().partition("  ") if "  " in block.strip() else (block.strip(), "", "")
        head, _, rest = head.partition("\n")
        names, _, meta = head.strip().partition(" ")
        doc = " ".join((rest + " " + doc).split())
        for name in names.split(","):
            found[name] = (names, meta.strip(), doc)
    return found


def leaves(path=()):
    text = run(*path, "--help").stdout
    section = re.search(r"^Subcommands:\n((?:  .*\n)*)", text, re.M)
    if section is None:
        yield path, text
        return
    for name in re.findall(r"^  (\S+)", section.group(1), re.M):
        yield from leaves((*path, name))


class Habits(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.helps = dict(leaves())
        cls.options = {path: blocks(text) for path, text in cls.helps.items()}
        cls.has_engine = ("profile", "mlp") in cls.helps

    def test_every_command_has_help_with_an_example(self):
        self.assertGreaterEqual(len(self.helps), 7)
        for path, text in self.helps.items():
            self.assertIn("Example: epilogue " + path[0], text, path)
            self.assertIn("--help", self.options[path], path)

    def test_an_option_means_the_same_everywhere(self):
        for path, options in self.options.items():
            self.assertEqual(options["--format"][1], "FORMAT [text]", path)
            for name, doc in SAME_DOC.items():
                if name == "--format" and path in ONE_TABLE:
                    doc = doc.replace(" or markdown", ", markdown or csv")
                if name in options:
                    self.assertEqual(options[name][2], doc, (path, name))
            if "--threads" in options:
                self.assertEqual(options["--threads"][1], "N [all processors]", path)
            self.assertEqual(len({"--step", "--from", "--to"} & set(options)) % 3, 0, path)

    def test_out_is_a_folder_with_a_tag_or_a_file_that_is_required(self):
        kinds = {}
        for path, options in self.options.items():
            if "--out" not in options:
                self.assertNotIn("-o", options, path)
                self.assertNotIn("--tag", options, path)
                continue
            names, meta, doc = options["--out"]
            self.assertTrue(names.startswith("-o,--out"), path)
            if meta.startswith("DIR"):
                kinds[path] = "folder"
                self.assertRegex(doc, r"^folder of .*; made if missing$", path)
                default = "runs/DATA" if path == ("train",) else "traces"
                self.assertEqual(meta, f"DIR [{default}]", path)
                self.assertRegex(options["--tag"][1], r"^NAME \[", path)
            else:
                kinds[path] = "file"
                self.assertTrue(meta.startswith("FILE"), path)
                self.assertTrue(doc.endswith("; its folder is made if missing"), path)
                self.assertNotIn("--tag", options, path)
        self.assertEqual(kinds[("report",)], "file")
        if self.has_engine:
            self.assertEqual(kinds[("profile", "mlp")], "folder")

    def test_out_and_tag_are_refused_in_the_same_words(self):
        for path, options in self.options.items():
            command = " ".join(("epilogue", *path))
            see = f" (see {command} --help)"
            if "--out" in options:
                # train's alias is as good a name.
                for name in options["--out"][0].split(","):
                    self.assertEqual(self.misuse(*path, name, ""),
                                     f"{command}: --out: expected a path, got ''{see}")
            if "--tag" in options:
                self.assertEqual(self.misuse(*path, "--tag", "a/b"), f"{command}: --tag: expected a "
                                 f"file name without '/', got 'a/b'{see}")

    def written(self):
        return sorted(os.path.relpath(os.path.join(folder, file), self.out)
                      for folder, _, files in os.walk(self.out) for file in files)

    def test_out_says_where_and_tag_what_name(self):
        if not self.has_engine:
            self.skipTest("this build has no engine")
        folder = os.path.join(self.out, "new", "folder")
        where = ("-o", folder, "--tag", "first", "--format", "json")
        profile = json.loads(self.ok("profile", "linear", "--batch", "4", *where))
        bench = json.loads(self.ok("bench", "matmul-add", "--sweep", "--sizes", "8", "--seconds",
                                   "0.01", "--dtype", "f32", *where))
        train = json.loads(self.ok("train", self.table(), "--epochs", "1", *where))
        self.assertEqual([profile["tag"], bench["tag"], train["tag"]], ["first"] * 3)
        files = self.written()
        for name in ("first.json.gz", "first.txt", "first.svg", "first.md",
                     "first/model.safetensors", "first/metrics.jsonl"):
            self.assertIn("new/folder/" + name, files)
        predicted = os.path.join(self.out, "other", "p.csv")
        self.ok("predict", os.path.join(folder, "first", "model.safetensors"), self.table(), "-o",
                predicted)
        self.assertTrue(os.path.exists(predicted))

    def test_a_report_makes_its_folder(self):
        page = os.path.join(self.out, "new", "page.html")
        self.ok("report", TRACE, "-o", page)
        self.assertTrue(os.path.exists(page))

    def table(self):
        path = os.path.join(self.out, "table.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("a,b,kind\n" + "".join(f"{i},{i % 3},{'xy'[i % 2]}\n" for i in range(40)))
        return path

    def parts(self):
        folder, parts = os.path.join(self.out, "ranks"), os.path.join(self.out, "parts")
        os.mkdir(folder)
        for rank in range(2):
            shutil.copy(TRACE, os.path.join(folder, f"rank{rank}.json.gz"))
        self.ok("explain", folder, "--shard", "1/1", "--parts", parts)
        return parts

    def arguments(self):
        """One quick call of each command. A new command must join."""
        calls = {("table",): [TRACE], ("explain",): [TRACE], ("diff",): [TRACE, OTHER],
                 ("check",): [TRACE, "kernels_per_step >= 0"], ("name",): ["sgemm_kernel"],
                 ("report",): [TRACE, "-o", os.path.join(self.out, "r.html")], ("serve",): None,
                 ("merge",): [self.parts()],
                 ("memory",): [SNAPSHOT, "--against", SNAPSHOT, "--page", os.path.join(self.out, "m.html")]}
        if not self.has_engine:
            return calls
        small = ["--batch", "2", "--dtype", "f32"]
        mlp = [*small, "--seq", "2", "--dim", "8", "--hidden", "16"]
        out = ["--out", self.out]
        bench = ["--seconds", "0.01"]
        model = os.path.join(self.out, "first", "model.safetensors")
        self.ok("train", self.table(), "--epochs", "1", "--tag", "first", *out)
        calls.update({
            ("profile", "matmul-add"): ["--size", "8", *out], ("profile", "linear"): [*small, *out],
            ("profile", "mlp"): [*mlp, *out], ("profile", "train-step"): [*mlp, *out],
            ("compile", "matmul-add"): ["--size", "8"], ("compile", "linear"): small,
            ("compile", "mlp"): mlp, ("bench", "matmul-add"): ["--size", "8", *bench],
            ("bench", "linear"): [*small, *bench], ("bench", "mlp"): [*mlp, *bench],
            ("bench", "ladder"): ["--rows", "3", "--dim", "8", "--hidden", "16", *bench],
            ("bench", "portability"): ["--quick", "--quiet-only", "--levels", "baseline",
                                       "--dtypes", "f32", "--rounds", "3", "--seconds", "0.001"],
            ("train",): [self.table(), "--epochs", "1", "--tag", "second", *out],
            ("predict",): [model, self.table(), "-o", os.path.join(self.out, "p.csv")],
            ("tour",): ["--quick", "--tag", "t", *out], ("ops",): [], ("info",): [],
            ("advise",): None})  # it needs torch
        return calls

    def test_every_command_gives_json_with_its_schema_version(self):
        calls = self.arguments()
        self.assertEqual(set(calls), set(self.helps))
        for path, arguments in calls.items():
            if arguments is None:
                continue
            result = run(*path, *arguments, "--format", "json")
            if path == ("tour",) and "dataset-fashion-mnist" in result.stderr:
                continue
            # bench's answer may be no: then it has said so on stderr or in its JSON.
            self.assertIn(result.returncode, (0, 1) if path[0] == "bench" else (0,),
                          (path, result.stderr))
            if result.returncode == 1 and not result.stdout:
                continue
            answer = json.loads(result.stdout)
            for one in answer if isinstance(answer, list) else [answer]:
                self.assertEqual(one["schema_version"], 1, path)
                self.assert_snake_case(one, path)

    def assert_snake_case(self, value, path):
        # Names that users chose are keys too, in these.
        data = {"categories", "config", "missing_values", "metadata", "fields", "shape"}
        for key, below in value.items():
            self.assertRegex(key, r"^[a-z0-9_]+$", path)
            if key not in data:
                for one in below if isinstance(below, list) else [below]:
                    if isinstance(one, dict):
                        self.assert_snake_case(one, path)

    def test_serve_gives_json_with_its_schema_version(self):
        server = subprocess.Popen([BINARY, "serve", self.out, "--port", "0", "--format", "json"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            text = ""
            while not text.endswith("}\n"):
                line = server.stdout.readline()
                self.assertTrue(line, text)
                text += line
            self.assertEqual(json.loads(text)["schema_version"], 1)
        finally:
            server.kill()
            server.communicate()


if __name__ == "__main__":
    unittest.main()
