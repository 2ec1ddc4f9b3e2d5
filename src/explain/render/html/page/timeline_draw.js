// Draws the visible part of the timeline. A row costs one binary search and at most one rectangle per
// pixel, however many events it has.

const AXIS_HEIGHT = 24;
const MIN_TEXT_WIDTH = 28;
const CHAR_WIDTH = 6.7; // of the 11 px system font, about: measuring each text would be slow
const TEXT_FONT = "11px system-ui, sans-serif";

class TimelinePainter {
  constructor(canvas, model) {
    Object.assign(this, { canvas, model, context: canvas.getContext("2d") });
    this.readColors();
  }

  readColors() {
    const style = getComputedStyle(document.documentElement);
    const css = (name) => style.getPropertyValue("--" + name).trim();
    this.theme = {
      background: css("bg"), text: css("text"), muted: css("muted"), line: css("line"), panel: css("panel"), accent: css("accent"),
    };
    this.fills = new Map(); // by category and name
    this.css = css;
  }

  // [fill, text] of an event.
  colors(i) {
    const { category, name } = this.model.columns;
    const key = category[i] * 0x100000000 + name[i];
    let pair = this.fills.get(key);
    if (!pair) {
      const color = colorName(category[i], this.model.strings[name[i]], this.model.kernels);
      pair = [this.css("c-" + color), this.css("t-" + color) || this.css("on-color")];
      this.fills.set(key, pair);
    }
    return pair;
  }

  resize(width, height) {
    const ratio = devicePixelRatio || 1;
    Object.assign(this, { width, height });
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = width + "px";
    this.canvas.style.height = height + "px";
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  draw(view) {
    const { context, theme } = this;
    this.view = view;
    this.perNs = this.width / (view.to - view.from);
    this.painted = 0;
    context.fillStyle = theme.background;
    context.fillRect(0, 0, this.width, this.height);
    context.font = TEXT_FONT;
    context.textBaseline = "middle";
    this.drawTicks(false);
    for (const lane of this.model.lanes) this.drawLane(lane);
    this.drawMarks();
    this.drawAxis();
  }

  x(time) {
    return (time - this.view.from) * this.perNs;
  }

  y(contentY) {
    return contentY - this.view.scroll + AXIS_HEIGHT;
  }

  drawLane(lane) {
    const { context, theme } = this;
    const y = this.y(lane.y);
    const bottom = y + LANE_HEAD + lane.rows.length * ROW_HEIGHT;
    if (bottom < 0 || y > this.height) return;
    context.fillStyle = theme.panel;
    context.fillRect(0, y, this.width, LANE_HEAD);
    context.fillStyle = theme.text;
    context.textAlign = "left";
    const hidden = lane.rows.length - 1;
    const fold = hidden > 0 ? (lane.isOpen ? "\u25be " : "\u25b8 ") : "   ";
    context.fillText(fold + lane.name + (lane.isOpen || hidden === 0 ? "" : ` (${hidden} more rows)`), 6, y + LANE_HEAD / 2 + 1);
    for (const row of lane.rows) {
      if (row.y < 0) continue;
      const rowY = this.y(row.y);
      if (rowY > -ROW_HEIGHT && rowY < this.height) this.drawRow(row, rowY);
    }
  }

  drawRow(row, y) {
    const { start } = this.model.columns;
    const { from, to, matches } = this.view;
    const pixel = 1 / this.perNs;
    // The last event that starts before the view may reach into it.
    let i = Math.max(row.from, upperBound(start, row.from, row.to, from) - 1);
    while (i < row.to && start[i] < to) {
      const end = this.model.end(i);
      if (end < from) {
        ++i;
        continue;
      }
      this.drawEvent(i, Math.max(start[i], from), Math.min(end, to), y, matches);
      i = this.nextInRow(i, row, pixel);
    }
  }

  // Events on the pixel that event i was painted on are part of it, but for one that reaches further.
  nextInRow(i, row, pixel) {
    const { start, duration } = this.model.columns;
    if (duration[i] >= pixel) return i + 1;
    const limit = start[i] + pixel;
    const next = upperBound(start, i + 1, row.to, limit);
    return next - 1 > i && this.model.end(next - 1) > limit ? next - 1 : next;
  }

  drawEvent(i, from, to, y, matches) {
    const { context } = this;
    const x = this.x(from);
    const width = Math.max((to - from) * this.perNs, 1);
    const [fill, text] = this.colors(i);
    const isMatch = !matches || matches[this.model.columns.name[i]];
    context.globalAlpha = isMatch ? 1 : 0.18;
    context.fillStyle = fill;
    // Half a pixel of the background keeps neighbours apart.
    context.fillRect(x, y, width > 3 ? width - 0.5 : width, ROW_HEIGHT - 1);
    ++this.painted;
    if (width >= MIN_TEXT_WIDTH) {
      const room = Math.floor((width - 8) / CHAR_WIDTH);
      const name = this.model.shortName(i);
      context.fillStyle = text;
      context.textAlign = "left";
      context.fillText(name.length > room ? name.slice(0, Math.max(room - 1, 1)) + "\u2026" : name, x + 4, y + ROW_HEIGHT / 2);
    }
    context.globalAlpha = 1;
  }

  // The selected and the hovered event, and the line from the launch to the kernel.
  drawMarks() {
    const { hovered, selected } = this.view;
    if (hovered >= 0 && hovered !== selected) this.outline(hovered, this.theme.muted, 1);
    if (selected < 0) return;
    const kernels = this.model.isWork(selected) ? [selected] : this.view.related;
    for (const kernel of kernels) this.drawArrow(this.model.launchOf(kernel), kernel);
    this.outline(selected, this.theme.text, 2);
  }

  outline(i, color, width) {
    const row = this.model.rowOf(i);
    if (row.y < 0) return;
    const x = this.x(this.model.columns.start[i]);
    const right = this.x(this.model.end(i));
    this.context.strokeStyle = color;
    this.context.lineWidth = width;
    const left = Math.max(x, -4);
    this.context.strokeRect(left, this.y(row.y), Math.max(Math.min(right, this.width + 4) - left, 2), ROW_HEIGHT - 1);
  }

  drawArrow(launch, kernel) {
    if (launch < 0) return;
    const from = this.model.rowOf(launch);
    const to = this.model.rowOf(kernel);
    if (from.y < 0 || to.y < 0) return;
    const { context } = this;
    const x0 = this.x(this.model.end(launch));
    const x1 = this.x(this.model.columns.start[kernel]);
    const y0 = this.y(from.y) + ROW_HEIGHT / 2;
    const y1 = this.y(to.y) + ROW_HEIGHT / 2;
    // To a launch far away the line would run through everything; the panel links to it.
    if (Math.min(x0, x1) < 0 || Math.max(x0, x1) > this.width) return;
    context.strokeStyle = this.theme.accent;
    context.lineWidth = 1.25;
    const bend = Math.max(Math.abs(x1 - x0) / 2, 12);
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    context.stroke();
  }

  drawTicks(hasText) {
    const { context, theme, view } = this;
    const step = niceStep(view.to - view.from, Math.max(2, this.width / 110));
    context.textAlign = "left";
    for (let t = Math.ceil(view.from / step) * step; t < view.to; t += step) {
      const x = Math.round(this.x(t)) + 0.5;
      context.fillStyle = theme.line;
      context.fillRect(x, hasText ? AXIS_HEIGHT - 6 : AXIS_HEIGHT, 1, hasText ? 6 : this.height);
      context.fillStyle = theme.muted;
      if (hasText) context.fillText(tickText(t, step), x + 4, AXIS_HEIGHT / 2);
    }
  }

  drawAxis() {
    const { context, theme } = this;
    context.fillStyle = theme.background;
    context.fillRect(0, 0, this.width, AXIS_HEIGHT);
    this.drawTicks(true);
    context.fillStyle = theme.line;
    context.fillRect(0, AXIS_HEIGHT - 1, this.width, 1);
  }
}

// In the unit that fits the time, with the digits that fit the step: deep in a trace two ticks may
// differ in the seventh digit only.
function tickText(ns, step) {
  const size = Math.max(Math.abs(ns), step);
  const [unit, scale] = size >= 1e9 ? ["s", 1e9] : size >= 1e6 ? ["ms", 1e6] : size >= 1e3 ? ["\u00b5s", 1e3] : ["ns", 1];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9));
  return (ns / scale).toFixed(Math.min(digits, 9)) + " " + unit;
}
