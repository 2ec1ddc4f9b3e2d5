// The roofline plots of matrix products and of other ops: achieved rate over arithmetic intensity, both logarithmic.

const PLOT = { width: 900, height: 400, left: 64, right: 24, top: 20, bottom: 48 };

// The ticks of a logarithmic axis: decades, with 2 and 5 times each where fewer than two decades lie on the axis.
function logTicks(low, high) {
  const decades = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p) decades.push(p);
  const within = (factors) => decades.flatMap((p) => factors.map((factor) => ({ factor, p, value: factor * 10 ** p })))
    .filter(({ value }) => value >= low * 0.999 && value <= high * 1.001);
  const whole = within([1]);
  return whole.length > 1 ? whole : within([1, 2, 5]);
}

// 0.01, 20, 5000, and 10\u207b\u2076 where digits would run into the name of the axis.
function tickNumber({ factor, p, value }) {
  if (p >= -2 && p <= 4) return p < 0 ? value.toFixed(-p) : String(Math.round(value));
  const power = [...String(p)].map((c) => (c === "-" ? "\u207b" : "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"[Number(c)])).join("");
  return (factor === 1 ? "" : factor + "\u00b7") + "10" + power;
}

// Peaks by type of arithmetic, and the memory bandwidth: what a product on the memory side can attain
// is its intensity times that.
function roofs(gemms) {
  const peaks = [];
  let bandwidth = null;
  for (const g of gemms) {
    if (isKnown(g.peak_tflops)) peaks.push([g.math_type || g.a_type || g.type, g.peak_tflops]);
    if (isKnown(g.peak_gb_per_s)) bandwidth = g.peak_gb_per_s / 1000;
    if (g.roofline_side === "memory" && isKnown(g.attainable_tflops)) {
      bandwidth = g.attainable_tflops / g.intensity_flops_per_byte; // TFLOP/s per FLOP/byte = TB/s
    }
  }
  return { peaks: samePeaks(peaks), bandwidth };
}

// Types that share a rate share a line, the fastest first. A type may have two: of matrix units, and of the others.
function samePeaks(peaks) {
  const byRate = new Map();
  for (const [type, peak] of peaks) {
    const rate = format.tflops(peak);
    if (!byRate.has(rate)) byRate.set(rate, { peak, types: new Set() });
    if (type) byRate.get(rate).types.add(type);
  }
  return [...byRate.values()].sort((a, b) => b.peak - a.peak);
}

// "bf16, f32 peak 67.0 TFLOP/s"; of many types the first ones.
function peakLabel({ types, peak }) {
  const named = types.size > 3 ? [...[...types].slice(0, 3), "..."] : [...types];
  return [named.join(", "), "peak", format.tflops(peak)].filter(Boolean).join(" ");
}

function logScale(low, high, from, to) {
  const span = Math.log(high / low);
  return (value) => from + (Math.log(value / low) / span) * (to - from);
}

function rooflineAxes(svg, x, y, xRange, yRange) {
  const { left, right, top, bottom, width, height } = PLOT;
  for (const tick of logTicks(...xRange)) {
    const at = x(tick.value);
    svg.append(svgEl("line", { class: "grid", x1: at, x2: at, y1: top, y2: height - bottom }),
      svgEl("text", { class: "tick", x: at, y: height - bottom + 16, "text-anchor": "middle" }, tickNumber(tick)));
  }
  for (const tick of logTicks(...yRange)) {
    const at = y(tick.value);
    svg.append(svgEl("line", { class: "grid", x1: left, x2: width - right, y1: at, y2: at }),
      svgEl("text", { class: "tick", x: left - 8, y: at + 4, "text-anchor": "end" }, tickNumber(tick)));
  }
  svg.append(svgEl("text", { class: "axis", x: (left + width - right) / 2, y: height - 10, "text-anchor": "middle" },
    "arithmetic intensity, FLOP per byte"),
  svgEl("text", { class: "axis", x: 16, y: (top + height - bottom) / 2, "text-anchor": "middle",
    transform: `rotate(-90 16 ${(top + height - bottom) / 2})` }, "achieved, TFLOP/s"));
}

function rooflineRoofs(svg, x, y, { peaks, bandwidth }, xRange, yRange) {
  for (const same of peaks) {
    const { peak } = same;
    const ridge = bandwidth === null ? xRange[0] : Math.min(Math.max(peak / bandwidth, xRange[0]), xRange[1]);
    svg.append(svgEl("line", { class: "roof", x1: x(ridge), x2: x(xRange[1]), y1: y(peak), y2: y(peak) }),
      svgEl("text", { class: "tick", x: PLOT.width - PLOT.right, y: y(peak) - 5, "text-anchor": "end" },
        peakLabel(same)));
  }
  if (bandwidth === null || peaks.length === 0) return;
  const last = peaks[0].peak / bandwidth;
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
  const ys = points.map((g) => g.tflops).concat(limits.peaks.map(({ peak }) => peak));
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
