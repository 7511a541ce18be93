// Compare: two responses, or one under two judges, by the same checklist; items that differ most come first.

import { answerBar, answerNotes, probabilityOf, scoreLine } from "./answers.js";
import { getJson, judged } from "./api.js";
import { changed } from "./difference.js";
import { PLACE, choice, el, field, fixed, note, section, shorter, signClass, signed, table, thumbnails } from "./dom.js";
import { area, attempt, chip, onSend, schemaForm, scoring } from "./forms.js";
import { itemEditor, shelf, tagsOf } from "./items.js";

const KEPT = "compare-view", SIDES = ["A", "B"];

/** What the view shows when it is opened next: `prompt`, `checklist`, and the `responses` and `settings` of both sides. */
export function keepForCompare(value) {
  sessionStorage.setItem(KEPT, JSON.stringify(value));
}

export async function columns(main, project) {
  const choices = await getJson("choices"), file = new URLSearchParams(location.search).get("file");
  const kept = file ? {} : JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  const prompt = area(kept.prompt, { name: "input", rows: 2, class: "grows", oninput: () => edited() });
  const editor = itemEditor(() => edited(), "");
  const problem = el("div"), said = el("span", { class: "muted", role: "status" });
  const sides = SIDES.map((name, i) => {
    const side = { name, lines: [], scored: scoring(project.judge, () => body(side), state, `Each gives the figures of ${name}.`), problem: el("div", {}), result: el("div", { class: "result", "aria-live": "polite" }, el("span", { class: "muted" }, "not scored yet")), judge: el("small", { class: "muted" }) };
    side.form = schemaForm(choices.settings, kept.settings?.[i], () => (edited(), side.scored.named()));
    side.response = area(kept.responses?.[i], { name: `response-${name}`, rows: 4, class: "grows", placeholder: i ? "empty: the response of A, under the settings of B" : "", oninput: () => edited() });
    side.node = el("div", { class: `side side-${name}` }, field(`response ${name}`, side.response), el("details", {}, el("summary", {}, `Settings of the judge for ${name}`), side.form.node, side.scored.code.node), side.problem);
    return side;
  });
  const apart = el("strong", { class: "score" }, "–"), pictures = el("div", {}, thumbnails(kept.images)), answers = el("div", {}), texts = el("div", {}), rows = el("div", { class: "filters" });
  let items = [], order = [], current = 0;

  main.replaceChildren(
    el("div", { class: "scorebar" }, el("button", { type: "button", class: "primary", name: "run", title: "Ctrl+Enter", onclick: run }, "Score both"), sides.map((side) => el("div", { class: "result" }, el("strong", {}, side.name), side.judge, side.result)), el("div", { class: "result" }, el("span", { class: "muted" }, "B − A"), apart)),
    problem,
    rows,
    el(
      "div",
      { class: "judge" },
      el("div", {}, field("prompt", prompt), pictures, sides.map((side) => side.node)),
      section("Checklist of both", editor.node, shelf(choices, { checklist: editor.checklist, open: (values) => (editor.replace(values), edited()), act: (work) => attempt(problem, work), tell: (text) => (said.textContent = text) }), said),
    ),
    answers,
    texts,
  );
  editor.replace(kept.checklist?.length ? kept.checklist : [""]);
  answers.replaceChildren(note("Give a checklist and two responses, or one response and two settings of the judge. The differences per item appear here."));
  onSend(run);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select") || !"jk".includes(event.key)) return;
    current = Math.max(0, Math.min(order.length - 1, current + (event.key === "j" ? 1 : -1)));
    mark();
  });
  if (file) await attempt(problem, candidates);
  await Promise.all(sides.map((side) => side.scored.named()));

  /** Choose two texts of a row of a file with candidates, or with a chosen and a rejected text. */
  async function candidates() {
    const row = el("input", { type: "number", min: 1, value: 1, class: "short", name: "row", onchange: () => attempt(problem, load) });
    await load();

    async function load() {
      const found = await getJson("candidates", { file, row: row.value });
      prompt.value = found.input ?? "";
      Object.assign(kept, { images: found.images, of: found.of });
      pictures.replaceChildren(thumbnails(kept.images) ?? "");
      if (found.checklist) editor.replace(found.checklist);
      const known = found.texts.map((text, i) => [i, `${i + 1}: ${shorter(text, 50)}`]);
      const picks = sides.map((side, i) => choice(known, { name: `pick-${side.name}`, value: i, onchange: (event) => take(side, event.target.value) }));
      const take = (side, i) => ((side.response.value = found.texts[i]), edited());
      sides.forEach(take);
      rows.replaceChildren(field(`row of ${file}`, row), ...picks.map((pick, i) => field(SIDES[i], pick)));
    }
  }

  function body(side) {
    return { input: prompt.value, target: file ? side.response.value : side.response.value || sides[0].response.value, checklist: editor.checklist(), settings: side.form.value(), of: kept.of };
  }

  function edited() {
    keepForCompare({ ...kept, prompt: prompt.value, checklist: editor.checklist(), responses: sides.map((side) => side.response.value), settings: sides.map((side) => side.form.value()) });
    state();
  }

  /** Name the judges, and mark what is not of the boxes. */
  function state() {
    pictures.hidden = !`${prompt.value}${sides.map((side) => side.response.value).join("")}`.includes(PLACE);
    const both = sides.map((side) => side.scored), states = both.map((one) => one.state()), all = (name) => [...new Set(both.map((one) => one.by[name]))].join(" and ");
    sides.forEach((side, i) => {
      side.judge.textContent = `by ${side.scored.by.judge}`;
      side.result.classList.toggle("stale", states[i] === "stale");
      side.scored.code.refresh();
    });
    for (const node of [answers, texts, apart]) node.classList.toggle("stale", states.includes("stale"));
    chip({ judge: all("judge"), models: both.flatMap((one) => one.by.models), threshold: all("threshold"), toy: both.some((one) => one.by.toy) }, ["stale", "not scored"].find((one) => states.includes(one)) ?? "current");
  }

  async function run() {
    items = editor.checklist();
    current = 0;
    const [one, other] = sides.map((side) => body(side).target);
    texts.replaceChildren(one === other ? "" : section("Text", note("What B removes from A, and what it adds."), changed(one, other)));
    await Promise.all(sides.map(score));
  }

  async function score(side) {
    const given = body(side);
    const lines = [];
    Object.assign(side, { lines, score: null });
    side.scored.of = null;
    side.result.replaceChildren(el("span", { class: "muted" }, "scoring …"));
    draw();
    await attempt(side.problem, async () => {
      const { score, by } = await judged(given, (place, line) => {
        lines[place] = line;
        draw();
      }).catch((error) => (side.lines === lines ? Promise.reject(error) : {}));
      if (side.lines !== lines) return; // scored again meanwhile
      side.score = score.primary_score;
      Object.assign(side.scored, { of: given, made: by });
      side.result.replaceChildren(...scoreLine(score));
      draw();
    });
    await side.scored.named();
    if (side.problem.childElementCount) side.result.replaceChildren(el("span", { class: "muted" }, "failed"));
    edited();
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
    const apartOf = (i) => (difference(i) === null ? "–" : el("span", { class: signClass(items[i].weight < 0 ? -difference(i) : difference(i)), title: fixed(difference(i), 6) }, signed(difference(i))));
    answers.replaceChildren(section("Items", table(["item", "A", "B", ["B − A", "n"]], order.map((i) => [[items[i].question, tagsOf(items[i])], cell(sides[0], i), cell(sides[1], i), apartOf(i)]), { class: "compared-items", "aria-label": "Items" }), note("Items that differ most come first. Keys: j and k go through them, Ctrl+Enter scores.")));
    mark();
  }

  function mark() {
    [...answers.querySelectorAll("tbody tr")].forEach((row, i) => (i === current ? row.setAttribute("aria-current", "true") : row.removeAttribute("aria-current")));
    if (document.activeElement === document.body) answers.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }
}
