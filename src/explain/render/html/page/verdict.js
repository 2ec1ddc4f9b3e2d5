// The top of the page: what limits the run, in words, as one bar, and in a few numbers.

// Into what wall time divides: key, label, meaning, in the order of the bar.
const TIME_PARTS = [
  ["compute", "Compute", "the device runs matrix products, convolutions, attention"],
  ["memory", "Memory", "the device runs kernels that move bytes"],
  ["communication", "Communication", "collectives that nothing hides"],
  ["overhead", "Host overhead", "the device idles, the host is in ops or Python"],
  ["profiler", "Profiler", "the device idles because recording slows the host (estimated)"],
  ["launch", "Launch", "the device idles, the host is inside launch calls"],
  ["queue", "Queue", "the device idles between work that is already launched"],
  ["sync", "Sync", "the device idles, the host waits"],
  ["data", "Data loading", "the device idles, the host is in a data loader"],
  ["other", "Other", "the device idles before the first or after the last event of the host"],
];
const IDLE_CAUSES = [
  ["queue", "Queue", "work was launched and waited: launch gap", "queue"],
  ["launch", "Launch", "the host was inside a call that starts work", "launch"],
  ["sync", "Sync", "the host waited", "sync"],
  ["data", "Data loading", "the host was in a data loader", "data"],
  ["profiler", "Profiler", "the profiler did its own work: buffers", "profiler"],
  ["host_in_ops", "Host in ops", "the host was in an op or another runtime call", "overhead"],
  ["host_between_ops", "Host between ops", "the host ran what is not traced: Python, mostly", "between"],
  ["other", "Other", "before the first or after the last event of the host", "other"],
];

// A stacked bar with its legend. Parts are {label, meaning, color, value, text}.
function stackedBar(parts, { hasLegend = true } = {}) {
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  const shown = parts.filter((part) => total > 0 && part.value / total >= 0.0005);
  const label = shown.map((part) => `${part.label} ${part.text}`).join(", ");
  const bar = el("div", { class: "stack", role: "img", "aria-label": label });
  for (const part of shown) {
    const segment = el("div", { class: "stack-part c-" + part.color });
    segment.style.flexGrow = part.value / total;
    withTip(segment, () => [el("b", {}, `${part.label} ${part.text}`), part.meaning]);
    bar.append(segment);
  }
  return hasLegend ? el("div", {}, bar, colorLegend(shown)) : bar;
}

// What the colours of a bar mean. Parts are as in stackedBar(); `text` may be missing.
function colorLegend(parts) {
  return el("ul", { class: "legend" }, parts.map((part) =>
    el("li", { title: part.meaning }, el("span", { class: "swatch c-" + part.color }), part.label,
      part.text ? el("span", { class: "number" }, part.text) : null)));
}

function wallParts(boundPct) {
  return TIME_PARTS.filter(([key]) => key in boundPct).map(([key, label, meaning]) => ({
    label, meaning, color: key, value: boundPct[key], text: format.percent(boundPct[key]),
  }));
}

function keyFigures(e) {
  const hasDevice = isKnown(e.gpu_busy_us) || e.launches.launches > 0;
  const figures = [
    ["Span", format.us(e.span_us)],
    ...(hasDevice ? [["Device busy", isKnown(e.gpu_busy_us) ? `${format.us(e.gpu_busy_us)} (${format.percent(e.gpu_busy_pct)})` : DASH]] : []),
    ["Steps", e.steps.length > 0 ? format.count(e.steps.length) : "none marked"],
    ...(hasDevice ? [["Kernels", `${format.count(e.kernels)}, ${format.count(e.distinct_kernels)} distinct`],
      ["Launches", format.count(e.launches.launches)]] : []),
    ["Ops", format.count(e.ops)],
    ["Events", format.count(e.events) + (e.skipped_events > 0 ? `, ${format.count(e.skipped_events)} skipped` : "")],
  ];
  return el("dl", { class: "figures" }, figures.map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function showVerdict(report) {
  const e = report.explanation;
  byId("subtitle").textContent = [e.device, report.trace_file || e.path].filter(Boolean).join("  \u00b7  ");
  const parts = wallParts(e.bound_pct);
  const more = byId("verdict-more");
  if (parts.length > 0) {
    more.append(el("p", { class: "caption" }, "Where the wall time of the busiest device goes"), stackedBar(parts));
  }
  more.append(keyFigures(e));
  const verdict = e.findings.find((finding) => finding.id === "verdict");
  if (verdict) more.append(el("ul", { class: "prose muted" }, verdict.evidence.map((line) => el("li", {}, line))));
  for (const text of [report.trace_note, report.timeline.left_out > 0
    ? `The timeline leaves out the ${format.count(report.timeline.left_out)} shortest events.` : ""]) {
    if (text) more.append(el("p", { class: "note" }, text));
  }
}

const SEVERITY_ORDER = { error: 0, critical: 0, warning: 1, info: 2 };

function severityBadge(severity) {
  return el("span", { class: "badge s-" + severity }, severity);
}

function healthList(e) {
  const items = [...e.health].sort((a, b) => (SEVERITY_ORDER[a.severity] ?? 3) - (SEVERITY_ORDER[b.severity] ?? 3));
  return el("ul", { class: "items" }, items.map((item) =>
    el("li", {}, severityBadge(item.severity), el("span", {}, item.detail))));
}

// `details`: the lines below each finding.
function findingList(e, details) {
  // The verdict stands at the top of the page already.
  return e.findings.map((finding, i) => [finding, details[i]]).filter(([finding]) => finding.id !== "verdict")
    .map(([finding, lines], i) => el("details", { class: "finding", open: i < 2 },
      el("summary", {}, severityBadge(finding.severity), el("span", { class: "finding-title" }, finding.title),
        isKnown(finding.saving_us) ? el("span", { class: "saving" }, "saves up to " + format.us(finding.saving_us)) : null),
      el("ul", {}, lines.map((line) => el("li", {}, line)))));
}

function idleBars(e) {
  return e.idle.filter((idle) => idle.idle_us > 0).map((idle) => el("div", { class: "idle" },
    el("p", { class: "caption" }, `Device ${idle.device}: idle ${format.us(idle.idle_us)} of ${format.us(e.span_us)}`),
    stackedBar(IDLE_CAUSES.map(([key, label, meaning, color]) => {
      const us = idle.causes[key + "_us"];
      return { label, meaning, color, value: us, text: `${format.us(us)} (${format.percent((us / idle.idle_us) * 100)})` };
    }))));
}
