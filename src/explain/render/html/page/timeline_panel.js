// What the page says of one event: on hover briefly, when selected with all it knows.

const WORK_LISTED = 12;

// Fields as the page lists them: [key, value node or text].
function eventFields(model, i) {
  const { columns } = model;
  const fields = [
    ["kind", CATEGORY_TEXT[columns.category[i]] ?? "event"],
    ["starts at", format.moment(columns.start[i] / 1000)],
    ["takes", format.us(columns.duration[i] / 1000)],
    ["on", model.laneOf(i).name],
  ];
  const launch = model.launchOf(i);
  if (launch >= 0) {
    const delay = columns.start[i] - columns.start[launch];
    fields.push(["from launch to start", format.us(delay / 1000)]);
  }
  return fields.concat(model.details[columns.detail[i]] ?? []);
}

function hoverLines(model, i) {
  const kernel = model.isWork(i) ? model.kernels.get(model.name(i)) : null;
  const lines = [el("b", { class: "break" }, shortName(model.name(i)))];
  lines.push(`${format.us(model.columns.duration[i] / 1000)}, ${CATEGORY_TEXT[model.columns.category[i]] ?? "event"}`);
  if (kernel?.summary) lines.push(el("div", { class: "tip-summary" }, kernel.summary));
  const op = model.opOf(i);
  if (op >= 0) lines.push("launched by " + model.name(op));
  return lines;
}

function eventLink(model, i, label, go) {
  return el("button", { type: "button", class: "link", onclick: () => go(i), title: model.name(i) },
    label ?? shortName(model.name(i)));
}

function relatedFields(model, i, related, go) {
  const fields = [];
  const op = model.opOf(i);
  const launch = model.launchOf(i);
  if (op >= 0) fields.push(["launched by", eventLink(model, op, null, go)]);
  if (launch >= 0) fields.push(["launch call", eventLink(model, launch, null, go)]);
  if (!model.isWork(i) && related.length > 0) {
    const total = related.reduce((sum, k) => sum + model.columns.duration[k], 0);
    const links = related.slice(0, WORK_LISTED).map((k) => el("li", {}, eventLink(model, k, null, go), " ",
      el("span", { class: "muted" }, format.us(model.columns.duration[k] / 1000))));
    if (related.length > WORK_LISTED) links.push(el("li", { class: "muted" }, `and ${format.count(related.length - WORK_LISTED)} more`));
    fields.push(["device work below", el("div", {}, `${format.count(related.length)} in ${format.us(total / 1000)}`, el("ul", { class: "links" }, links))]);
  }
  return fields;
}

// Fills the panel below the timeline; `go` selects another event and shows it.
function showEventPanel(panel, model, i, related, go) {
  if (i < 0) {
    panel.hidden = true;
    return;
  }
  const kernel = model.isWork(i) ? model.kernels.get(model.name(i)) : null;
  const fields = eventFields(model, i).concat(relatedFields(model, i, related, go));
  const list = el("dl", { class: "fields" }, fields.map(([key, value]) =>
    [el("dt", {}, key), el("dd", {}, value)]).flat());
  const decoded = kernel?.fields?.length
    ? el("div", {}, el("h4", {}, "What the name says", el("span", { class: "muted" }, "  " + kernel.family)),
      el("p", {}, kernel.summary), fieldList(kernel.fields))
    : null;
  const all = kernel ? el("p", { class: "muted" }, `${format.count(kernel.count)} executions of this name: ` +
    `${format.us(kernel.total_us)} in all, ${format.us(kernel.mean_us)} on average, ${format.us(kernel.min_us)} to ${format.us(kernel.max_us)}`) : null;
  panel.replaceChildren(
    el("div", { class: "panel-head" }, el("code", { class: "break" }, model.name(i)),
      el("button", { type: "button", class: "link", onclick: () => go(-1), "aria-label": "Close" }, "Close")),
    ...[all].filter(Boolean), el("div", { class: "panel-columns" }, el("div", {}, list), decoded ?? ""));
  panel.hidden = false;
}
