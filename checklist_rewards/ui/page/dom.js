// Elements and numbers. Text always becomes a text node: what a model wrote is never read as HTML.

const SVG = "http://www.w3.org/2000/svg";
export const PLACE = "[image]"; // stands in a text for an image of its row

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

/** A figure with its interval, or the reason why it has none. */
export function figure(value, digits = value?.digits) {
  if (!value || value.value === null) return num(null);
  const interval = value.low === null || value.low === undefined ? null : [value.low, value.high];
  const reason = value.refused ? el("span", { class: "bounds" }, ` (${value.refused})`) : null;
  return el("span", {}, num(value.value, digits), interval ? bounds(interval, digits) : reason);
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
  const kinds = heads.map((head) => (Array.isArray(head) ? head[1] : null)), texts = heads.map((head) => [head].flat()[0]);
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": attributes["aria-label"] ?? "table" },
    el(
      "table",
      { class: attributes.class },
      el("thead", {}, el("tr", {}, heads.map((head, i) => el(texts[i] ? "th" : "td", { scope: texts[i] ? "col" : null, class: kinds[i] }, texts[i])))), // a header needs a text
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: kinds[i] }, cell))))),
    ),
  );
}

/** What Python wrote into a cell: a text, a whole number, a figure, or null. */
export function cell(value) {
  return typeof value === "number" ? count(value) : typeof value === "string" ? value : value && figure(value);
}

/** A part that Python wrote as a table. `pick(i)` is called for the first cell of row i. */
export function tabled({ heading, note: told, heads, rows }, pick = null) {
  return section(heading, told ? note(told) : null, table(heads, rows.map((row, i) => row.map((one, k) => (pick && !k ? el("button", { class: "link", onclick: () => pick(i) }, cell(one)) : cell(one)))), { class: "fit", "aria-label": heading }));
}

/** A part of a view with a heading. */
export function section(heading, ...children) {
  return el("section", { class: "part" }, el("h2", {}, heading), ...children);
}

/** The question of an item; that of a penalty says that it is one. */
export function questionOf(item) {
  return `${item.penalty || item.weight < 0 ? "penalty: " : ""}${item.question}`;
}

/** What a page says, in a sentence. */
export function verdict(...sentences) {
  return el("p", { class: "verdict" }, sentences.filter(Boolean).join(" "));
}

/** A part of a view that is closed at first. */
export function folded(heading, ...children) {
  return el("details", { class: "part" }, el("summary", {}, heading), children);
}

/** Mark the words that were searched, in all texts of a node. */
export function highlight(root, words) {
  if (!words) return root;
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), found = [], wanted = new RegExp(`(${words.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")})`, "i");
  while (texts.nextNode()) if (wanted.test(texts.currentNode.data)) found.push(texts.currentNode);
  for (const node of found) node.replaceWith(...node.data.split(wanted).map((part, i) => (i % 2 ? el("mark", { class: "hit" }, part) : part)));
  return root;
}

export function note(...children) {
  return el("p", { class: "note" }, ...children);
}

/** A labelled field. */
export function field(label, control) {
  return el("label", { class: "field" }, el("span", {}, label), control);
}

/** A figure with its name, and what is to be known of it below. */
export function fact(name, value, below = null) {
  return el("div", { class: "fact" }, el("span", { class: "muted" }, name), el("strong", {}, value), below && el("small", {}, below));
}

/** The beginning of a text, on one line. */
export function shorter(text, most = 110) {
  const line = text.slice(0, 4 * most).replace(/\s+/g, " ");
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/** Text a model or a user wrote. */
export function written(text, attributes = {}) {
  return el("div", { class: "written", dir: "auto", ...attributes }, text === null || text === "" ? el("em", {}, "no text") : text);
}

/** A text in pieces: { text, over: the spans that cover it, end }. Spans count characters, as Python does. */
export function pieces(text, spans) {
  const letters = [...text], cuts = [...new Set([0, letters.length, ...spans.flatMap((one) => [one.start, one.end])])].sort((a, b) => a - b);
  return cuts.slice(1).map((end, i) => ({ text: letters.slice(cuts[i], end).join(""), over: spans.filter((one) => one.start <= cuts[i] && end <= one.end), end }));
}

/** Thumbnails as data; for an image without one, its address or why there is none. */
export function thumbnails(shown) {
  return shown ? el("p", { class: "images" }, shown.map((one, i) => (one.startsWith("data:image/jpeg;base64,") ? el("img", { src: one, alt: `image ${i + 1}` }) : el("span", { class: "muted" }, `image ${i + 1}: ${one}`)))) : null;
}

/** A list to choose from, of values or [value, shown]. */
export function choice(options, attributes = {}) {
  const entries = options.map((one) => (Array.isArray(one) ? one : [one, one]));
  const select = el("select", attributes, entries.map(([value, shown]) => el("option", { value }, shown)));
  if (attributes.value !== undefined) select.value = attributes.value;
  return select;
}

/** The state of a response, "cut_in_thought", as words: what the policy made of its turn. */
export function stateName(state) {
  return state.replaceAll("_", " ");
}

/** The state as a tag; nothing for a response with an answer, or of an unknown state. */
export function stateTag(state) {
  return state && state !== "answered" ? el("span", { class: "flag" }, stateName(state)) : null;
}
