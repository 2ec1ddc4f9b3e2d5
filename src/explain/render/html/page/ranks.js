// The page of several ranks: what `epilogue explain DIR` says of them.

const bandwidthColumns = [
  countColumn("Sized", "sized_count", "collectives whose size is recorded"),
  numberColumn("algbw", "algbw_gb_per_s", format.bandwidth, "size by time"),
  numberColumn("busbw", "busbw_gb_per_s", format.bandwidth, "what each link carried"),
];

let rankPages = new Map();  // by rank

const idColumn = (label, key) => numberColumn(label, key, (id) => (isKnown(id) ? String(id) : DASH));

// A rank's number, with a link to its page where there is one.
function rankNode(rank) {
  const page = rankPages.get(rank);
  return page ? pageLink(page, String(rank)) : isKnown(rank) ? String(rank) : DASH;
}

function rankColumn(label, key) {
  const column = numberColumn(label, key, String);
  return { ...column, node: (row) => rankNode(column.value(row)) };
}

function showRanksPage(report) {
  const ranks = report.ranks;
  rankPages = new Map((report.rank_pages ?? []).map((page, i) => [ranks.ranks[i].rank, page]));
  const index = new Map(report.kernels.map((kernel) => [kernel.name, kernel]));
  showRanksVerdict(ranks);
  addSection("findings", "Findings", findingList(ranks, report.finding_details));
  showRankTable(ranks);
  showDeviceTime(ranks);
  showRankCollectives(ranks);
  showGroups(ranks);
  showStragglers(ranks);
  showRankKernels(ranks, index);
}

function rangeText(range) {
  return range.first === range.last ? String(range.first) : `${range.first} to ${range.last}`;
}

function showRanksVerdict(ranks) {
  byId("subtitle").textContent = plural(ranks.ranks.length, "rank");
  const figures = [
    ["Ranks here", format.count(ranks.ranks.length)],
    ["Ranks of the run", isKnown(ranks.world_size) ? format.count(ranks.world_size) : "not recorded"],
    ["Missing", ranks.missing_ranks.map(rangeText).join(", ") || "none"],
    ["Whole", ranks.has_all_ranks ? "all ranks" : "no: waits are at least, transfers at most what is said"],
    ["Files left out", format.count(ranks.left_out.length)],
  ];
  byId("verdict-more").append(el("dl", { class: "figures" }, figures.map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
}

function showRankTable(ranks) {
  addSection("ranks", "Ranks", tableNode("One row for each rank", [
    rankColumn("Rank", "rank"),
    usColumn("Span", "span_us"),
    percentColumn("Busy", "gpu_busy_pct"),
    usColumn("Communication", "communication_us"),
    usColumn("Hidden", "overlap_us", "communication beside other kernels"),
    usColumn("Waiting", "wait_us", "for ranks that arrive later, in collectives that are matched"),
    textColumn("Verdict", "verdict"),
    textColumn("Trace", (r) => (r.is_truncated ? "ends early" : "whole")),
    textColumn("File", (r) => r.path.slice(r.path.lastIndexOf("/") + 1)),
  ], ranks.ranks));
}

function showDeviceTime(ranks) {
  const known = ranks.ranks.filter((r) => r.device_time);
  const parts = [["compute", "Compute", "products, convolutions, attention"],
    ["memory", "Memory", "other kernels, copies and fills beside which no compute runs"],
    ["communication", "Communication", "collectives that nothing hides"],
    ["idle", "Idle", "no device work"]];
  const colorOf = (key) => (key === "idle" ? "other" : key);
  const table = tableNode("Division of each rank's span", [
    rankColumn("Rank", "rank"),
    ...parts.map(([key, label, meaning]) => usColumn(label, (r) => r.device_time[key + "_us"], meaning)),
    { label: "Division", value: (r) => r.device_time.compute_us / Math.max(r.span_us, 1e-3),
      node: (r) => stackedBar(parts.map(([key, label, meaning]) => {
        const us = r.device_time[key + "_us"];
        return { label, meaning, color: colorOf(key), value: us, text: format.us(us) };
      }), { hasLegend: false }) },
  ], known);
  addSection("device-time", ["Time of the device", "Device"], table,
    table && colorLegend(parts.map(([key, label, meaning]) => ({ label, meaning, color: colorOf(key) }))));
}

// One row for each entry of a list that every row has: {..., rank, wait_us}.
function byRank(ranks, rows) {
  return rows.flatMap((row) => row.wait_us.map((wait, i) => ({ ...row, rank: ranks.ranks[i].rank, wait })))
    .filter((row) => isKnown(row.wait));
}

function showRankCollectives(ranks) {
  const groupColumn = textColumn("Ranks", (w) => w.group ?? "all that are here");
  const kinds = ranks.ranks.flatMap((r) => r.kinds.map((kind) => ({ ...kind, rank: r.rank })));
  addSection("collectives", "Collectives",
    ranks.waits.length > 0
      ? note("The rank that arrives last needs the transfer alone; the other ranks wait for the rest of their time.") : null,
    tableNode("Matched between ranks: rates by the transfer alone", [
      textColumn("Collective", "name"), groupColumn, countColumn("Count", "count"),
      usColumn("Transfer", "transfer_us", "the kernels of the ranks that arrive last"), ...bandwidthColumns,
    ], ranks.waits, { sortBy: 3 }),
    ranks.unmatched.length > 0
      ? note(`Not all ranks ran these equally often, so that waits are unknown: ${ranks.unmatched.join(", ")}.`) : null,
    tableNode("Waiting of each rank", [
      textColumn("Collective", "name"), groupColumn, rankColumn("Rank", "rank"), usColumn("Waiting", "wait"),
    ], byRank(ranks, ranks.waits), { sortBy: 3 }),
    tableNode("On each rank: rates by the kernels' time, waiting included", [
      rankColumn("Rank", "rank"), textColumn("Collective", "name"), countColumn("Count", "count"),
      numberColumn("Bytes", "bytes", format.bytes), usColumn("Total", "total_us"), usColumn("Hidden", "overlap_us"),
      usColumn("Exposed", "exposed_us"), ...bandwidthColumns,
    ], kinds, { sortBy: 4 }));
}

function showGroups(ranks) {
  if (ranks.groups.length > 0) {
    addSection("groups", ["Process groups", "Groups"],
      note("Groups of one name, with collectives. Times are means over the ranks that ran them."),
      tableNode("Groups by name", [
        textColumn("Group", "name"), textColumn("Parallel", (g) => g.parallelism ?? DASH),
        countColumn("Groups", (g) => g.members.length), countColumn("Ranks", "ranks_per_group", "of the largest"),
        textColumn("Collectives", (g) => g.collectives.join(", ")), countColumn("Count", "count", "on all ranks together"),
        usColumn("Per rank", "total_us"), usColumn("Exposed", "exposed_us"),
        usColumn("Waiting", "wait_us", "for ranks that arrive later, in collectives that are matched"),
      ], ranks.groups, { sortBy: 6 }));
  }
  if (!ranks.pipeline) return;
  addSection("pipeline", "Pipeline",
    note(`Bubbles take ${ranks.pipeline.bubble_pct.toFixed(1)} % at most: idle time, and sends and receives that nothing hides.`),
    tableNode("Stages: means over their ranks", [
      idColumn("Stage", "stage"), textColumn("Ranks", (s) => s.ranks.join(", ")), usColumn("Span", "span_us"),
      usColumn("Work", "work_us", "compute and memory"),
      usColumn("Send and receive", "send_recv_us", "that nothing hides"), usColumn("Idle", "idle_us"),
    ], ranks.pipeline.stages));
}

function showStragglers(ranks) {
  addSection("stragglers", ["Stragglers over steps", "Stragglers"],
    ranks.steps.length > 0
      ? note("Lost is what the other ranks wait for the last one while nothing else runs, the mean over them.") : null,
    tableNode("Which rank is the last", [
      rankColumn("Rank", "rank"), countColumn("Steps", "steps", "in which it is the last"),
      usColumn("Lost to it", "lost_us"),
    ], ranks.stragglers, { sortBy: 2 }),
    tableNode("Steps", [
      idColumn("Step", "step"), usColumn("Time", "span_us"), rankColumn("Last rank", "last_rank"),
      usColumn("Lost", "lost_us"),
      percentColumn("Share", (s) => (s.span_us > 0 ? (s.lost_us / s.span_us) * 100 : null)),
      countColumn("Collectives", "count"),
    ], ranks.steps, { sortBy: 3 }),
    tableNode("Waiting of each rank in each step, lost or not", [
      idColumn("Step", "step"), rankColumn("Rank", "rank"), usColumn("Waiting", "wait"),
    ], byRank(ranks, ranks.steps), { sortBy: 2 }));
}

function showRankKernels(ranks, index) {
  addSection("kernels", "Kernels", tableNode("Kernels over ranks", [
    { ...textColumn("Name", "name"), node: (k) => kernelNode(index, k.name) },
    textColumn("Kind", "kind"),
    countColumn("Count", "count", "on all ranks together"),
    countColumn("Ranks", "ranks", "that ran it"),
    usColumn("Total", "total_us", "on all ranks together"),
    usColumn("Mean per rank", "mean_us"),
    usColumn("Least", "min_us"),
    rankColumn("On rank", "min_rank"),
    usColumn("Most", "max_us"),
    rankColumn("On rank", "max_rank"),
  ], ranks.kernels, { sortBy: 4 }));
}
