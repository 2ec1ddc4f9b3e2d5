// Puts the page together.

const ABOVE_TIMELINE = ["health", "findings"];

async function main() {
  const started = performance.now();
  const [reportBytes, columnBytes] = await Promise.all([unpacked("data-report"), unpacked("data-columns")]);
  const report = JSON.parse(new TextDecoder().decode(reportBytes));
  markCutLists(report);
  if (report.ranks) {
    showRanksPage(report);
  } else if (report.snapshot) {
    showSnapshotPage(report);
  } else {
    showTracePage(report, columnBytes);
  }
  document.documentElement.dataset.readyMs = Math.round(performance.now() - started);
}

function showTracePage(report, columnBytes) {
  const e = report.explanation;
  const index = new Map(report.kernels.map((kernel) => [kernel.name, kernel]));
  showActions(report);
  showVerdict(report);
  showDiff(report, index);
  const byPlace = (isFirst) => report.sections.filter((section) => ABOVE_TIMELINE.includes(section.id) === isFirst);
  for (const section of byPlace(true)) showSection(section, report, index, null);
  const timeline = showTimeline(report, readColumns(columnBytes, report.timeline), index);
  showKernels(report, index, timeline);
  for (const section of byPlace(false)) showSection(section, report, index, timeline);
  showAverages(report);
}

main().catch((error) => {
  byId("main").append(el("p", { class: "note" },
    "This page could not be shown completely: " + error.message + ". It needs a browser of 2023 or later."));
  throw error;
});
