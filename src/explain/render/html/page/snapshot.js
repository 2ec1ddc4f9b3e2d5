// The page of a memory snapshot: what is alive over time by category, and the map of addresses over time.

const SNAPSHOT_COLORS = { "parameters": "#3b6fb6", "gradients": "#c7762b", "optimizer state": "#7d58b3", "activations": "#3f9260",
  "inputs": "#2b9aa8", "workspaces": "#a3556b", "temporary": "#b9a23c", "unknown": "#8a8f98" };

function showSnapshotPage(report) {
  byId("subtitle").textContent = report.subtitle;
  for (const text of report.explanation.notes) byId("verdict-more").append(note(text));
  for (const section of report.sections) showSection(section, report, new Map(), null);
}

function snapshotFindings(device) {
  if (device.findings.length === 0) return note("Nothing in this snapshot crosses a threshold.");
  return el("ul", { class: "prose" }, device.findings.map((f) => el("li", {}, el("b", {}, f.title),
    ...f.evidence.map((line) => el("div", { class: "muted" }, line)), f.remedy ? el("div", {}, "Remedy: " + f.remedy) : null)));
}

function snapshotLegend(names) {
  return el("p", { class: "muted" }, names.map((name) => {
    const box = svgEl("svg", { width: 12, height: 12, viewBox: "0 0 12 12" });
    box.append(svgEl("rect", { width: 12, height: 12, fill: SNAPSHOT_COLORS[name] }));
    return el("span", {}, box, " " + name + "   ");
  }));
}

const SNAPSHOT_PLOT = { height: 300, left: 76, right: 20, top: 18, bottom: 34 };

// Axes of bytes upwards; `high` is the largest value.
function snapshotAxes(svg, width, high) {
  const { height, left, right, top, bottom } = SNAPSHOT_PLOT;
  const y = (bytes) => height - bottom - (bytes / Math.max(high, 1)) * (height - top - bottom);
  const step = 2 ** Math.ceil(Math.log2(Math.max(high, 4) / 4));
  for (let value = 0; value <= high; value += step) {
    svg.append(svgEl("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svgEl("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, value === 0 ? "0" : format.bytes(value)));
  }
  return y;
}

// How many parts the labels below a plot divide it into, so that none runs into the next.
function timeSteps(width) {
  return Math.max(1, Math.min(4, Math.floor((width - SNAPSHOT_PLOT.left - SNAPSHOT_PLOT.right) / 110)));
}

// Allocated memory by category, one on the other, and reserved memory above.
function snapshotCurve(drawing) {
  const points = drawing.curve;
  if (points.length < 2) return null;
  const { height, left, right, bottom } = SNAPSHOT_PLOT;
  const width = plotWidth();
  const high = Math.max(...points.map((p) => Math.max(p[1], p[2]))) * 1.05;
  const svg = svgEl("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Memory by category over the history" });
  const y = snapshotAxes(svg, width, high);
  const x = (i) => left + (i / (points.length - 1)) * (width - left - right);
  const base = points.map(() => 0);
  drawing.categories.forEach((name, c) => {
    if (!points.some((p) => p[3][c] > 0)) return;
    let up = "";
    let down = "";
    points.forEach((p, i) => {
      down = `L${x(i).toFixed(1)} ${y(base[i]).toFixed(1)}` + down;
      base[i] += Math.max(p[3][c], 0);
      up += `${i === 0 ? "M" : "L"}${x(i).toFixed(1)} ${y(base[i]).toFixed(1)}`;
    });
    svg.append(svgEl("path", { d: up + down + "Z", fill: SNAPSHOT_COLORS[name] }));
  });
  const line = (at, dash) => svgEl("path", { class: "curve", fill: "none", "stroke-dasharray": dash,
    d: points.map((p, i) => `${i === 0 ? "M" : "L"}${x(i).toFixed(1)} ${y(p[at]).toFixed(1)}`).join("") });
  svg.append(line(2, "4 3"));
  const steps = timeSteps(width);
  for (let i = 0; i <= steps; ++i) {
    const at = Math.round((i / steps) * (points.length - 1));
    const label = drawing.has_times ? format.us(points[at][0]) : "event " + format.count(points[at][0]);
    svg.append(svgEl("text", { class: "tick", x: x(at), y: height - bottom + 18, "text-anchor": i === 0 ? "start" : i === steps ? "end" : "middle" }, label));
  }
  return el("div", {}, el("h3", {}, "Allocated by category; reserved dashed"), snapshotLegend(drawing.categories), svg);
}

// Each allocation is a rectangle: its life by its addresses. Segments lie behind; what is grey in them is free.
function snapshotMap(drawing) {
  if (drawing.map_bytes === 0 || drawing.places < 1) return null;
  const { left, right, top, bottom, height } = SNAPSHOT_PLOT;
  const width = plotWidth();
  const tall = height + 180;
  const ratio = window.devicePixelRatio || 1;
  const canvas = el("canvas", { role: "img", "aria-label": "Segments and allocations: addresses over the history" });
  canvas.width = width * ratio;
  canvas.height = tall * ratio;
  canvas.style.width = width + "px";
  canvas.style.maxWidth = "100%";  // of a window that is made narrower later
  const draw = canvas.getContext("2d");
  draw.scale(ratio, ratio);
  const x = (place) => left + (place / drawing.places) * (width - left - right);
  const y = (bytes) => tall - bottom - (bytes / drawing.map_bytes) * (tall - top - bottom);
  const fill = ([begin, end, at, bytes], color) => {
    draw.fillStyle = color;
    draw.fillRect(x(begin), y(at + bytes), Math.max(x(end) - x(begin), 0.5), Math.max(y(at) - y(at + bytes), 0.5));
  };
  const paint = () => {
    draw.clearRect(0, 0, width, tall);
    const style = getComputedStyle(document.body);
    for (const segment of drawing.segments) fill(segment, "rgba(128,128,128,0.25)");
    for (const life of drawing.lives) fill(life, SNAPSHOT_COLORS[drawing.categories[life[4]]]);
    draw.fillStyle = style.color;
    draw.font = "12px sans-serif";
    draw.textAlign = "right";
    for (let i = 0; i <= 4; ++i) draw.fillText(i === 0 ? "0" : format.bytes(drawing.map_bytes * i / 4), left - 8, y(drawing.map_bytes * i / 4) + 4);
    const steps = timeSteps(width);
    for (let i = 0; i <= steps; ++i) {
      const event = Math.round((i / steps) * (drawing.places - 1));
      draw.textAlign = i === 0 ? "left" : i === steps ? "right" : "center";
      draw.fillText("event " + format.count(event), i === steps ? width - right : x(event), tall - 12);
    }
    draw.strokeStyle = style.color;
    draw.beginPath();
    draw.moveTo(x(drawing.peak_at), top);
    draw.lineTo(x(drawing.peak_at), tall - bottom);
    draw.stroke();
  };
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);  // the text's colour
  const status = el("p", { class: "muted" }, "Point at a rectangle: what it is.");
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const place = (((event.clientX - box.left) / box.width) * width - left) / (width - left - right) * drawing.places;
    const at = (tall - bottom - ((event.clientY - box.top) / box.height) * tall) / (tall - top - bottom) * drawing.map_bytes;
    const hit = drawing.lives.find(([begin, end, first, bytes]) => begin <= place && place < end && first <= at && at < first + bytes);
    status.textContent = hit
      ? `${format.bytes(hit[3])}, ${drawing.categories[hit[4]]}: ${drawing.labels[hit[5]] || "no frames"}; events ${hit[0]} to ${hit[1]}`
      : "Free, or not among the allocations that are drawn.";
  });
  return el("div", {}, el("h3", {}, "Segments and allocations over the history: addresses upwards, grey is free, the line is the peak"),
    snapshotLegend(drawing.categories), canvas, status,
    drawing.lives_left_out > 0 ? note(`${format.count(drawing.lives_left_out)} small or short allocations are not drawn.`) : null);
}
