// The critical path: a strip of what it runs through, and what the trace would take without parts of it.

const PATH_PLOT = { row: 18, left: 130, right: 20, top: 6, bottom: 28 };
// By place in the strip: label, colours of the style sheet's f- classes.
const PATH_ROWS = [
  ["kernel", "kernels", "compute2"], ["copy", "copies", "copy"], ["host_op", "host, in ops", "overhead"],
  ["launch_call", "host, launching", "launch"], ["host_between_ops", "host, between ops", "data"],
  ["sync_call", "after waits", "sync"], ["launch_latency", "launch to start", "queue"],
  ["device_gap", "between kernels", "queue"], ["before", "before the path", "other"],
];

function pathGroupName(group) {
  return group.name || PATH_ROWS.find(([kind]) => kind === group.kind)[1];
}

function pathStrip(report, path, timeline) {
  const pieces = report.critical_path_pieces;
  if (pieces.length === 0) return null;
  const used = PATH_ROWS.filter(([kind]) => path.kinds[kind + "_us"] > 0);
  const { row, left, right, top, bottom } = PATH_PLOT;
  const width = plotWidth();
  const height = top + used.length * row + bottom;
  const first = pieces[0][0];
  const span = Math.max(pieces[pieces.length - 1][1] - first, 1e-3);
  const x = (us) => left + ((us - first) / span) * (width - left - right);
  const svg = svgEl("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Critical path of ${format.us(path.span_us)}; the table below has the numbers` });
  used.forEach(([, label], i) => svg.append(svgEl("text", { class: "tick", x: left - 8, y: top + i * row + 13, "text-anchor": "end" }, label)));
  timeTicks(svg, first, first + span, report.timeline.origin_us, x, height - 8, width);
  for (const [start, end, at] of pieces) {
    const group = path.groups[at];
    const place = used.findIndex(([kind]) => kind === group.kind);
    const piece = svgEl("rect", { class: "p-" + used[place][2], x: x(start), y: top + place * row + 2,
      width: Math.max(x(end) - x(start), 0.5), height: row - 4,
      onclick: () => timeline?.showRange(start, end) });
    svg.append(withTip(piece, () => [el("b", {}, shortName(pathGroupName(group))), `${format.us(end - start)} of the path`]));
  }
  return el("figure", {}, svg);
}
