#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/: PyTorch's own traces of Perfetto (tests/data/perfetto), cut to their first and last packets."""
import gzip
from pathlib import Path

DATA = Path(__file__).parents[2] / "data" / "perfetto"
FIRST, LAST = 40, 12  # packets


def packets(data):
    """The packets of a trace, each with its key and length."""
    at = 0
    while at < len(data):
        start = at
        assert data[at] == 0x0A
        at += 1
        size = shift = 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        at += size
        yield data[start:at]


if __name__ == "__main__":
    folder = Path(__file__).parent / "corpus"
    folder.mkdir(exist_ok=True)
    for path in sorted(DATA.glob("*.pftrace.gz")):
        everything = list(packets(gzip.decompress(path.read_bytes())))
        name = path.name.removesuffix(".pftrace.gz")
        (folder / f"{name}_start.pftrace").write_bytes(b"".join(everything[:FIRST]))
        (folder / f"{name}_ends.pftrace").write_bytes(b"".join(everything[:FIRST] + everything[-LAST:]))
