// What changes over time: allocated memory, with who held it at the peak, and the length of queues.

const MEMORY_PLOT = { height: 220, left: 76, right: 20, top: 18, bottom: 34 };

function deviceLabel(memory) {
  return memory.device_type === 0 ? "CPU" : `Device ${memory.device}`;
}

// A quantity over time, in steps. `peak` is [us, value]; the scale has powers of 2 for `base` 2.
function stepPlot(curve, originUs, label, peak, text, base) {
  const { height, left, right, top, bottom } = MEMORY_PLOT;
  const width = plotWidth();
  if (curve.length < 2) return null;
  const first = curve[0][0];
  const last = curve[curve.length - 1][0];
  const low = Math.min(0, ...curve.map(([, bytes]) => bytes));
  const high = Math.max(low + 1, ...curve.map(([, bytes]) => bytes)) * 1.06;
  const x = (us) => left + ((us - first) / Math.max(last - first, 1e-3)) * (width - left - right);
  const y = (bytes) => height - bottom - ((bytes - low) / (high - low)) * (height - top - bottom);
  const svg = svgEl("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": label });
  const step = base === 2 ? 2 ** Math.ceil(Math.log2((high - low) / 4)) : Math.max(niceStep(high - low, 4), 1);
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
    svg.append(svgEl("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svgEl("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, value === 0 ? "0" : text(value)));
  }
  timeTicks(svg, first, last, originUs, x, height - bottom + 18, width);
  // Steps, not slopes: it changes at events.
  let path = `M${x(first).toFixed(1)} ${y(curve[0][1]).toFixed(1)}`;
  for (const [us, bytes] of curve) path += `H${x(us).toFixed(1)}V${y(bytes).toFixed(1)}`;
  svg.append(svgEl("path", { class: "area", d: `${path}V${y(low).toFixed(1)}H${x(first).toFixed(1)}Z` }),
    svgEl("path", { class: "curve", d: path }),
    svgEl("circle", { class: "peak", cx: x(peak[0]), cy: y(peak[1]), r: 4 }),
    svgEl("text", { class: "tick strong", x: Math.min(x(peak[0]), width - 120) + 8, y: Math.max(y(peak[1]) - 6, 12) },
      "peak " + text(peak[1])));
  return svg;
}

// How much was launched and had not begun, per stream.
function queuePlots(report) {
  return report.explanation.queues.map((queue, i) => {
    if (queue.max_length === 0) return null;
    const label = `Device ${queue.device}, stream ${queue.stream}`;
    return el("div", { class: "memory" }, el("h3", {}, label),
      note(`Launched and not begun: at most ${format.count(queue.max_length)}, on average ${format.number(queue.mean_length)}; of ${plural(queue.works, "launch", "launches")}.`),
      stepPlot(report.queue_curves[i], report.timeline.origin_us, `${label}: queue over time, at most ${format.count(queue.max_length)}`,
        [queue.max_us, queue.max_length], format.count, 10));
  });
}

// Memory of the device at this place, over time.
function memoryPlot(report, at) {
  const memory = report.explanation.memory[at];
  return stepPlot(report.memory_curves[at], report.timeline.origin_us,
    `${deviceLabel(memory)}: memory over time, peak ${format.bytes(memory.peak_bytes)}`,
    [memory.peak_us, memory.peak_bytes], format.bytes, 2);
}
