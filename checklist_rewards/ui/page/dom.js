// Elements and numbers. Text always becomes a text node: what a model wrote is never read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: el("a", { href: "#", class: "x", onclick: f }, "text", child, null, [more]). */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, entry] of Object.entries(value)) node.style.setProperty(key, entry);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** A number with a fixed number of digits, rounded as Python rounds it: halves to even. "–" for none. */
export function fixed(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const [, head, tail] = value.toFixed(Math.min(100, digits + 60)).match(`^(-?\\d+\\.\\d{${digits}})(\\d*)$`) ?? [];
  if (head && /^50*$/.test(tail) && "02468".includes(head.at(-1))) return head;
  return value.toFixed(digits);
}

/** A difference with its sign. */
export function signed(value, digits = 3) {
  return `${value > 0 ? "+" : ""}${fixed(value, digits)}`;
}

/** The colour of a difference: none for one that is shown as zero. */
export function signClass(value, digits = 3) {
  return Number(fixed(value, digits)) ? (value > 0 ? "good" : "bad") : "muted";
}

/** A number in the page; hovering shows all of its digits. */
export function num(value, digits = 3) {
  const none = value === null || value === undefined || Number.isNaN(value);
  return el("span", { class: none ? "num none" : "num", title: none ? "none" : String(value) }, fixed(value, digits));
}

/** A figure with its interval. */
export function figure(value, digits = 3) {
  if (!value || value.value === null) return num(null);
  const interval = value.low === null || value.low === undefined ? null : [value.low, value.high];
  return el("span", {}, num(value.value, digits), interval && bounds(interval, digits));
}

/** An interval as small text. */
export function bounds(interval, digits = 3) {
  if (!interval) return null;
  return el("span", { class: "bounds" }, ` [${fixed(interval[0], digits)}, ${fixed(interval[1], digits)}]`);
}

export function count(value) {
  return value.toLocaleString("en");
}

/** "3 rows", "1 row". */
export function plural(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** A table: heads are strings or [text, class]; rows are lists of cells, each a node, a text, or null. */
export function table(heads, rows, attributes = {}) {
  const kinds = heads.map((head) => (Array.isArray(head) ? head[1] : null));
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": attributes["aria-label"] ?? "table" },
    el(
      "table",
      { class: attributes.class },
      el("thead", {}, el("tr", {}, heads.map((head, i) => headCell([head].flat()[0], kinds[i])))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: kinds[i] }, cell))))),
    ),
  );
}

function headCell(text, kind) {
  return text ? el("th", { scope: "col", class: kind }, text) : el("td", { class: kind }); // a header needs a text
}

/** A part of a view with a heading. */
export function section(heading, ...children) {
  return el("section", { class: "part" }, el("h2", {}, heading), ...children);
}

export function note(...children) {
  return el("p", { class: "note" }, ...children);
}

/** Text a model or a user wrote. */
export function written(text, attributes = {}) {
  return el("div", { class: "written", dir: "auto", ...attributes }, text === null || text === "" ? el("em", {}, "no text") : text);
}
