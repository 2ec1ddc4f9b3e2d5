# SPDX-License-Identifier: Apache-2.0
"""The Debian package: package_test.py BUILD_DIR CPACK VERSION. Made, listed, unpacked, run."""
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD_DIR, CPACK, VERSION = sys.argv[1:4]
del sys.argv[1:4]
TRACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "torch",
                     "linear_1024_32_64_eager.json.gz")
EXIT_SKIPPED = 77
FILES = {
    "usr/bin/epilogue",
    "usr/share/bash-completion/completions/epilogue",
    "usr/share/doc/epilogue/changelog.Debian.gz",
    "usr/share/doc/epilogue/changelog.gz",
    "usr/share/doc/epilogue/copyright",
    "usr/share/fish/vendor_completions.d/epilogue.fish",
    "usr/share/man/man1/epilogue.1.gz",
    "usr/share/zsh/vendor-completions/_epilogue",
}


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=True).stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        said(CPACK, "--config", os.path.join(BUILD_DIR, "CPackConfig.cmake"), "-G", "DEB", "-B",
             cls.folder.name)
        found = [name for name in os.listdir(cls.folder.name) if name.endswith(".deb")]
        assert len(found) == 1, found
        cls.package = os.path.join(cls.folder.name, found[0])
        cls.root = os.path.join(cls.folder.name, "root")
        said("dpkg-deb", "-x", cls.package, cls.root)

    def test_its_name_says_version_and_architecture(self):
        self.assertRegex(os.path.basename(self.package), rf"^epilogue_{re.escape(VERSION)}-1_\w+\.deb$")

    def test_it_holds_the_command_and_its_documents_alone(self):
        lines = said("dpkg-deb", "-c", self.package).splitlines()
        files = {line.split()[5].removeprefix("./") for line in lines if not line.startswith("d")}
        self.assertEqual(files, FILES)
        for line in lines:
            executable = line.startswith("d") or line.endswith("/usr/bin/epilogue")
            self.assertIn("rwxr-xr-x" if executable else "rw-r--r--", line)
            self.assertIn(" root/root ", line)

    def test_its_dependencies_are_those_of_the_binary(self):
        depends = said("dpkg-deb", "-f", self.package, "Depends")
        for name in ("libc6", "libfmt", "libsimdjson", "libisal", "libsqlite3", "zlib1g"):
            self.assertIn(name, depends)
        self.assertNotIn("-dev", depends)
        self.assertEqual(said("dpkg-deb", "-f", self.package, "Section").strip(), "devel")

    def test_the_binary_is_stripped_and_runs_from_there(self):
        binary = os.path.join(self.root, "usr/bin/epilogue")
        self.assertNotIn(".symtab", said("readelf", "-SW", binary))
        self.assertEqual(said(binary, "--version"), f"epilogue {VERSION}\n")
        self.assertIn("aten::addmm", said(binary, "explain", TRACE))

    def test_man_page_and_completion_are_this_commands(self):
        binary = os.path.join(self.root, "usr/bin/epilogue")
        with gzip.open(os.path.join(self.root, "usr/share/man/man1/epilogue.1.gz"), "rt") as page:
            self.assertEqual(page.read(), said(binary, "help-files", "man"))
        for kind, path in (("bash", "bash-completion/completions/epilogue"),
                           ("fish", "fish/vendor_completions.d/epilogue.fish"),
                           ("zsh", "zsh/vendor-completions/_epilogue")):
            with open(os.path.join(self.root, "usr/share", path), encoding="utf-8") as file:
                self.assertEqual(file.read(), said(binary, "help-files", kind))

    def test_lintian_has_no_errors(self):
        if shutil.which("lintian") is None:
            self.skipTest("lintian is not installed")
        result = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", self.package],
                                capture_output=True, text=True, timeout=500, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    for tool in ("dpkg-deb", "dpkg-shlibdeps", "file"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed")
            sys.exit(EXIT_SKIPPED)
    unittest.main()
