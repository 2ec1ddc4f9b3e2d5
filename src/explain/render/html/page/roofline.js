// The roofline plots of matrix products and of other ops: achieved rate over arithmetic intensity, both logarithmic.

const PLOT = { width: 900, height: 400, left: 64, right: 24, top: 20, bottom: 48 };

function decades(low, high) {
  const list = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p) list.push(10 ** p);
  return list.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

// Peaks by type of arithmetic, and the memory bandwidth: what a product on the memory side can attain
// is its intensity times that.
function roofs(gemms) {
  const peaks = new Map();
  let bandwidth = null;
  for (const g of gemms) {
    if (isKnown(g.peak_tflops)) peaks.set(g.math_type || g.a_type || g.type, g.peak_tflops);
    if (isKnown(g.peak_gb_per_s)) bandwidth = g.peak_gb_per_s / 1000;
    if (g.roofline_side === "memory" && isKnown(g.attainable_tflops)) {
      bandwidth = g.attainable_tflops / g.intensity_flops_per_byte; // TFLOP/s per FLOP/byte = TB/s
    }
  }
  return { peaks: [...peaks].sort((a, b) => b[1] - a[1]), bandwidth };
}

function logScale(low, high, from, to) {
  const span = Math.log(high / low);
  return (value) => from + (Math.log(value / low) / span) * (to - from);
}

function rooflineAxes(svg, x, y, xRange, yRange) {
  const { left, right, top, bottom, width, height } = PLOT;
  for (const value of decades(...xRange)) {
    svg.append(svgEl("line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: height - bottom }),
      svgEl("text", { class: "tick", x: x(value), y: height - bottom + 16, "text-anchor": "middle" }, String(value)));
  }
  for (const value of decades(...yRange)) {
    svg.append(svgEl("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svgEl("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  }
  svg.append(svgEl("text", { class: "axis", x: (left + width - right) / 2, y: height - 10, "text-anchor": "middle" },
    "arithmetic intensity, FLOP per byte"),
  svgEl("text", { class: "axis", x: 16, y: (top + height - bottom) / 2, "text-anchor": "middle",
    transform: `rotate(-90 16 ${(top + height - bottom) / 2})` }, "achieved, TFLOP/s"));
}

function rooflineRoofs(svg, x, y, { peaks, bandwidth }, xRange, yRange) {
  for (const [type, peak] of peaks) {
    const ridge = bandwidth === null ? xRange[0] : Math.min(Math.max(peak / bandwidth, xRange[0]), xRange[1]);
    svg.append(svgEl("line", { class: "roof", x1: x(ridge), x2: x(xRange[1]), y1: y(peak), y2: y(peak) }),
      svgEl("text", { class: "tick", x: PLOT.width - PLOT.right, y: y(peak) - 5, "text-anchor": "end" },
        `${type} peak ${format.tflops(peak)}`));
  }
  if (bandwidth === null || peaks.length === 0) return;
  const last = peaks[0][1] / bandwidth;
  const from = Math.max(xRange[0], yRange[0] / bandwidth);
  const to = Math.min(xRange[1], last);
  if (to <= from) return;
  svg.append(svgEl("line", { class: "roof", x1: x(from), x2: x(to), y1: y(from * bandwidth), y2: y(to * bandwidth) }));
  const middle = from * (to / from) ** 0.4; // clear of the roofs' own labels
  const angle = (Math.atan2(y(to * bandwidth) - y(from * bandwidth), x(to) - x(from)) * 180) / Math.PI;
  svg.append(svgEl("text", { class: "tick", "text-anchor": "middle",
    transform: `translate(${x(middle)} ${y(middle * bandwidth) - 6}) rotate(${angle})` },
  "memory " + format.bandwidth(bandwidth * 1000)));
}

function rooflinePlot(gemms, what = "matrix products") {
  const points = gemms.filter((g) => g.tflops > 0 && g.intensity_flops_per_byte > 0);
  if (points.length === 0) return null;
  PLOT.width = plotWidth();
  const limits = roofs(gemms);
  const xs = points.map((g) => g.intensity_flops_per_byte);
  const ys = points.map((g) => g.tflops).concat(limits.peaks.map(([, peak]) => peak));
  const reduced = (list, pick) => list.reduce((a, b) => pick(a, b));
  const xRange = [reduced(xs, Math.min) / 2, reduced(xs, Math.max) * 2.5];
  const yRange = [reduced(ys, Math.min) / 2, reduced(ys, Math.max) * 1.8];
  const x = logScale(...xRange, PLOT.left, PLOT.width - PLOT.right);
  const y = logScale(...yRange, PLOT.height - PLOT.bottom, PLOT.top);
  const svg = svgEl("svg", { class: "plot", viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, role: "img",
    "aria-label": `Roofline plot of ${points.length} ${what}; the table below has the numbers` });
  rooflineAxes(svg, x, y, xRange, yRange);
  rooflineRoofs(svg, x, y, limits, xRange, yRange);
  const longest = reduced(points.map((g) => g.time.total_us), Math.max);
  // Small ones last, so that none is hidden.
  for (const g of [...points].sort((a, b) => b.time.total_us - a.time.total_us)) {
    const radius = 3.5 + 9 * Math.sqrt(g.time.total_us / longest);
    const dot = svgEl("circle", { class: "dot side-" + (g.roofline_side ?? "unknown"), cx: x(g.intensity_flops_per_byte),
      cy: y(g.tflops), r: radius, tabindex: "0" });
    svg.append(withTip(dot, () => [el("b", {}, `${g.op || "product"} ${g.shapes ?? shapeText(g.shape) ?? ""}`), shortName(g.kernel),
      `${format.tflops(g.tflops)}, ${isKnown(g.peak_pct) ? format.percent(g.peak_pct) + " of peak, " : ""}${format.percent(g.attainable_pct)} of the roofline`,
      `${format.number(g.intensity_flops_per_byte)} FLOP per byte; ${plural(g.time.count, "launch", "launches")}, ${format.us(g.time.total_us)} in all`]));
  }
  const source = gemms.find((g) => g.peak_of)?.peak_of;
  return el("figure", {}, svg, el("figcaption", { class: "muted" },
    `One circle per ${what === "ops" ? "op" : "product"} and shape, its area by total time. `,
    source ? `Peak rates: ${source}.` : "No peak rate is known for this device."));
}
