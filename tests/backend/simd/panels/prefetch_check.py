# SPDX-License-Identifier: Apache-2.0
"""The panel kernels' machine code fetches the next panel: prefetch_check.py OBJDUMP LIBRARY

A compiler may drop prefetches that it takes for calls without effects, and nothing but the speed of
large products tells. Exit 77 (skipped) where there is no objdump or the library is of another
processor; a library of x86-64 whose tiles are not found fails: their names have changed.
"""
import re
import subprocess
import sys

SYMBOL = re.compile(r"^[0-9a-f]+ <(.*)>:$")
# A tile of six rows of every type of weights.
TILE = re.compile(r"N_AVX([23])10panel_tile\w*?(F32Panel|Bf16Panel)ELl6E")
# The loop over tiles of rows in strips, whose tile of six rows is part of it.
STRIP = re.compile(r"N_AVX([23])13(strip_product)I\w*?F32PanelEEEvRK")
# 8-bit weights in pairs; no other kernel of that name has six rows.
PAIRS = re.compile(r"N_AVX([23])\w*?4tileIL(l6)ELNS0_6Stream")
PANELS = {"F32Panel": "f32", "Bf16Panel": "bf16", "strip_product": "f32 in strips", "l6": "8-bit pairs"}


def main():
    objdump, library = sys.argv[1:]
    if not objdump:
        print("no objdump")
        return 77
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", library], capture_output=True,
                          text=True, check=True).stdout
    tiles, fetching, symbol = set(), set(), None
    for line in text.splitlines():
        if match := SYMBOL.match(line):
            found = TILE.search(match.group(1)) or STRIP.search(match.group(1)) or PAIRS.search(match.group(1))
            symbol = found.groups() if found else None
            if symbol:
                tiles.add(symbol)
        elif symbol and "prefetcht1" in line:
            fetching.add(symbol)
    if "elf64-x86-64" not in text:
        print(library, "is of another processor")
        return 77
    for level, panel in sorted(tiles - fetching):
        print(f"AVX{level} {PANELS[panel]}: six rows fetch nothing of the next panel")
    wanted = {(level, panel) for level in "23" for panel in PANELS}
    for level, panel in sorted(wanted - tiles):
        print(f"AVX{level} {PANELS[panel]}: no tile of six rows")
    return 1 if wanted - fetching else 0


if __name__ == "__main__":
    sys.exit(main())
