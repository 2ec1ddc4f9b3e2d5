// The tables of the page: what each shows.

// Where a kernel's name stands: short, with what the name says on hover.
function kernelNode(index, name) {
  const node = el("span", { class: "kernel", tabindex: "0" }, shortName(name));
  return withTip(node, () => kernelLines(index, name));
}

function kernelLines(index, name) {
  const kernel = index.get(name);
  const lines = [el("b", { class: "break" }, name)];
  if (!kernel) return lines;
  if (kernel.summary) lines.push(el("div", { class: "tip-summary" }, kernel.summary));
  if (kernel.fields?.length) lines.push(fieldList(kernel.fields));
  return lines;
}

function fieldList(fields) {
  return el("dl", { class: "fields" }, fields.map((field) => [
    el("dt", {}, field.key.replaceAll("_", " ")),
    el("dd", { title: field.note || null }, field.value, field.is_inferred ? el("i", {}, " inferred") : null)]).flat());
}

function showSteps(e, timeline) {
  const regions = e.steps.length > 0 ? e.steps : e.regions;
  if (regions.length === 0) return;
  const title = e.steps.length > 0 ? "Steps" : "Regions";
  addSection("steps", title, tableNode(title + " of the trace", [
    textColumn("Name", "name"),
    usColumn("Wall", "wall_us"),
    ...(e.host ? [usColumn("In ops", "cpu_op_us"), countColumn("Ops", "ops")] : [
      usColumn("Device busy", "gpu_busy_us"),
      percentColumn("Busy", (r) => (r.wall_us > 0 ? (r.gpu_busy_us / r.wall_us) * 100 : null)),
      percentColumn("Judged", "judged_pct", "without collectives that nothing hides, less the profiler's part"),
      countColumn("Ops", "ops"),
      countColumn("Launches", "launches"),
      countColumn("Kernels", "kernels"),
      textColumn("Verdict", "verdict"),
      { label: "Division of the wall time", value: (r) => r.bound_pct.compute ?? null,
        node: (r) => stackedBar(wallParts(r.bound_pct), { hasLegend: false }) },
    ]),
  ], regions, { onRow: (r) => timeline?.showRange(r.start_us, r.start_us + r.wall_us) }),
  timeline ? note("A click on a row shows it in the timeline.") : null);
}

function showKernels(report, index, timeline) {
  const total = report.kernels_total_us;
  const triton = new Map(report.explanation.compile.triton.filter((k) => k.kernel_file).map((k) => [k.name, k]));
  addSection("kernels", "Kernels", tableNode("Kernels, copies and fills", [
    { ...textColumn("Name", "name"), node: (k) => kernelNode(index, k.name) },
    textColumn("Kind", (k) => k.kind ?? k.category.replace("gpu_", "")),
    textColumn("Launched by", (k) => k.op + (k.ops > 1 ? ` and ${k.ops - 1} more` : "")),
    countColumn("Count", "count"),
    usColumn("Total", "total_us"),
    percentColumn("Share", (k) => (total > 0 ? (k.total_us / total) * 100 : null), "of the sum of all device work"),
    usColumn("Mean", "mean_us"),
    usColumn("Min", "min_us"),
    usColumn("Max", "max_us"),
    ...(triton.size > 0 ? [textColumn("Source", (k) => triton.get(k.name)?.kernel_file ?? null),
      textColumn("Config", (k) => triton.get(k.name)?.kernel_kwargs || null)] : []),
  ], report.kernels, { sortBy: 4, onRow: (k) => timeline?.search(k.name) }));
}

function shapeText(shape) {
  if (!shape) return null;
  return (shape.batch > 1 ? shape.batch + " \u00d7 " : "") + [shape.m, shape.n, shape.k].join("\u00d7");
}

function showGemms(e, index) {
  addSection("gemms", ["Matrix products", "GEMMs"], rooflinePlot(e.gemms), tableNode("By op, shape and kernel", [
    textColumn("Op", "op"),
    textColumn("M\u00d7N\u00d7K", (g) => shapeText(g.shape)),
    textColumn("Type", (g) => [...new Set([g.a_type, g.b_type, g.c_type].filter(Boolean))].join(", ")),
    { ...textColumn("Kernel", "kernel"), node: (g) => kernelNode(index, g.kernel) },
    countColumn("Count", (g) => g.time.count),
    usColumn("Total", (g) => g.time.total_us),
    usColumn("Median", (g) => g.time.median_us),
    ...(e.gemms.some((g) => g.reduction_us > 0)
      ? [usColumn("Split-K sum", (g) => g.reduction_us || null, "of the kernel that adds up a split K; TFLOP/s counts it in")]
      : []),
    numberColumn("TFLOP/s", "tflops", format.number),
    percentColumn("Of peak", "peak_pct"),
    percentColumn("Of roofline", "attainable_pct", "of what intensity and memory bandwidth allow"),
    numberColumn("FLOP/byte", "intensity_flops_per_byte", format.number),
    percentColumn("Wave efficiency", (g) => g.tiling?.wave_efficiency_pct ?? null, "waves over whole waves of tiles"),
  ], e.gemms, { sortBy: 5 }),
  e.gemm_comparisons.length > 0 ? el("h3", {}, "Why one product is faster than another") : null,
  e.gemm_comparisons.length > 0 ? el("ul", { class: "prose" }, e.gemm_comparisons.slice(0, 10).map((s) => el("li", {}, s))) : null);
}

// Of a run without a device.
function showHost(e) {
  if (!e.host) return;
  const h = e.host;
  addSection("host", ["Where the host's time goes", "Host"], tableNode("By op", [
    textColumn("Op", "name"), textColumn("Part", (o) => o.part.replaceAll("_", " ")), countColumn("Calls", "count"),
    usColumn("Self", "self_us"), percentColumn("Share", (o) => (h.wall_us > 0 ? (o.self_us / h.wall_us) * 100 : null), "of the wall time"),
    numberColumn("Rate", "gb_per_s", format.bandwidth)], h.ops, { sortBy: 3 }));
  if (h.products.length === 0) return;
  addSection("products", ["Matrix products", "Products"], tableNode("By op, shape and type", [
    textColumn("Op", "op"), textColumn("M\u00d7N\u00d7K", (p) => shapeText(p.shape)), textColumn("Type", "type"),
    countColumn("Count", (p) => p.time.count), usColumn("Total", (p) => p.time.total_us), usColumn("Median", (p) => p.time.median_us),
    numberColumn("GFLOP/s", (p) => (p.is_dispatch ? null : p.gflops), format.number, "of large products: calling small ones takes longer"),
    ...(h.peaks ? [percentColumn("Of peak", "peak_pct", h.peaks.text)] : []),
    numberColumn("FLOP/byte", "flops_per_byte", format.number)], h.products, { sortBy: 4 }), note(h.peak_note));
}

function showRooflines(e, index) {
  if (e.rooflines.length === 0) return;
  addSection("rooflines", ["Other ops against the roofline", "Rooflines"], rooflinePlot(e.rooflines, "ops"), tableNode("By op and inputs", [
    textColumn("Kind", "kind"), textColumn("Op", "op"), textColumn("Inputs", "shapes"), textColumn("Type", "type"),
    { ...textColumn("Kernel", "kernel"), node: (r) => kernelNode(index, r.kernel) },
    countColumn("Count", (r) => r.time.count), usColumn("Total", (r) => r.time.total_us), usColumn("Median", (r) => r.time.median_us),
    numberColumn("TFLOP/s", "tflops", format.number), numberColumn("Rate", "gb_per_s", format.bandwidth),
    numberColumn("FLOP/byte", "intensity_flops_per_byte", format.number),
    percentColumn("Of roofline", "attainable_pct", "of what intensity and memory bandwidth allow; above 100 %, caches held the data"),
  ], e.rooflines, { sortBy: 6 }));
}

function showDeviceRanges(e) {
  if (e.device_ranges.length === 0) return;
  addSection("ranges", ["Annotations on the device", "Annotations"], tableNode("Ranges of the device", [
    textColumn("Name", "name"), countColumn("Device", "device"), countColumn("Count", "count"), usColumn("Total", "total_us"),
    usColumn("Longest", "max_us"), usColumn("Busy", "busy_us"), usColumn("Idle", "idle_us"),
  ], e.device_ranges, { sortBy: 3 }));
}

function showFusions(e) {
  if (e.fusions.length === 0) return;
  addSection("fusions", ["Fusion candidates", "Fusions"], tableNode("What one kernel could do", [
    textColumn("Ops", (f) => f.ops.join(" + ")),
    textColumn("Kind", (f) => f.kind.replaceAll("-", " ")),
    textColumn("Result", "shape"),
    countColumn("Count", "count"),
    ...(e.host ? [] : [{ ...countColumn("Kernels", "kernels_now"), text: (f) =>
      (f.kernels_now > f.kernels_after ? `${format.count(f.kernels_now)} \u2192 ${format.count(f.kernels_after)}` : DASH) }]),
    usColumn("Time now", "time_us"),
    // 0: the shapes were not recorded.
    numberColumn("Not moved", (f) => (f.bytes_now > 0 ? f.bytes_now - f.bytes_after : null), format.bytes),
    usColumn("Saves", "predicted_saving_us", "predicted"),
    textColumn("Confidence", "confidence"),
    textColumn("Assumption", "assumption"),
  ], e.fusions, { sortBy: e.host ? 6 : 7 }));
}

function showAverages(report) {
  const rows = report.averages.rows;
  const hasDevice = rows.some((row) => row.self_device_us > 0);
  const hasFlops = rows.some((row) => row.flops > 0);
  const device = report.averages.device_label || "device";
  const share = (total, key) => (row) => (total > 0 ? (row[key] / total) * 100 : null);
  addSection("averages", "Key averages", tableNode("As torch.profiler's key_averages()", [
    textColumn("Name", "name"),
    textColumn("On", "device_type"),
    countColumn("Calls", "count"),
    usColumn("Self CPU", "self_cpu_us"),
    percentColumn("Self CPU %", share(report.averages.self_cpu_total_us, "self_cpu_us")),
    usColumn("CPU total", "cpu_total_us"),
    usColumn("CPU mean", "cpu_avg_us"),
    ...(hasDevice ? [
      usColumn("Self " + device, "self_device_us"),
      // Annotations span kernels: a share of them would count time twice.
      percentColumn(`Self ${device} %`, (row) => (row.is_user_annotation ? null
        : share(report.averages.self_device_total_us, "self_device_us")(row))),
      usColumn(device + " total", "device_total_us"),
    ] : []),
    ...(hasFlops ? [numberColumn("FLOPs", (row) => row.flops || null, format.flops)] : []),
  ], rows, { sortBy: hasDevice ? 7 : 3 }));
}

function showChains(e) {
  addSection("chains", ["Dispatch chains", "Chains"], tableNode("Ops that call ops", [
    textColumn("Chain", "chain"),
    countColumn("Count", "count"),
    usColumn("CPU", "cpu_us"),
    ...(e.host ? [] : [usColumn("Device", "device_us"), countColumn("Kernels", "kernels")]),
    countColumn("Ops", "ops", "in one chain"),
    ...(e.host ? [] : [countColumn("Launch nothing", "no_launch_ops", "ops of one chain that start no device work"),
      usColumn("Their time", "no_launch_us")]),
  ], e.dispatch_chains, { sortBy: 2 }));
}

const distributionColumns = (of) => [
  countColumn("Count", (row) => of(row).count),
  usColumn("Total", (row) => of(row).total_us),
  usColumn("Median", (row) => of(row).median_us),
  usColumn("95 %", (row) => of(row).p95_us),
  usColumn("Max", (row) => of(row).max_us),
];

function showCalls(e) {
  const l = e.launches;
  const time = (row) => row.time;
  addSection("calls", ["Runtime calls and copies", "Calls"],
    l.queue_delay ? note(`From launch to start: median ${format.us(l.queue_delay.median_us)}, 95 % within ` +
      `${format.us(l.queue_delay.p95_us)}. Kernels shorter than their launch call: ` +
      `${format.count(l.kernels_shorter_than_launch)} of ${format.count(l.queue_delay.count)}.`) : null,
    tableNode("Runtime calls", [textColumn("Call", "name"), ...distributionColumns((row) => row),
      textColumn("Starts work", (row) => (row.starts_work ? "yes" : ""))], l.calls, { sortBy: 2 }),
    tableNode("Where the host waits", [textColumn("Call", "call"), textColumn("In", "where"), ...distributionColumns(time),
      textColumn("Implied", (row) => (row.is_implied ? "by the op" : ""))], e.hot_spots.syncs, { sortBy: 3 }),
    tableNode("Copies and fills", [textColumn("Copy", "name"), textColumn("In", "where"), ...distributionColumns(time),
      numberColumn("Bytes", "bytes", format.bytes), numberColumn("Rate", "gb_per_s", format.bandwidth),
      textColumn("Memory", (row) => (row.is_pageable ? "pageable" : ""))], e.hot_spots.copies, { sortBy: 3 }));
}

function showCollectives(e) {
  addSection("collectives", "Collectives", tableNode("Collectives of this rank", [
    textColumn("Name", "name"), countColumn("Count", "count"), numberColumn("Bytes", "bytes", format.bytes),
    usColumn("Total", "total_us"), usColumn("Hidden", "overlap_us"), usColumn("Exposed", "exposed_us"),
    numberColumn("algbw", "algbw_gb_per_s", format.bandwidth), numberColumn("busbw", "busbw_gb_per_s", format.bandwidth)],
  e.collectives.kinds, { sortBy: 3 }));
}

function showCompile(e, index) {
  const columns = [textColumn("Name", "name"), countColumn("Count", "count"), usColumn("CPU", "cpu_us"),
    countColumn("Kernels", "kernels"), usColumn("Device", "device_us")];
  addSection("compile", "torch.compile",
    tableNode("Compiled regions", columns, e.compile.regions, { sortBy: 4 }),
    tableNode("Compiled graphs", columns, e.compile.graphs, { sortBy: 4 }),
    tableNode("Triton kernels", [
      { ...textColumn("Name", "name"), node: (k) => kernelNode(index, k.name) },
      textColumn("Fuses", (k) => k.fused_ops.join(", ")),
      countColumn("Count", "count"), usColumn("Device", "device_us"),
      ...(e.compile.triton.some((k) => k.kernel_file) ? [textColumn("Source", "kernel_file"), textColumn("Config", "kernel_kwargs"),
        countColumn("Warps", "num_warps"), countColumn("Stages", "num_stages")] : [])], e.compile.triton, { sortBy: 3 }));
}

function showOccupancy(e, index) {
  addSection("occupancy", "Occupancy", tableNode("Occupancy by kernel", [
    { ...textColumn("Kernel", "kernel"), node: (k) => kernelNode(index, k.kernel) },
    countColumn("Count", "count"), usColumn("Total", "total_us"),
    percentColumn("Recorded", "recorded_pct"), percentColumn("Computed", "theoretical_pct"),
    textColumn("Limited by", (k) => k.limit), textColumn("Note", "note")], e.occupancy, { sortBy: 2 }));
}

function showModules(e) {
  addSection("modules", "Modules", tableNode("Time by nn.Module", [
    textColumn("Module", "path"), countColumn("Calls", "count"), usColumn("CPU", "cpu_us"),
    usColumn("Device", "device_us"), countColumn("Kernels", "kernels")], e.modules, { sortBy: 3 }));
}
