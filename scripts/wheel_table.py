#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists wheels: wheel_table.py WHEEL... A Markdown table of name, tag, size and libraries; those that lie in the wheel,
and those that it expects of the system. Exit 1 if one has an RPATH outside of the wheel, or asks for a newer glibc than
Ubuntu 22.04 and RHEL 9 have (manylinux_2_34). Needs readelf (binutils)."""
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile


MOST_GLIBC = (2, 34)


def dynamic(path):
    """(libraries needed, run paths) of an ELF file."""
    text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    paths = [folder for group in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", text) for folder in group.split(":")]
    return needed, paths


def check_tag(wheel):
    """Lines that say how the platform of a wheel's tag is wrong."""
    platform = wheel.stem.split("-")[-1]
    glibc = [tuple(map(int, pair)) for pair in re.findall(r"manylinux_(\d+)_(\d+)_", platform)]
    if glibc and min(glibc) <= MOST_GLIBC:
        return []
    return [f"{wheel.name}: expected a tag of at most manylinux_{MOST_GLIBC[0]}_{MOST_GLIBC[1]}, got {platform}"]


def describe(wheel):
    """Row of the table, and what is wrong: run paths that lead out of the wheel, too new a platform."""
    own, needed, outside = set(), set(), []
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        for name in archive.namelist():
            if archive.read(name)[:4] != b"\x7fELF":
                continue
            libraries, paths = dynamic(archive.extract(name, folder))
            own.add(pathlib.PurePath(name).name)
            needed.update(libraries)
            outside += [f"{wheel.name}: {name}: expected run paths within the wheel, got {path}" for path in paths
                        if not path.startswith("$ORIGIN")]
    # A grafted library has a hash in its name.
    short = sorted({re.sub(r"-[0-9a-f]{8}(?=\.so)", "", name) for name in own})
    system = sorted(needed - own)
    name, _, *tags = wheel.stem.split("-")
    size = wheel.stat().st_size / 2**20
    return f"| {name} | {'-'.join(tags)} | {size:.1f} MiB | {', '.join(short)} | {', '.join(system)} |", outside + check_tag(wheel)


def main():
    wheels = [pathlib.Path(name) for name in sys.argv[1:]]
    if not wheels:
        sys.exit("wheel_table.py: expected one wheel or more, got none")
    print("| package | tag | size | in the wheel | of the system |\n|---|---|---:|---|---|")
    found = []
    for wheel in wheels:
        row, outside = describe(wheel)
        print(row)
        found += outside
    for line in found:
        print(f"wheel_table.py: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
