// Sections as the report describes them: {id, title, blocks}. A table's columns have a kind, by which
// their values are shown; plots are drawn by name.

const NUMBER_KINDS = { us: format.us, count: format.count, percent: format.percent, number: format.number,
  bandwidth: format.bandwidth, bytes: format.bytes };
const TEXT_KINDS = ["text", "kernel", "list", "shape"];

const atPath = (row, path) => path.split(".").reduce((value, key) => value?.[key] ?? null, row);

function capitalised(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// What a column of a report says, as a column of SortableTable.
function describedColumn(column, places, index) {
  const raw = column.values ? (row) => column.values[places.get(row)] : (row) => atPath(row, column.key);
  const described = { label: capitalised(column.title), hint: column.note || null, value: raw };
  if (TEXT_KINDS.includes(column.kind)) described.isText = true;
  const show = NUMBER_KINDS[column.kind];
  if (show) {
    // A word in place of a number is shown, and sorts as unknown.
    described.value = (row) => (typeof raw(row) === "string" ? null : raw(row));
    described.text = (row) => (typeof raw(row) === "string" ? raw(row) : show(raw(row)));
  }
  if (column.kind === "shape") described.text = (row) => raw(row)?.replaceAll(" ", "\u00a0") ?? DASH;
  if (column.kind === "list") described.value = (row) => raw(row).join(" + ");
  if (column.kind === "kernel") described.node = (row) => (raw(row) ? kernelNode(index, raw(row)) : null);
  if (column.kind === "wall_parts") {
    described.value = (row) => raw(row).compute ?? null;
    described.node = (row) => stackedBar(wallParts(raw(row)), { hasLegend: false });
  }
  return described;
}

function describedTable(block, explanation, index, onRow) {
  const rows = atPath(explanation, block.list);
  const places = new Map(rows.map((row, i) => [row, i]));
  const columns = block.columns.map((column) => describedColumn(column, places, index));
  const sortBy = block.columns.findIndex((column) => block.sort_by && column.key === block.sort_by);
  return tableNode(block.caption, columns, rows, { sortBy: sortBy < 0 ? null : sortBy, onRow });
}

// What `plot` of a section is drawn by: (report, what, index, timeline) gives nodes.
const PLOTS = {
  health: (report) => healthList(report.explanation),
  findings: (report, details) => findingList(report.explanation, details),
  critical_path: (report, _, index, timeline) => pathStrip(report, report.explanation.critical_path, timeline),
  idle: (report) => idleBars(report.explanation),
  roofline: (report, what) => rooflinePlot(report.explanation[what.list], what.points),
  queues: (report) => queuePlots(report),
  memory: (report, at) => memoryPlot(report, at),
  snapshot_findings: (report, at) => snapshotFindings(report.explanation.devices[at]),
  snapshot_curve: (report, at) => snapshotCurve(report.snapshot[at]),
  snapshot_map: (report, at) => snapshotMap(report.snapshot[at]),
};

// What a click on a row does, by the section.
const ROW_ACTIONS = {
  steps: (timeline) => (r) => timeline.showRange(r.start_us, r.start_us + r.wall_us),
  idle: (timeline) => (g) => timeline.showRange(g.start_us, g.start_us + g.duration_us),
};

function showSection(section, report, index, timeline) {
  const onRow = timeline && ROW_ACTIONS[section.id] ? ROW_ACTIONS[section.id](timeline) : null;
  let title = null;
  const nodes = section.blocks.map((block) => {
    if (block.head) {
      if (title !== null) return el("h3", {}, block.head);
      title = block.head;
      return null;
    }
    if (block.note) return note(block.note);
    if (block.bullets) return el("ul", { class: "prose" }, block.bullets.map((line) => el("li", {}, line)));
    if (block.plot) return PLOTS[block.plot](report, block.what, index, timeline);
    return describedTable(block, report.explanation, index, onRow);
  });
  addSection(section.id, [title ?? section.title, section.title], ...nodes);
}
