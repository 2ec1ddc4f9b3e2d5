# SPDX-License-Identifier: Apache-2.0
"""Shared by the scripts that compare predicted fusion savings with measured ones."""
import gzip
import json
import statistics
import subprocess
from html import escape


def run_json(*command):
    """The JSON that a command prints."""
    output = subprocess.run(command, check=True, capture_output=True).stdout
    return json.loads(output)


def explain(epilogue, trace):
    return run_json(epilogue, "explain", trace, "--format", "json")


def document(trace):
    with gzip.open(trace) as f:
        return json.load(f)


def events(trace):
    return [e for e in document(trace)["traceEvents"] if e.get("ph") == "X"]


def inside(event, outer):
    return (event["ts"] >= outer["ts"] and event["ts"] + event["dur"] <= outer["ts"] + outer["dur"]
            and event["tid"] == outer["tid"])


def steps(trace_events):
    return [e for e in trace_events if e["name"].startswith("ProfilerStep#")]


def per_step(trace_events, pick):
    """The median over the steps of the summed durations of what pick() takes."""
    return statistics.median(
        sum(e["dur"] for e in trace_events if inside(e, step) and pick(e))
        for step in steps(trace_events))


def error_text(errors, relative_to):
    """The distribution of errors, given as shares: one line."""
    size = sorted(abs(e) for e in errors)
    p90 = size[min(len(size) - 1, int(0.9 * len(size)))]
    return (f"{len(size)} pairs; error relative to {relative_to}: median "
            f"{statistics.median(size) * 100:.0f} %, 90th percentile {p90 * 100:.0f} %, largest "
            f"{size[-1] * 100:.0f} %; with its sign: median {statistics.median(errors) * 100:+.0f} %")


def markdown_table(head, rows):
    """The first column to the left, the others to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


SIZE, MARGIN, LOW, HIGH = 460, 60, -40, 100


def scatter_svg(title, points, band_pct):
    """Predicted over measured, both in percent of the same time. points: (measured, predicted,
    group, label); outside the axes they sit on the edge."""
    def at(value):
        return (min(max(value, LOW), HIGH) - LOW) / (HIGH - LOW) * SIZE

    def xy(measured, predicted):
        return MARGIN + at(measured), MARGIN + SIZE - at(predicted)

    colors = ("#1b6ca8", "#d95f02", "#2a7f3f", "#7b4fa3")
    groups = sorted({p[2] for p in points})
    full = SIZE + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full} {full}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{full}" height="{full}" fill="white"/>',
           f'<text x="{MARGIN}" y="24" font-size="15">{escape(title)}</text>']
    corners = [xy(LOW, LOW + band_pct), xy(HIGH - band_pct, HIGH), xy(HIGH, HIGH),
               xy(HIGH, HIGH - band_pct), xy(LOW + band_pct, LOW), xy(LOW, LOW)]
    shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    out.append(f'<polygon points="{shape}" fill="#eef3ee"/>')
    for tick in range(LOW, HIGH + 1, 20):
        x, y = xy(tick, tick)
        out.append(f'<line x1="{x:.1f}" y1="{MARGIN}" x2="{x:.1f}" y2="{MARGIN + SIZE}" '
                   'stroke="#ddd"/>')
        out.append(f'<line x1="{MARGIN}" y1="{y:.1f}" x2="{MARGIN + SIZE}" y2="{y:.1f}" '
                   'stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{MARGIN + SIZE + 16}" text-anchor="middle">{tick}</text>')
        out.append(f'<text x="{MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>')
    (x1, y1), (x2, y2) = xy(LOW, LOW), xy(HIGH, HIGH)
    out.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#888"/>')
    for measured, predicted, group, label in points:
        x, y = xy(measured, predicted)
        color = colors[groups.index(group) % len(colors)]
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{color}" fill-opacity="0.75">'
                   f'<title>{escape(label)}</title></circle>')
    for i, group in enumerate(groups):
        out.append(f'<circle cx="{MARGIN + 14}" cy="{MARGIN + 14 + 18 * i}" r="4.5" '
                   f'fill="{colors[i % len(colors)]}"/>')
        out.append(f'<text x="{MARGIN + 26}" y="{MARGIN + 18 + 18 * i}">{escape(group)}</text>')
    middle = MARGIN + SIZE / 2
    out.append(f'<text x="{middle}" y="{full - 14}" text-anchor="middle">measured saving, % of the '
               f'eager time (band: {band_pct} %)</text>')
    out.append(f'<text x="16" y="{middle}" text-anchor="middle" '
               f'transform="rotate(-90 16 {middle})">predicted saving, % of the eager time</text>')
    return "\n".join(out + ["</svg>"]) + "\n"
