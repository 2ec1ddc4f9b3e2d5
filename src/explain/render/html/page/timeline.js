// The timeline: what is visible, selected and searched for, and how the pointer and the keys change it.

const VIEW_HEIGHT = 560;
const ZOOM_STEP = 1.25;
const PAN_STEP = 0.12;
const MIN_SPAN_NS = 50;
const CLICK_SLACK_PX = 4;

class Timeline {
  constructor(model, nodes) {
    Object.assign(this, { model, nodes });
    this.painter = new TimelinePainter(nodes.canvas, model);
    this.view = { from: 0, to: 1, scroll: 0, hovered: -1, selected: -1, related: [], matches: null };
    this.found = [];
    this.foundAt = -1;
    this.pointers = new Map();
    this.fit();
    this.listen();
    this.resize();
  }

  // --- what is visible ---

  get margin() {
    return (this.model.last - this.model.first) * 0.01 + MIN_SPAN_NS / 2;
  }

  fit() {
    this.setRange(this.model.first - this.margin, this.model.last + this.margin);
  }

  setRange(from, to) {
    const low = this.model.first - this.margin;
    const high = this.model.last + this.margin;
    const span = Math.min(Math.max(to - from, MIN_SPAN_NS), high - low);
    const start = Math.min(Math.max(from + (to - from - span) / 2, low), high - span);
    Object.assign(this.view, { from: start, to: start + span });
    this.redraw();
  }

  zoom(factor, atX) {
    const { from, to } = this.view;
    const share = atX / this.painter.width;
    const middle = from + (to - from) * share;
    const span = Math.max((to - from) / factor, MIN_SPAN_NS);
    this.setRange(middle - span * share, middle + span * (1 - share));
  }

  pan(pixels) {
    const ns = (pixels / this.painter.width) * (this.view.to - this.view.from);
    this.setRange(this.view.from + ns, this.view.to + ns);
  }

  redraw() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      this.view.scroll = this.nodes.scroller.scrollTop;
      const started = performance.now();
      this.painter.draw(this.view);
      this.drawMs = performance.now() - started;
    });
  }

  resize() {
    const full = this.model.height + AXIS_HEIGHT;
    const height = Math.min(full, VIEW_HEIGHT, Math.max(240, innerHeight * 0.7));
    this.nodes.scroller.style.height = height + "px";
    this.nodes.spacer.style.height = full + "px";
    this.painter.resize(this.nodes.scroller.clientWidth, height);
    this.redraw();
  }

  // --- selection and search ---

  select(i, isShown = true) {
    this.view.selected = i;
    this.view.related = i < 0 || this.model.isWork(i) ? [] : this.model.workBelow(i);
    if (i >= 0 && isShown) this.reveal(i);
    showEventPanel(this.nodes.panel, this.model, i, this.view.related, (next) => this.select(next));
    this.redraw();
  }

  // Makes an event visible, with some room around it.
  reveal(i) {
    const lane = this.model.laneOf(i);
    const row = this.model.rowOf(i);
    if (row.y < 0) this.toggle(lane);
    const { start, duration } = this.model.columns;
    const { from, to } = this.view;
    const isWide = duration[i] * this.painter.width >= 3 * (to - from);
    if (start[i] < from || this.model.end(i) > to || !isWide) {
      const room = Math.max(duration[i] * 6, MIN_SPAN_NS);
      this.setRange(start[i] - room, this.model.end(i) + room);
    }
    const { scroller } = this.nodes;
    const bottom = scroller.scrollTop + scroller.clientHeight - AXIS_HEIGHT - ROW_HEIGHT;
    if (row.y < scroller.scrollTop || row.y > bottom) scroller.scrollTop = row.y - scroller.clientHeight / 2;
  }

  search(text) {
    const { names, events } = this.model.search(text);
    this.view.matches = names;
    this.found = events;
    this.foundAt = -1;
    this.nodes.search.value = text;
    this.nodes.count.textContent = names ? plural(events.length, "match", "matches") : "";
    this.nodes.root.scrollIntoView({ block: "nearest" });
    this.redraw();
  }

  nextMatch(step) {
    if (this.found.length === 0) return;
    const n = this.found.length;
    this.foundAt = this.foundAt < 0 ? (step > 0 ? 0 : n - 1) : (this.foundAt + step + n) % n;
    this.nodes.count.textContent = `${format.count(this.foundAt + 1)} of ${format.count(n)}`;
    this.select(this.found[this.foundAt]);
  }

  // A range in the trace's own microseconds.
  showRange(fromUs, toUs) {
    const origin = this.model.header.origin_us;
    const margin = (toUs - fromUs) * 0.02;
    this.setRange((fromUs - margin - origin) * 1000, (toUs + margin - origin) * 1000);
    this.nodes.root.scrollIntoView({ block: "start", behavior: "smooth" });
  }

  toggle(lane) {
    lane.isOpen = !lane.isOpen;
    this.model.layOut();
    this.resize();
  }

  // --- pointer and keys ---

  place(event) {
    const box = this.nodes.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  // The lane head or event under a point: {lane} or {event} or {}.
  hit({ x, y }) {
    const contentY = y - AXIS_HEIGHT + this.nodes.scroller.scrollTop;
    if (y < AXIS_HEIGHT) return {};
    for (const lane of this.model.lanes) {
      if (contentY < lane.y) break;
      if (contentY < lane.y + LANE_HEAD) return { lane };
      const row = lane.rows.find((r) => r.y >= 0 && contentY >= r.y && contentY < r.y + ROW_HEIGHT);
      if (!row) continue;
      const perPixel = (this.view.to - this.view.from) / this.painter.width;
      return { event: this.model.eventAt(row, this.view.from + x * perPixel, 2 * perPixel) };
    }
    return {};
  }

  listen() {
    const { canvas, scroller, search } = this.nodes;
    scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("dblclick", () => this.fit());
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    for (const type of ["pointerup", "pointercancel"]) canvas.addEventListener(type, (event) => this.onUp(event));
    canvas.addEventListener("pointerleave", () => this.hover(-1));
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => event.key === "Enter" && this.nextMatch(event.shiftKey ? -1 : 1));
    new ResizeObserver(() => this.resize()).observe(this.nodes.root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.painter.readColors();
      this.redraw();
    });
  }

  // Zooms once the timeline has the focus or with Ctrl; else the page scrolls on as one expects.
  onWheel(event) {
    const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const isOurs = event.ctrlKey || event.metaKey || document.activeElement === this.nodes.canvas;
    if (!isOurs && !isSideways) return;
    event.preventDefault();
    if (isSideways) this.pan(event.deltaX || event.deltaY);
    else this.zoom(2 ** (-event.deltaY / 240), this.place(event).x);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { width } = this.painter;
    const middle = this.pointerX ?? width / 2;
    const actions = {
      w: () => this.zoom(ZOOM_STEP, middle), s: () => this.zoom(1 / ZOOM_STEP, middle),
      a: () => this.pan(-width * PAN_STEP), d: () => this.pan(width * PAN_STEP),
      arrowleft: () => this.pan(-width * PAN_STEP), arrowright: () => this.pan(width * PAN_STEP),
      "+": () => this.zoom(ZOOM_STEP, middle), "-": () => this.zoom(1 / ZOOM_STEP, middle),
      f: () => this.view.selected >= 0 && this.reveal(this.view.selected), 0: () => this.fit(),
      n: () => this.nextMatch(1), p: () => this.nextMatch(-1), escape: () => this.select(-1),
    };
    const action = actions[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  }

  onDown(event) {
    this.nodes.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.place(event));
    this.pressedAt = this.place(event);
    this.hasMoved = false;
  }

  onMove(event) {
    const at = this.place(event);
    this.pointerX = at.x;
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.hover(this.hit(at).event ?? -1, event);
      return;
    }
    if (this.pointers.size === 2) this.pinch(event.pointerId, at);
    else if (this.hasMoved || Math.abs(at.x - this.pressedAt.x) > CLICK_SLACK_PX) {
      this.hasMoved = true;
      this.pan(before.x - at.x);
      tip.hide();
    }
    this.pointers.set(event.pointerId, at);
  }

  // Two fingers: the distance zooms around the one that rests.
  pinch(id, at) {
    const other = [...this.pointers].find(([key]) => key !== id)[1];
    const before = Math.abs(this.pointers.get(id).x - other.x);
    const now = Math.abs(at.x - other.x);
    this.hasMoved = true;
    if (before > 10 && now > 10) this.zoom(now / before, other.x);
  }

  onUp(event) {
    if (!this.pointers.delete(event.pointerId) || this.hasMoved || event.type === "pointercancel") return;
    const { lane, event: i = -1 } = this.hit(this.place(event));
    if (lane) this.toggle(lane);
    else this.select(i, false);
  }

  hover(i, event) {
    if (i !== this.view.hovered) {
      this.view.hovered = i;
      this.redraw();
    }
    if (i < 0) tip.hide();
    else tip.show(event, hoverLines(this.model, i));
  }
}

function showTimeline(report, columns, index) {
  if (report.timeline.events === 0) return null;
  const model = new TimelineModel(report.timeline, columns, index);
  const nodes = {
    canvas: el("canvas", { tabindex: "0", role: "application",
      "aria-label": "Timeline. W and S zoom, A and D move, 0 fits, Escape clears the selection." }),
    search: el("input", { type: "search", placeholder: "Search", title: "Enter: next match, Shift+Enter: the one before", "aria-label": "Search the timeline" }),
    count: el("span", { class: "muted", "aria-live": "polite" }),
    panel: el("div", { class: "panel", hidden: true, "aria-live": "polite" }),
  };
  nodes.spacer = el("div", {}, nodes.canvas); // as high as all rows; the canvas sticks to its top
  nodes.scroller = el("div", { class: "timeline-view" }, nodes.spacer);
  let timeline = null;
  const button = (label, title, act) => el("button", { type: "button", title, onclick: () => act() }, label);
  const bar = el("div", { class: "table-bar" }, nodes.search, nodes.count, el("span", { class: "grow" }),
    button("+", "Zoom in (W)", () => timeline.zoom(2, timeline.painter.width / 2)),
    button("\u2212", "Zoom out (S)", () => timeline.zoom(0.5, timeline.painter.width / 2)),
    button("Fit", "Show all (0, double click)", () => timeline.fit()));
  nodes.root = el("div", { class: "timeline" }, bar, nodes.scroller, nodes.panel);
  addSection("timeline", "Timeline", nodes.root,
    note("Drag to move. Zoom with two fingers or Ctrl and the wheel; after a click the wheel alone and W A S D do it, too. " +
      "A click selects an event or folds a lane; a double click shows all."));
  timeline = new Timeline(model, nodes);
  window.epilogueTimeline = timeline; // for the browser's console
  return timeline;
}
