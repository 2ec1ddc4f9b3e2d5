// What changed against an earlier trace: a waterfall from its wall time to this one's, and the kernels.

const WATERFALL_PARTS = 16;

// The largest parts, the others in one.
function waterfallParts(diff) {
  const parts = [...diff.parts].sort((a, b) => Math.abs(b.delta_us) - Math.abs(a.delta_us));
  if (parts.length <= WATERFALL_PARTS + 1) return parts;
  const shown = parts.slice(0, WATERFALL_PARTS);
  const rest = parts.slice(WATERFALL_PARTS);
  const delta = rest.reduce((sum, part) => sum + part.delta_us, 0);
  return [...shown, { what: plural(rest.length, "smaller part"), why: "", delta_us: delta }];
}

function waterfallRow(label, why, from, to, scale, kind) {
  const bar = el("div", { class: "fall-bar f-" + kind });
  bar.style.left = `${(Math.min(from, to) / scale) * 100}%`;
  bar.style.width = `max(${(Math.abs(to - from) / scale) * 100}%, 2px)`;
  const value = kind === "total" ? format.us(to) : format.signedUs(to - from);
  return el("div", { class: "fall-row" },
    el("div", { class: "fall-label", title: label }, el("div", { class: "fall-name" }, shortName(label)), why ? el("div", { class: "muted fall-why", title: why }, shortName(why)) : null),
    el("div", { class: "fall-track" }, bar), el("div", { class: "number" }, value));
}

function waterfall(diff) {
  const [before, after] = diff.wall_us;
  const parts = waterfallParts(diff);
  // The sums on the way may pass both ends.
  let at = before;
  let scale = Math.max(before, after);
  for (const part of parts) scale = Math.max(scale, (at += part.delta_us));
  if (!(scale > 0)) return null;
  const rows = [waterfallRow("before", "", 0, before, scale, "total")];
  at = before;
  for (const part of parts) {
    rows.push(waterfallRow(part.what, part.why, at, at + part.delta_us, scale, part.delta_us > 0 ? "more" : "less"));
    at += part.delta_us;
  }
  rows.push(waterfallRow("after", "", 0, after, scale, "total"));
  return el("div", { class: "waterfall" }, rows);
}

function showDiff(report, index) {
  const diff = report.diff;
  if (!diff) return;
  const [before, after] = diff.wall_us;
  const ratio = after > 0 && before > 0 ? `, ${(before / after).toFixed(2)}\u00d7` : "";
  const pair = (values, show) => `${show(values[0])} \u2192 ${show(values[1])}`;
  // Averages over steps need not be whole.
  const count = (n) => (Number.isInteger(n) ? format.count(n) : n.toFixed(2));
  const changeColumns = (first) => [
    first,
    { ...numberColumn("Executions", (k) => k.count[1] - k.count[0], count), text: (k) => pair(k.count, count) },
    numberColumn("Change", (k) => k.total_us[1] - k.total_us[0], format.signedUs),
    usColumn("Before", (k) => k.total_us[0]),
    usColumn("After", (k) => k.total_us[1]),
  ];
  const kernelColumns = changeColumns({ ...textColumn("Kernel", "name"), node: (k) => kernelNode(index, k.name) });
  const opColumns = changeColumns(textColumn("Op", "name"));
  const compared = diff.per_step ? `Average step, of ${pair(diff.steps, format.count)} steps`
    : diff.by_steps ? "Sum of the steps" : "Whole traces";
  addSection("diff", ["Compared with " + report.before_path, "Comparison"],
    el("p", { class: "lead" }, `Wall time${diff.per_step ? " per step" : ""} ${pair(diff.wall_us, format.us)} (${format.signedUs(after - before)}${ratio})`),
    note(`${compared}. Device busy ${pair(diff.gpu_busy_us, format.us)}, ` +
      `kernels ${pair(diff.kernels, count)}, launches ${pair(diff.launches, count)}, ops ${pair(diff.ops, count)}. ` +
      `The parts add up; unexplained: ${format.us(Math.abs(diff.unexplained_us))}.`),
    waterfall(diff),
    tableNode("Kernels only before", kernelColumns, diff.kernels_removed),
    tableNode("Kernels only after", kernelColumns, diff.kernels_added),
    tableNode("Kernels in both that changed", kernelColumns, diff.kernels_changed),
    tableNode("Ops only before", opColumns, diff.ops_removed),
    tableNode("Ops only after", opColumns, diff.ops_added),
    tableNode("Ops in both that changed", opColumns, diff.ops_changed));
}
