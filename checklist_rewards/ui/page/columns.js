// The answers about two responses, or about one under two judges, side by side; items that differ most come first.

import { answerBar, answerNotes, probabilityOf } from "./answers.js";
import { getJson } from "./api.js";
import { changed } from "./difference.js";
import { choice, el, field, fixed, note, section, shorter, signClass, signed, table } from "./dom.js";
import { tagsOf } from "./items.js";

/** A table of the answers of both sides. See `judge.js`. */
export function sideBySide(editor, advice, sides, body) {
  const apart = el("strong", { class: "score" }, "–"), texts = el("div");
  const answers = el("div", {}, note("Give a checklist and two responses, or one response and two settings of the judge. The differences per item appear here."));
  let items = [], order = [], current = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select") || !"jk".includes(event.key)) return;
    current = Math.max(0, Math.min(order.length - 1, current + (event.key === "j" ? 1 : -1)));
    point();
  });
  return { total: el("div", { class: "result" }, el("span", { class: "muted" }, "B − A"), apart), nodes: [answers, texts], begin, show, mark };

  function begin() {
    items = editor.checklist();
    current = 0;
    const [one, other] = sides.map((side) => body(side).target);
    texts.replaceChildren(one === other ? "" : section("Text", note("What B removes from A, and what it adds."), changed(one, other)));
    show();
  }

  /** P(yes) of B minus that of A; null while one is missing. */
  function difference(i) {
    const [one, other] = sides.map((side) => probabilityOf(side.lines[i]));
    return one === null || other === null ? null : other - one;
  }

  function show() {
    const size = (i) => Math.abs(difference(i) ?? 0) + (sides[0].lines[i]?.answer !== sides[1].lines[i]?.answer ? 1 : 0); // other answers first
    order = items.map((_, i) => i).sort((a, b) => size(b) - size(a) || a - b);
    const cell = (side, i) => (side.lines[i] ? [el("div", { class: "given" }, answerBar(side.lines[i])), answerNotes(side.lines[i], advice)] : el("span", { class: "muted" }, "…"));
    const apartOf = (i) => (difference(i) === null ? "–" : el("span", { class: signClass(items[i].weight < 0 ? -difference(i) : difference(i)), title: fixed(difference(i), 6) }, signed(difference(i))));
    answers.replaceChildren(section("Items", table(["item", "A", "B", ["B − A", "n"]], order.map((i) => [[items[i].question, tagsOf(items[i])], cell(sides[0], i), cell(sides[1], i), apartOf(i)]), { class: "compared-items", "aria-label": "Items" }), note("Items that differ most come first. Keys: j and k go through them, Ctrl+Enter scores.")));
    point();
  }

  /** Show which item the keys have reached. */
  function point() {
    [...answers.querySelectorAll("tbody tr")].forEach((row, i) => (i === current ? row.setAttribute("aria-current", "true") : row.removeAttribute("aria-current")));
    if (document.activeElement === document.body) answers.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  function mark(isOld) {
    const [one, other] = sides.map((side) => side.score ?? null), known = one !== null && other !== null;
    apart.className = `score ${known ? signClass(other - one) : "muted"}`;
    apart.textContent = known ? signed(other - one) : "–";
    for (const node of [answers, texts, apart]) node.classList.toggle("stale", isOld);
  }
}

/** Two texts of a row of a file with candidates, or with a chosen and a rejected text. `put(row)` gets what the row has, and
 *  `take(place, text)` a text that is chosen. */
export function candidates(file, names, act, put, take) {
  const row = el("input", { type: "number", min: 1, value: 1, class: "short", name: "row", onchange: load }), node = el("div", { class: "filters" });
  return { node, load };

  function load() {
    return act(async () => {
      const found = await getJson("candidates", { file, row: row.value });
      put(found);
      const known = found.texts.map((text, i) => [i, `${i + 1}: ${shorter(text, 50)}`]);
      const picks = names.map((name, i) => field(name, choice(known, { name: `pick-${name}`, value: i, onchange: (event) => take(i, found.texts[event.target.value]) })));
      node.replaceChildren(field(`row of ${file}`, row), ...picks);
      names.forEach((_, i) => take(i, found.texts[i]));
    });
  }
}
