#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wheels on other systems: wheels_test.py WHEELS WORK [SUITE...]

Installs each wheel of the folder WHEELS in roots of other releases, which debootstrap makes (minbase and python3-venv), without
a compiler and without a network, and runs `epilogue explain` on a trace there. Prints how long it took from the
wheel to the first finding. SUITE is one of bookworm, trixie, bullseye (Debian) and jammy (Ubuntu 22.04, where its keys
are: package ubuntu-keyring, or EPILOGUE_UBUNTU_KEYRING); by default bookworm, trixie and jammy. A root stays in WORK.

The ops of epilogue.torch need a torch: that of EPILOGUE_TORCH_PYTHON is mounted into the roots that have its version of Python.

Exit 1 if a wheel that the system takes does not work, or if no root takes a wheel; 77 if nothing could be tested: no
wheels, not root, no debootstrap, no archive.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TRACE = SOURCE / "tests" / "data" / "torch" / "mlp_geglu_rich_eager.json.gz"
FINDING = "one kernel could run aten::gelu + aten::mul"
UBUNTU_KEYS = os.environ.get("EPILOGUE_UBUNTU_KEYRING", "/usr/share/keyrings/ubuntu-archive-keyring.gpg")
UBUNTU_MIRROR = os.environ.get("EPILOGUE_UBUNTU_MIRROR", "http://archive.ubuntu.com/ubuntu")
CHROOT = shutil.which("chroot") or "/usr/sbin/chroot"
COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "ld")


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def debian_mirror():
    """The first archive of Debian that apt is configured for; "" if there is none."""
    if not shutil.which("apt-get"):
        return ""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages", "Origin: Debian"],
                            capture_output=True, text=True, check=False).stdout.split()
    return listed[0] if listed else ""


class Root:
    """A root of a release in a folder, and commands that run in it."""

    def __init__(self, suite, work):
        self.suite, self.path, self.mounts = suite, work / suite, []

    def make(self):
        """Whether it is there, made now or before."""
        if (self.path / "complete").exists():
            return True
        shutil.rmtree(self.path, ignore_errors=True)
        options, mirror = ["--include=python3-venv"], debian_mirror()
        if self.suite == "jammy":
            options = ["--components=main,universe", f"--keyring={UBUNTU_KEYS}", "--include=python3-venv"]
            mirror = UBUNTU_MIRROR
        with (self.path.parent / f"{self.suite}.log").open("w") as log:
            done = subprocess.run(["debootstrap", "--variant=minbase", *options, self.suite, str(self.path), mirror],
                                  stdout=log, stderr=log, check=False)
        if done.returncode == 0 and self.suite == "jammy":
            self.add_python("3.11")
        if done.returncode == 0:
            (self.path / "complete").touch()
        return done.returncode == 0

    def add_python(self, version):
        """A newer Python, from the updates of the release; without it the command alone is tested."""
        (self.path / "etc/apt/sources.list").write_text(
            "".join(f"deb {UBUNTU_MIRROR} {self.suite}{part} main universe\n" for part in ("", "-updates")))
        for command in (["update"], ["install", "-y", "--no-install-recommends", f"python{version}-venv"]):
            self.run("apt-get", "-qq", *command, DEBIAN_FRONTEND="noninteractive", PATH="/usr/sbin:/usr/bin:/sbin:/bin")

    def run(self, *command, **environment):
        """Runs a command in the root without the variables of this process; pip takes no package from a network."""
        settings = {"PATH": "/usr/bin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "EPILOGUE_CACHE_DIR": "off", "PIP_NO_INDEX": "1",
                    "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment}
        return subprocess.run([CHROOT, str(self.path), *map(str, command)], env=settings, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)

    def check(self, *command, **environment):
        """The output of a command that must succeed."""
        done = self.run(*command, **environment)
        if done.returncode:
            sys.exit(f"{self.suite}: {' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}")
        return done.stdout

    def mount(self, name, *what):
        """Mounts at /NAME of the root; whether that could be done."""
        if self.path / name in self.mounts:
            return True
        (self.path / name).mkdir(exist_ok=True)
        if subprocess.run(["mount", *what, str(self.path / name)], capture_output=True, check=False).returncode:
            return False
        self.mounts.append(self.path / name)
        return True

    def close(self):
        for folder in reversed(self.mounts):
            subprocess.run(["umount", str(folder)], check=True)


def torch_here():
    """(site-packages, version of Python such as "3.11") of a torch at hand, or None."""
    python = os.environ.get("EPILOGUE_TORCH_PYTHON", str(SOURCE / "build" / "torch" / "environment" / "bin" / "python"))
    ask = "import sys, torch; print(torch.__path__[0]); print('%d.%d' % sys.version_info[:2])"
    try:
        lines = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return None
    return str(pathlib.Path(lines[0]).parent), lines[1]


def install(root, python, environment, *wheels):
    """Seconds that it took to install wheels into a fresh environment; None if they are for another system or Python."""
    root.check("rm", "-rf", environment)
    begin = time.monotonic()
    root.check(python, "-m", "venv", environment)
    done = root.run(f"{environment}/bin/pip", "install", "--no-deps", *(f"/test/{wheel.name}" for wheel in wheels))
    if "is not a supported wheel on this platform" in done.stdout or "requires a different Python" in done.stdout:
        return None
    if done.returncode:
        sys.exit(f"{root.suite}: pip install {[wheel.name for wheel in wheels]}: exit {done.returncode}\n{done.stdout}")
    return time.monotonic() - begin


def explain_seconds(root, environment):
    begin = time.monotonic()
    said = root.check(f"{environment}/bin/epilogue", "explain", f"/test/{TRACE.name}")
    if FINDING not in said:
        sys.exit(f"{root.suite}: expected a finding '{FINDING}', got\n{said}")
    return time.monotonic() - begin


def try_root(root, wheels):
    """How many times a wheel was installed and worked."""
    test = root.path / "test"
    shutil.rmtree(test, ignore_errors=True)
    test.mkdir()
    for file in (*wheels, TRACE, SOURCE / "tests" / "install" / "installed_package.py"):
        shutil.copy(file, test)
    for compiler in COMPILERS:
        if root.run("which", compiler).returncode == 0:
            sys.exit(f"{root.suite}: expected a root without a compiler, got {compiler}")
    libc = root.check("ldd", "--version").splitlines()[0].split()[-1]
    pythons = [name for name in ("python3", "python3.11") if root.run("which", name).returncode == 0]
    tested = 0

    def say(wheel, text):
        print(f"{root.suite} (glibc {libc}, Python {version}): {wheel.name}: {text}", flush=True)

    for python in pythons:
        version = ".".join(re.findall(r"\d+", root.check(python, "--version"))[:2])
        if python == "python3.11" and version == ".".join(re.findall(r"\d+", root.check("python3", "--version"))[:2]):
            continue
        for wheel in wheels:
            # The command is for any Python: once is enough.
            if wheel.name.startswith("epilogue_torch-") or (wheel.name.startswith("epilogue_command-") and python != "python3"):
                continue
            seconds = install(root, python, "/test/environment", wheel)
            if seconds is None:
                say(wheel, "refused")
                continue
            seconds += explain_seconds(root, "/test/environment")
            say(wheel, f"the first finding after {seconds:.1f} s")
            tested += 1
            if wheel.name.startswith("epilogue-"):
                root.check("/test/environment/bin/python", "/test/installed_package.py", f"/test/{TRACE.name}")
                tested += try_ops(root, version, wheels, say)
    shutil.rmtree(test)
    return tested


def try_ops(root, version, wheels, say):
    """The ops beside the package that is installed in /test/environment."""
    ops = [wheel for wheel in wheels if wheel.name.startswith("epilogue_torch-")]
    torch = torch_here()
    for wheel in ops:
        if torch is None or torch[1] != version:
            say(wheel, f"skipped, {'no torch here' if torch is None else f'the torch here is of Python {torch[1]}'}")
            return 0
        if not root.mount("torch", "--bind", "-o", "ro", torch[0]):
            say(wheel, "skipped, no folder can be mounted")
            return 0
        done = root.run("/test/environment/bin/pip", "install", "--no-deps", f"/test/{wheel.name}")
        if "is not a supported wheel on this platform" in done.stdout:
            say(wheel, "refused")
            return 0
        said = root.check("/test/environment/bin/python", "/test/installed_package.py", f"/test/{TRACE.name}", "torch", PYTHONPATH="/torch")
        say(wheel, f"an MLP runs fused in {said.strip()}")
    return len(ops)


def main():
    if len(sys.argv) < 3:
        sys.exit("wheels_test.py: expected WHEELS WORK [SUITE...]")
    wheels, work = sorted(pathlib.Path(sys.argv[1]).glob("*.whl")), pathlib.Path(sys.argv[2])
    if not wheels:
        skip(f"no wheels in {sys.argv[1]}; `make wheels` builds them")
    if os.geteuid() != 0:
        skip("roots of other releases need to be root")
    if not shutil.which("debootstrap"):
        skip("no debootstrap (apt-get install debootstrap)")
    work.mkdir(parents=True, exist_ok=True)
    tested = {}
    for suite in sys.argv[3:] or ("bookworm", "trixie", "jammy"):
        if suite == "jammy" and not os.path.exists(UBUNTU_KEYS):
            print(f"jammy: skipped: no keys of Ubuntu's archive in {UBUNTU_KEYS} (ubuntu-keyring)")
            continue
        root = Root(suite, work.resolve())
        if not root.make():
            print(f"{suite}: skipped: debootstrap made no root, see {work / suite}.log")
            continue
        try:
            root.mount("proc", "-t", "proc", "proc")  # programs look there for processors
            tested[suite] = try_root(root, wheels)
        finally:
            root.close()
    if not tested:
        skip("no root of another release could be made")
    if not any(tested.values()):
        sys.exit(f"expected that a root takes a wheel, got none of {', '.join(tested)}")


if __name__ == "__main__":
    main()
