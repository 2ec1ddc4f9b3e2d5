// The timeline's events and where they lie: lanes, rows, names, colours. Knows nothing of the canvas.

const ROW_HEIGHT = 18;
const LANE_HEAD = 20;
const LANE_GAP = 6;

// First position in [from, to) whose value in a sorted column is above `limit`.
function upperBound(column, from, to, limit) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (column[middle] > limit) to = middle;
    else from = middle + 1;
  }
  return from;
}

class TimelineModel {
  constructor(header, columns, kernels) {
    Object.assign(this, { header, columns, kernels, events: header.events, strings: header.strings });
    this.shortNames = new Array(this.strings.length);
    this.details = header.details.map((text) => text.split("\n").filter(Boolean).reduce((fields, line) => {
      const tab = line.indexOf("\t");
      if (tab >= 0) fields.push([line.slice(0, tab), line.slice(tab + 1)]);
      else if (fields.length > 0) fields[fields.length - 1][1] += "\n" + line;
      return fields;
    }, []));
    this.buildRows();
    this.findEnds();
    this.layOut();
  }

  buildRows() {
    let at = 0;
    this.lanes = this.header.lanes.map((lane) => ({
      name: lane.name,
      isDevice: lane.is_device,
      callsLane: lane.calls_lane,
      isOpen: true,
      rows: lane.rows.map((size) => ({ from: at, to: (at += size) })),
    }));
    for (const lane of this.lanes) {
      lane.from = lane.rows[0].from;
      lane.to = lane.rows[lane.rows.length - 1].to;
    }
  }

  findEnds() {
    this.first = Infinity;
    this.last = -Infinity;
    for (let i = 0; i < this.events; ++i) {
      this.first = Math.min(this.first, this.columns.start[i]);
      this.last = Math.max(this.last, this.end(i));
    }
  }

  // Sets each lane's and row's place from the top.
  layOut() {
    let y = 0;
    for (const lane of this.lanes) {
      lane.y = y;
      y += LANE_HEAD;
      lane.rows.forEach((row, depth) => {
        row.y = lane.isOpen || depth === 0 ? y : -1;
        if (row.y >= 0) y += ROW_HEIGHT;
      });
      y += LANE_GAP;
    }
    this.height = y;
  }

  end(i) {
    return this.columns.start[i] + this.columns.duration[i];
  }

  name(i) {
    return this.strings[this.columns.name[i]];
  }

  shortName(i) {
    const id = this.columns.name[i];
    return (this.shortNames[id] ??= shortName(this.strings[id]));
  }

  // Positions are sent counted from 1, 0 is none.
  opOf(i) {
    return this.columns.op[i] - 1;
  }

  launchOf(i) {
    return this.columns.launch[i] - 1;
  }

  laneOf(i) {
    return this.lanes.find((lane) => i >= lane.from && i < lane.to);
  }

  rowOf(i) {
    return this.laneOf(i).rows.find((row) => i >= row.from && i < row.to);
  }

  isWork(i) {
    const category = this.columns.category[i];
    return category === CATEGORY.kernel || category === CATEGORY.memcpy || category === CATEGORY.memset;
  }

  // The event of a row at a time, with some slack for narrow ones; -1: none.
  eventAt(row, time, slack) {
    const { start } = this.columns;
    const next = upperBound(start, row.from, row.to, time);
    const before = next - 1;
    if (before >= row.from && this.end(before) + slack >= time) return before;
    return next < row.to && start[next] - slack <= time ? next : -1;
  }

  // Device work that was launched within event i, on i's thread.
  workBelow(i) {
    const lane = this.lanes[this.laneOf(i).callsLane];
    const from = this.columns.start[i];
    const to = this.end(i);
    const found = [];
    if (!lane) return found;
    for (let k = 0; k < this.events; ++k) {
      const launch = this.launchOf(k);
      if (launch < 0 || !this.isWork(k) || launch < lane.from || launch >= lane.to) continue;
      const at = this.columns.start[launch];
      if (at >= from && at <= to) found.push(k);
    }
    return found;
  }

  // Marks the names that contain the text; returns the events of those names by start.
  search(text) {
    const query = text.trim().toLowerCase();
    if (query === "") return { names: null, events: [] };
    const names = Uint8Array.from(this.strings, (name) => (name.toLowerCase().includes(query) ? 1 : 0));
    const events = [];
    for (let i = 0; i < this.events; ++i) if (names[this.columns.name[i]]) events.push(i);
    events.sort((a, b) => this.columns.start[a] - this.columns.start[b]);
    return { names, events };
  }
}

// Kernels are coloured by the kind of work, everything else by its layer; ops vary with their name.
const KIND_COLORS = {
  gemm: "compute", gemv: "compute", "splitk-reduce": "compute", conv: "compute", attention: "compute2",
  elementwise: "memory", reduce: "reduce", softmax: "reduce", norm: "reduce", copy: "copy", fill: "copy",
  index: "index", sort: "index", embedding: "index", optimizer: "queue", collective: "communication", triton: "data",
};
const OP_TINTS = 6;

function textHash(text) {
  let hash = 0;
  for (let i = 0; i < text.length; ++i) hash = (hash * 31 + text.charCodeAt(i)) | 0;
  return hash >>> 0;
}

// The style sheet's name of an event's colour.
function colorName(category, name, kernels) {
  switch (category) {
    case CATEGORY.kernel: return KIND_COLORS[kernels.get(name)?.kind] ?? "other";
    case CATEGORY.memcpy:
    case CATEGORY.memset: return "copy";
    case CATEGORY.runtime:
    case CATEGORY.driver: return /synchronize/i.test(name) ? "sync" : "launch";
    case CATEGORY.overhead: return "profiler";
    case CATEGORY.annotation:
    case CATEGORY.gpuAnnotation: return "annotation";
    case CATEGORY.python: return "python";
    default: return "op" + (textHash(name) % OP_TINTS);
  }
}
