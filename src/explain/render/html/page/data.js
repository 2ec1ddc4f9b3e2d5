// Reads what the page carries: base64 of gzip in <script type="text/plain"> elements.

function base64Bytes(id) {
  const text = byId(id).textContent;
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function unpacked(id) {
  const stream = new Blob([base64Bytes(id)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Lists that the page holds in part know how many rows are not in it.
function markCutLists(report) {
  for (const [path, rows] of Object.entries(report.left_out ?? {})) {
    path.split(".").reduce((value, key) => value[key], report).leftOut = rows;
  }
}

class VarintReader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  // Sums by multiplication: bit operations would cut values at 32 bits.
  next() {
    let value = 0;
    let factor = 1;
    for (;;) {
      const byte = this.bytes[this.at++];
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
      factor *= 128;
    }
  }

  nextSigned() {
    const value = this.next();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  column(array) {
    for (let i = 0; i < array.length; ++i) array[i] = this.next();
    return array;
  }
}

// The timeline's events as columns, by lane, row and start. Times are in ns from the origin.
function readColumns(bytes, header) {
  const n = header.events;
  const reader = new VarintReader(bytes);
  const columns = {
    category: reader.column(new Uint8Array(n)),
    name: reader.column(new Uint32Array(n)),
    detail: reader.column(new Uint32Array(n)),
    op: reader.column(new Uint32Array(n)),
    launch: reader.column(new Uint32Array(n)),
    duration: reader.column(new Float64Array(n)),
    start: new Float64Array(n),
  };
  let at = 0;
  for (const lane of header.lanes) {
    for (const size of lane.rows) {
      let end = 0;
      for (const last = at + size; at < last; ++at) {
        columns.start[at] = end + reader.nextSigned();
        end = columns.start[at] + columns.duration[at];
      }
    }
  }
  return columns;
}

// Positions of Category in event.h.
const CATEGORY = {
  op: 0, annotation: 1, gpuAnnotation: 2, kernel: 3, memcpy: 4, memset: 5, runtime: 6, driver: 7,
  python: 11, overhead: 12,
};
const CATEGORY_TEXT = {
  0: "op", 1: "annotation", 2: "annotation on the device", 3: "kernel", 4: "copy", 5: "fill",
  6: "runtime call", 7: "driver call", 11: "Python", 12: "profiler overhead", 14: "kernel share",
};
