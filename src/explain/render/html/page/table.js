// A table that sorts by a click on its heads and filters by text.
// Columns are {label, value(row), text(row)?, node(row)?, isText?, hint?}; a value of null is unknown and
// sorts last in both directions.

const ROWS_AT_FIRST = 20;

function compareValues(a, b, direction) {
  const unknownA = a === null || a === undefined;
  const unknownB = b === null || b === undefined;
  if (unknownA || unknownB) return unknownA - unknownB;
  const order = typeof a === "string" ? a.localeCompare(b) : a - b;
  return order * direction;
}

class SortableTable {
  constructor(columns, rows, { caption, sortBy = null, onRow = null } = {}) {
    Object.assign(this, { columns, rows, sortBy, onRow });
    this.direction = -1;
    this.limit = ROWS_AT_FIRST;
    this.leftOut = rows.leftOut;
    this.query = "";
    this.searchTexts = rows.map((row) =>
      columns.filter((c) => c.isText).map((c) => c.value(row) ?? "").join("\n").toLowerCase());
    this.node = this.build(caption);
    this.update();
  }

  build(caption) {
    this.heads = this.columns.map((column, i) => {
      const button = el("button", { type: "button", title: column.hint, onclick: () => this.sort(i) }, column.label);
      return el("th", { scope: "col", class: column.isText ? "" : "number" }, button);
    });
    this.body = el("tbody");
    this.count = el("span", { class: "muted", "aria-live": "polite" });
    this.more = el("button", { type: "button", class: "more", onclick: () => this.showAll() });
    const filter = el("input", {
      type: "search", placeholder: "Filter", "aria-label": "Filter " + caption,
      oninput: (event) => this.filter(event.target.value),
    });
    return el("div", { class: "table" },
      el("div", { class: "table-bar" }, el("h3", {}, caption), this.count, this.rows.length > 5 ? filter : null),
      el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": caption },
        el("table", {}, el("thead", {}, el("tr", {}, this.heads)), this.body)),
      this.more);
  }

  sort(i) {
    const isText = this.columns[i].isText;
    this.direction = this.sortBy === i ? -this.direction : isText ? 1 : -1;
    this.sortBy = i;
    this.update();
  }

  filter(text) {
    this.query = text.trim().toLowerCase();
    this.update();
  }

  showAll() {
    this.limit = Infinity;
    this.update();
  }

  shownRows() {
    let positions = this.rows.map((_, i) => i);
    if (this.query) positions = positions.filter((i) => this.searchTexts[i].includes(this.query));
    if (this.sortBy !== null) {
      const value = this.columns[this.sortBy].value;
      positions.sort((a, b) => compareValues(value(this.rows[a]), value(this.rows[b]), this.direction));
    }
    return positions.map((i) => this.rows[i]);
  }

  update() {
    this.heads.forEach((head, i) => {
      const direction = this.direction < 0 ? "descending" : "ascending";
      head.setAttribute("aria-sort", i === this.sortBy ? direction : "none");
    });
    const rows = this.shownRows();
    this.body.replaceChildren(...rows.slice(0, this.limit).map((row) => this.rowNode(row)));
    this.count.textContent = (rows.length === this.rows.length
      ? plural(rows.length, "row") : `${format.count(rows.length)} of ${plural(this.rows.length, "row")}`) +
      (this.leftOut ? `; ${format.count(this.leftOut)} more are in the trace, not in this page` : "");
    this.more.hidden = rows.length <= this.limit;
    this.more.textContent = `Show all ${format.count(rows.length)}`;
  }

  rowNode(row) {
    const cells = this.columns.map((column) => {
      const value = column.value(row);
      const content = column.node?.(row) ?? column.text?.(row) ?? (value === null ? DASH : String(value));
      const cell = el("td", { class: column.isText ? "text" : "number" },
        column.isText ? el("div", { class: "cell" }, content) : content);
      if (column.isText && !column.node) cell.title = String(value ?? "");
      return cell;
    });
    if (!this.onRow) return el("tr", {}, cells);
    const open = () => this.onRow(row);
    return el("tr", {
      class: "clickable", tabindex: "0", onclick: open,
      onkeydown: (event) => event.key === "Enter" && open(),
    }, cells);
  }
}

// Columns of the common kinds.
const textColumn = (label, key) => ({ label, isText: true, value: typeof key === "function" ? key : (row) => row[key] });
function numberColumn(label, key, show, hint) {
  const value = typeof key === "function" ? key : (row) => row[key];
  return { label, hint, value, text: (row) => show(value(row)) };
}
const usColumn = (label, key, hint) => numberColumn(label, key, format.us, hint);
const countColumn = (label, key, hint) => numberColumn(label, key, format.count, hint);
const percentColumn = (label, key, hint) => numberColumn(label, key, format.percent, hint);

function tableNode(caption, columns, rows, options = {}) {
  return rows.length === 0 ? null : new SortableTable(columns, rows, { caption, ...options }).node;
}
