// Numbers with units. null is "unknown" and shows as a dash, never as 0.

const DASH = "\u2013";
const isKnown = (value) => value !== null && value !== undefined && Number.isFinite(value);

function threeDigits(value) {
  const size = Math.abs(value);
  if (size >= 100 || size === 0) return Math.round(value).toLocaleString("en-US");
  if (size < 0.1) return value.toPrecision(2);
  return size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function scaled(value, base, units) {
  let at = 0;
  while (at + 1 < units.length && Math.abs(value) >= base * 0.9995) {
    value /= base;
    ++at;
  }
  const isWhole = at === 0 && Number.isInteger(value);
  return (isWhole ? value.toFixed(0) : threeDigits(value)) + "\u00a0" + units[at];
}

const format = {
  count: (n) => (isKnown(n) ? Math.round(n).toLocaleString("en-US") : DASH),
  number: (n) => (isKnown(n) ? threeDigits(n) : DASH),
  percent: (n) => (isKnown(n) ? n.toFixed(1) + "\u00a0%" : DASH),
  us(us) {
    if (!isKnown(us)) return DASH;
    if (us === 0) return "0";
    return scaled(us * 1000, 1000, ["ns", "\u00b5s", "ms", "s"]);
  },
  // A moment: with all the digits it has, unlike a duration.
  moment: (us) => (us / 1000).toLocaleString("en-US", { minimumFractionDigits: 3, maximumFractionDigits: 6 }) + "\u00a0ms",
  signedUs: (us) => (us > 0 ? "+" : us < 0 ? "\u2212" : "") + format.us(Math.abs(us)),
  bytes: (n) => (isKnown(n) ? scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]) : DASH),
  flops: (n) => (isKnown(n) ? scaled(n, 1000, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"]) : DASH),
  tflops: (n) => (isKnown(n) ? threeDigits(n) + "\u00a0TFLOP/s" : DASH),
  bandwidth: (n) => (isKnown(n) ? threeDigits(n) + "\u00a0GB/s" : DASH),
};

// Kernel names without what every one of them has.
function shortName(name) {
  return name
    .replace(/^void /, "")
    .replaceAll("at::native::", "")
    .replaceAll("(anonymous namespace)::", "")
    .replace(/^(detail|internal)::/, "");
}

function plural(n, word, words = word + "s") {
  return format.count(n) + " " + (n === 1 ? word : words);
}

// 1, 2, 5, 10, 20, ...: the smallest such step that makes at most `most` of them in `span`.
function niceStep(span, most) {
  const raw = span / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((f) => f * power).find((step) => step >= raw * 0.9999) ?? 10 * power;
}
