// Hands the embedded trace to Perfetto, or to the disk.

const PERFETTO = "https://ui.perfetto.dev";
const PING_EVERY_MS = 100;

// The hand-shake: the new window drops messages until its page listens, so ping until it answers.
function openInPerfetto(report) {
  const target = window.open(PERFETTO);
  if (!target) {
    alert("The browser did not open a window for " + PERFETTO + ".");
    return;
  }
  const timer = setInterval(() => {
    if (target.closed) clearInterval(timer);
    else target.postMessage("PING", PERFETTO);
  }, PING_EVERY_MS);
  const onAnswer = (event) => {
    if (event.source !== target || event.origin !== PERFETTO || event.data !== "PONG") return;
    clearInterval(timer);
    removeEventListener("message", onAnswer);
    const buffer = base64Bytes("data-trace").buffer;
    target.postMessage({ perfetto: { buffer, title: report.title, fileName: report.trace_file } }, PERFETTO);
  };
  addEventListener("message", onAnswer);
}

function downloadTrace(report) {
  const url = URL.createObjectURL(new Blob([base64Bytes("data-trace")], { type: "application/gzip" }));
  el("a", { href: url, download: report.trace_file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function showActions(report) {
  if (report.ranks_page) byId("actions").append(pageLink(report.ranks_page, "All ranks"));
  if (!report.has_trace) return;
  byId("actions").append(
    el("button", { type: "button", id: "open-perfetto", class: "primary", onclick: () => openInPerfetto(report),
      title: "Opens ui.perfetto.dev and hands it the trace in this page; nothing is uploaded" }, "Open in Perfetto"),
    el("button", { type: "button", id: "download-trace", onclick: () => downloadTrace(report) }, "Download trace"));
}
