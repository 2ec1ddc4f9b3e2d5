#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/explain.md from today's page: update_pictures.py EPILOGUE TRACE [--kernel TEXT] [--out DIR]

Writes DIR/report-verdict.png, the head of the page that `EPILOGUE report TRACE` makes, and
DIR/report-timeline.png, its timeline around the kernel whose name contains TEXT that waited least for its start. DIR is
docs/ unless it is given. Needs Chromium (Debian: chromium).
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "explain" / "render"))
import browser  # noqa: E402

SIZE = {"width": 1120, "height": 640}
# Selects the kernel and shows it with what happened while it waited.
SHOW = """(() => {
  const t = epilogueTimeline, m = t.model, c = m.columns;
  const wait = (i) => c.start[i] - c.start[m.launchOf(i)];
  let kernel = -1;
  for (let i = 0; i < m.events; i++)
    if (m.isWork(i) && m.name(i).includes(%s) && m.launchOf(i) >= 0 && (kernel < 0 || wait(i) < wait(kernel)))
      kernel = i;
  if (kernel < 0) return false;
  t.select(kernel);
  t.setRange(c.start[kernel] - Math.max(c.duration[kernel], 2 * wait(kernel)), m.end(kernel) + c.duration[kernel] / 2);
  document.querySelector("#timeline").scrollIntoView();
  return true;
})()"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("epilogue", help="the command")
    parser.add_argument("trace", help="a trace with kernels")
    parser.add_argument("--kernel", default="flash_fwd", help="part of a kernel's name [flash_fwd]")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the pictures [docs]")
    options = parser.parse_args()
    if browser.PROGRAM is None:
        sys.exit("update_pictures.py: expected chromium, got none (apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder, browser.Browser() as window:
        page_file = str(Path(folder) / "page.html")
        subprocess.run([options.epilogue, "report", options.trace, "-o", page_file], check=True)
        page = window.open(page_file, **SIZE)
        page.screenshot(options.out / "report-verdict.png")
        if not page.evaluate(SHOW % json.dumps(options.kernel)):
            sys.exit(f"update_pictures.py: expected a launched kernel named *{options.kernel}*, got none in {options.trace}")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.screenshot(options.out / "report-timeline.png")
        if complaints := page.complaints():
            sys.exit("update_pictures.py: the page complains: " + "; ".join(complaints))


if __name__ == "__main__":
    main()
