// Puts the page together.

async function main() {
  const started = performance.now();
  const [reportBytes, columnBytes] = await Promise.all([unpacked("data-report"), unpacked("data-columns")]);
  const report = JSON.parse(new TextDecoder().decode(reportBytes));
  markCutLists(report);
  if (report.ranks) {
    showRanksPage(report);
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
  showHealth(e);
  showFindings(e);
  const timeline = showTimeline(report, readColumns(columnBytes, report.timeline), index);
  showSteps(e, timeline);
  showCriticalPath(report, index, timeline);
  showIdle(e);
  showKernels(report, index, timeline);
  showHost(e);
  showGemms(e, index);
  showRooflines(e, index);
  showFusions(e);
  showChains(e);
  showCalls(e);
  showQueues(report);
  showDeviceRanges(e);
  showCollectives(e);
  showCompile(e, index);
  showMemory(report);
  showModules(e);
  showOccupancy(e, index);
  showAverages(report);
}

main().catch((error) => {
  byId("main").append(el("p", { class: "note" },
    "This page could not be shown completely: " + error.message + ". It needs a browser of 2023 or later."));
  throw error;
});
