// Compare: two responses, or one under two judges, by the same checklist; items that differ most come first.

import { answerBar, answerNotes, probabilityOf, scoreLine } from "./answers.js";
import { getJson, judged, post } from "./api.js";
import { changed } from "./difference.js";
import { el, field, fixed, note, section, signClass, signed, table } from "./dom.js";
import { area, attempt, exporter, onSend, schemaForm } from "./forms.js";

const KEPT = "compare-view", SIDES = ["A", "B"];

export async function columns(main) {
  const choices = await getJson("choices");
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  const prompt = area(kept.prompt, { name: "input", rows: 2, class: "grows" });
  const questions = area(kept.questions, { name: "checklist", rows: 2, class: "grows", placeholder: "One question per line" });
  const sides = SIDES.map((name, i) => {
    const side = { name, lines: [], form: schemaForm(choices.settings), problem: el("div", {}), result: el("div", { class: "result", "aria-live": "polite" }, el("span", { class: "muted" }, "not scored yet")) };
    side.response = area(kept.responses?.[i], { name: `response-${name}`, rows: 4, class: "grows", placeholder: i ? "empty: the response of A, under the settings of B" : "" });
    side.code = exporter(() => post("code", body(side)), `Each gives the figures of ${name}.`);
    side.node = el("div", { class: `side side-${name}` }, field(`response ${name}`, side.response), el("details", {}, el("summary", {}, `Settings of the judge for ${name}`), side.form.node, side.code.node), side.problem);
    return side;
  });
  const apart = el("strong", { class: "score" }, "–"), answers = el("div", {}), texts = el("div", {});
  let items = [], order = [], current = 0;

  main.replaceChildren(
    el("div", { class: "scorebar" }, el("button", { type: "button", class: "primary", name: "run", title: "Ctrl+Enter", onclick: run }, "Score both"), sides.map((side) => el("div", { class: "result" }, el("strong", {}, side.name), side.result)), el("div", { class: "result" }, el("span", { class: "muted" }, "B − A"), apart)),
    el("div", { class: "columns" }, field("prompt", prompt), field("checklist of both", questions)),
    el("div", { class: "columns" }, sides.map((side) => side.node)),
    answers,
    texts,
  );
  answers.replaceChildren(note("Give a checklist and two responses, or one response and two settings of the judge. The differences per item appear here."));
  onSend(run);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select") || !"jk".includes(event.key)) return;
    current = Math.max(0, Math.min(order.length - 1, current + (event.key === "j" ? 1 : -1)));
    mark();
  });

  function body(side) {
    const checklist = questions.value.split("\n").map((line) => line.trim()).filter(Boolean);
    return { input: prompt.value, target: side.response.value || sides[0].response.value, checklist, settings: side.form.value() };
  }

  async function run() {
    sessionStorage.setItem(KEPT, JSON.stringify({ prompt: prompt.value, questions: questions.value, responses: sides.map((side) => side.response.value) }));
    items = body(sides[0]).checklist;
    current = 0;
    const [one, other] = sides.map((side) => body(side).target);
    texts.replaceChildren(one === other ? "" : section("Text", note("What B removes from A, and what it adds."), changed(one, other)));
    await Promise.all(sides.map(score));
  }

  async function score(side) {
    Object.assign(side, { lines: [], score: null });
    side.result.replaceChildren(el("span", { class: "muted" }, "scoring …"));
    draw();
    await attempt(side.problem, async () => {
      const { score } = await judged(body(side), (place, line) => {
        side.lines[place] = line;
        draw();
      });
      side.score = score.primary_score;
      side.result.replaceChildren(...scoreLine(score));
      draw();
      side.code.refresh();
    });
    if (side.problem.childElementCount) side.result.replaceChildren(el("span", { class: "muted" }, "failed"));
  }

  /** P(yes) of B minus that of A; null while one is missing. */
  function difference(i) {
    const [one, other] = sides.map((side) => probabilityOf(side.lines[i]));
    return one === null || other === null ? null : other - one;
  }

  function draw() {
    const [one, other] = sides.map((side) => side.score ?? null), known = one !== null && other !== null;
    apart.className = `score ${known ? signClass(other - one) : "muted"}`;
    apart.textContent = known ? signed(other - one) : "–";
    const size = (i) => Math.abs(difference(i) ?? 0) + (sides[0].lines[i]?.answer !== sides[1].lines[i]?.answer ? 1 : 0); // other answers first
    order = items.map((_, i) => i).sort((a, b) => size(b) - size(a) || a - b);
    const cell = (side, i) => (side.lines[i] ? [el("div", { class: "given" }, answerBar(side.lines[i])), answerNotes(side.lines[i], choices.advice)] : el("span", { class: "muted" }, "…"));
    const apartOf = (i) => (difference(i) === null ? "–" : el("span", { class: signClass(difference(i)), title: fixed(difference(i), 6) }, signed(difference(i))));
    answers.replaceChildren(section("Items", table(["item", "A", "B", ["B − A", "n"]], order.map((i) => [items[i], cell(sides[0], i), cell(sides[1], i), apartOf(i)]), { class: "compared-items", "aria-label": "Items" }), note("Items that differ most come first. Keys: j and k go through them, Ctrl+Enter scores.")));
    mark();
  }

  function mark() {
    [...answers.querySelectorAll("tbody tr")].forEach((row, i) => (i === current ? row.setAttribute("aria-current", "true") : row.removeAttribute("aria-current")));
    if (document.activeElement === document.body) answers.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }
}
