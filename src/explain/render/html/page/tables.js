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
