// Elements. Text from the trace only ever becomes text nodes and attribute values, never markup.

function fillNode(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) {
      node.addEventListener(key.slice(2), value);
    } else {
      node.setAttribute(key, value === true ? "" : value);
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function el(tag, attributes = {}, ...children) {
  return fillNode(document.createElement(tag), attributes, children);
}

function svgEl(tag, attributes = {}, ...children) {
  return fillNode(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

// A section of the page with its entry in the contents; without content it is left out. A title may
// be [title, shorter one for the contents].
function addSection(id, titles, ...content) {
  const [title, short = title] = [titles].flat();
  const parts = content.flat().filter((part) => part !== null && part !== undefined);
  if (parts.length === 0) return null;
  const section = el("section", { id }, el("h2", {}, title), ...parts);
  byId("main").append(section);
  byId("contents").append(el("a", { href: "#" + id }, short));
  return section;
}

// Plots are made as wide as the page is when it opens, so that their text keeps its size.
function plotWidth() {
  return Math.max(byId("main").clientWidth, 340);
}

// The times below a plot of [first, last] us, counted from `origin`; x(us) is a time's place. A text at the right edge ends there.
function timeTicks(svg, first, last, origin, x, y, width) {
  const step = niceStep(last - first, Math.max(2, width / 120));
  for (let t = Math.ceil((first - origin) / step) * step; t + origin <= last; t += step) {
    const at = x(t + origin);
    const isAtEdge = at + 32 > width;
    svg.append(svgEl("text", { class: "tick", x: isAtEdge ? width - 1 : at, y, "text-anchor": isAtEdge ? "end" : "middle" }, format.us(t)));
  }
}

// A link to another page of the same report: `path` is relative, so that their folder can be moved.
function pageLink(path, text) {
  const href = path.split("/").map((part) => (part === ".." ? part : encodeURIComponent(part))).join("/");
  return el("a", { href: (path.includes("/") ? "" : "./") + href }, text);
}

function note(text) {
  return el("p", { class: "muted" }, text);
}

// A small card beside the pointer. `lines` are nodes or strings.
const tip = {
  show(event, lines) {
    const box = byId("tip");
    box.replaceChildren(...lines.map((line) => (typeof line === "string" ? el("div", {}, line) : line)));
    box.hidden = false;
    const margin = 14;
    const width = box.offsetWidth;
    const height = box.offsetHeight;
    const right = event.clientX + margin + width < innerWidth;
    const below = event.clientY + margin + height < innerHeight;
    const x = right ? event.clientX + margin : Math.max(4, event.clientX - margin - width);
    const y = below ? event.clientY + margin : Math.max(4, event.clientY - margin - height);
    box.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  },
  hide() {
    byId("tip").hidden = true;
  },
};

// Shows a card over `node`, on hover and on keyboard focus.
function withTip(node, makeLines) {
  node.addEventListener("pointermove", (event) => tip.show(event, makeLines()));
  node.addEventListener("pointerleave", tip.hide);
  node.addEventListener("focus", () => {
    const box = node.getBoundingClientRect();
    tip.show({ clientX: box.left, clientY: box.bottom - 8 }, makeLines());
  });
  node.addEventListener("blur", tip.hide);
  return node;
}
