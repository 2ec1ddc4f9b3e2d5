# SPDX-License-Identifier: Apache-2.0
"""The man page and the completions say what --help says, and shells take them."""
import os
import re
import shutil
import subprocess
import unittest

from command import BINARY, CommandTest, run

KINDS = ("man", "bash", "zsh", "fish")


def help_of(path):
    result = run(*path, "--help")
    assert result.returncode == 0, result.stderr
    return result.stdout


DEVELOPERS = {("bench", "ladder"), ("bench", "portability")}


def section(text, title):
    found = re.search(rf"^{title}:\n((?:  .*\n)*)", text, re.M)
    return found.group(1) if found else ""


def subcommands(text):
    return re.findall(r"^  (\S+)", section(text, "Subcommands"), re.M)


def options(text):
    """The names of each option: [["-o", "--out"], ...]."""
    return [names.split(",") for names in re.findall(r"^  (-\S+)", section(text, "Options"), re.M)]


def all_paths(path=()):
    text = help_of(path)
    yield path, text
    for name in subcommands(text):
        yield from all_paths((*path, name))


class HelpFiles(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.paths = dict(all_paths())
        # Their options are another executable's: the files name the commands alone.
        for path in DEVELOPERS & cls.paths.keys():
            cls.paths[path] = ""
        cls.files = {kind: run("help-files", kind).stdout for kind in KINDS}

    def test_there_is_something_to_compare(self):
        self.assertGreaterEqual(len(self.paths), 8)
        self.assertIn(["--row-limit"], options(self.paths[("table",)]))
        self.assertIn(["-o", "--out"], options(self.paths[("report",)]))

    def test_the_man_page_has_every_option_and_its_words(self):
        page = self.files["man"].replace("\\-", "-")
        for path, text in self.paths.items():
            title = " ".join(("epilogue", *path))
            part = page if not path else re.search(
                rf"^\.SS {title}\n((?:(?!\.S[SH] ).*\n)*)", page, re.M).group(1)
            for names in options(text):
                entry = ".TP\n" + ", ".join(f"\\fB{n}\\fR" for n in names)
                self.assertIn(entry, part, f"{title}: {names}")

    def test_the_man_page_says_where_developers_benchmarks_are(self):
        said = "part of a build folder (target epilogue_bench), not of an installed command."
        there = DEVELOPERS & self.paths.keys()
        self.assertEqual(self.files["man"].count(said), len(there))
        for path in there:
            self.assertIn("Example: epilogue " + " ".join(path), self.files["man"].replace("\\-", "-"))

    def test_bash_has_every_command_and_option(self):
        for path, text in self.paths.items():
            title = " ".join(("epilogue", *path))
            about = re.search(rf"'{title}'\)\n      commands='(.*)'\n      options='(.*)'",
                              self.files["bash"])
            self.assertEqual(about.group(1).split(), subcommands(text))
            self.assertEqual(about.group(2).split(), [n for names in options(text) for n in names])

    def test_zsh_and_fish_have_every_option(self):
        for path, text in self.paths.items():
            name = "_".join(("_epilogue", *path))
            body = re.search(rf"^{name}\(\) {{\n(.*?)^}}", self.files["zsh"], re.M | re.S).group(1)
            lines = [line for line in self.files["fish"].splitlines()
                     if f'"{" ".join(("epilogue", *path))}"' in line]
            for names in options(text):
                for n in names:
                    self.assertRegex(body, rf"'\*{n}[=+]?\[", f"zsh: {path} {n}")
                    flag = f" -l {n[2:]} " if n.startswith("--") else f" -s {n[1:]} "
                    self.assertTrue(any(flag in line for line in lines), f"fish: {path} {n}")

    def test_they_are_the_same_each_time(self):
        for kind in KINDS:
            self.assertEqual(run("help-files", kind).stdout, self.files[kind])
            self.assertNotIn(os.path.dirname(BINARY), self.files[kind])

    def test_help_does_not_list_the_generator(self):
        self.assertNotIn("help-files", help_of(()))
        self.assertEqual(self.misuse("help-files", "csh"),
                         "epilogue help-files: KIND: expected man, bash, zsh or fish, got 'csh'")

    def write(self, kind, name):
        path = os.path.join(self.out, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.files[kind])
        return path

    def test_the_man_page_has_no_warnings(self):
        page = self.write("man", "epilogue.1")
        checked = []
        for tool in (["mandoc", "-Tlint", "-W", "warning"], ["groff", "-man", "-Tutf8", "-ww", "-z"]):
            if shutil.which(tool[0]) is None:
                continue
            checked.append(tool[0])
            result = subprocess.run([*tool, page], capture_output=True, text=True, timeout=60)
            # A date would differ between builds.
            lines = [line for line in (result.stdout + result.stderr).splitlines()
                     if 'missing date, using ""' not in line]
            self.assertEqual(lines, [])
        if not checked:
            self.skipTest("neither mandoc nor groff is installed")

    def bash(self, *words):
        """The words that bash offers for the last of `words`, in a folder with trace.json and runs/."""
        completion = self.write("bash", "completion.bash")
        work = os.path.join(self.out, "work")
        os.makedirs(os.path.join(work, "runs"), exist_ok=True)
        with open(os.path.join(work, "trace.json"), "w", encoding="utf-8"):
            pass
        script = (f'. "{completion}"; complete -p epilogue >/dev/null || exit 9; '
                  'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _epilogue; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        result = subprocess.run(["bash", "--norc", "-c", script, "bash", *words],
                                capture_output=True, text=True, timeout=60, cwd=work)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.split()

    @unittest.skipUnless(shutil.which("bash"), "bash is not installed")
    def test_bash_completes(self):
        self.assertEqual(self.bash("epilogue", ""), subcommands(self.paths[()]))
        self.assertEqual(self.bash("epilogue", "exp"), ["explain"])
        self.assertEqual(self.bash("epilogue", "table", "--row"), ["--row-limit"])
        self.assertEqual(self.bash("epilogue", "explain", "tr"), ["trace.json"])
        self.assertEqual(self.bash("epilogue", "serve", ""), ["runs"])
        self.assertEqual(self.bash("epilogue", "explain", "trace.json", "--format", ""),
                         ["text", "json", "markdown"])
        self.assertEqual(self.bash("epilogue", "explain", "trace.json", "--format", "=", "m"),
                         ["markdown"])
        self.assertEqual(self.bash("epilogue", "explain", "trace.json", "--format", "="),
                         ["text", "json", "markdown"])
        self.assertEqual(self.bash("epilogue", "table", "--row-limit", ""), [])

    def test_bash_completes_workloads(self):
        if ("profile", "mlp") not in self.paths:
            self.skipTest("this build has no engine")
        self.assertEqual(self.bash("epilogue", "profile", "t"), ["train-step"])
        self.assertEqual(self.bash("epilogue", "profile", "mlp", "--mode", ""),
                         ["eager", "compile", "fused"])
        self.assertEqual(self.bash("epilogue", "profile", "mlp", "--out", ""), ["runs"])
        self.assertEqual(self.bash("epilogue", "train", "f"), ["fashion-mnist"])
        self.assertCountEqual(self.bash("epilogue", "train", ""),
                              ["fashion-mnist", "runs", "trace.json"])

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_reads_it(self):
        path = self.write("zsh", "_epilogue")
        script = (f'autoload -Uz compinit; compinit -u -d "{self.out}/dump"; '
                  '[[ $_comps[epilogue] == _epilogue ]]')
        result = subprocess.run(["zsh", "-f", "-c", f'fpath=("{self.out}" $fpath); {script}'],
                                capture_output=True, text=True, timeout=60)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        subprocess.run(["zsh", "-n", path], check=True, timeout=60)

    def fish(self, line):
        path = self.write("fish", "epilogue.fish")
        home = {**os.environ, "HOME": self.out, "XDG_CONFIG_HOME": self.out}
        result = subprocess.run(["fish", "-N", "-c", f"source {path}; complete -C '{line}'"],
                                capture_output=True, text=True, timeout=60, cwd=self.out, env=home)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return [entry.split("\t")[0] for entry in result.stdout.splitlines()]

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish_completes(self):
        self.assertEqual(sorted(self.fish("epilogue ")), sorted(subcommands(self.paths[()])))
        self.assertEqual(self.fish("epilogue table --row"), ["--row-limit"])
        self.assertEqual(sorted(self.fish("epilogue explain x --format ")),
                         ["json", "markdown", "text"])


if __name__ == "__main__":
    unittest.main()
