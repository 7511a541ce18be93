// Judge and Compare: responses to a prompt, scored by a checklist. The answers about one response arrive in the items, those
// about two side by side. Unchanged items come from the store.

import { answerBar, answerNotes, metricsLine, scoreLine } from "./answers.js";
import { getJson, judged, post } from "./api.js";
import { candidates, sideBySide } from "./columns.js";
import { PLACE, choice, el, field, fixed, note, section, thumbnails } from "./dom.js";
import { alertOf, area, attempt, chip, onSend, schemaForm, scoring } from "./forms.js";
import { itemEditor, itemsOf, shelf } from "./items.js";

/** Open a view of a row of a file: its `input`, `target`, `reference`, `checklist` and `settings`; and `scored`, the score
 *  that the file has. */
export function openRow(view, { target, settings, ...row }) {
  sessionStorage.setItem(view, JSON.stringify({ ...row, targets: [target], settings: [settings] }));
  location.href = view;
}

export async function judge(main, project) {
  return scored(main, project, [""], inItems);
}

export async function compare(main, project) {
  return scored(main, project, ["A", "B"], sideBySide);
}

/** A view of a response per name, whose answers `show` shows. What is typed is kept while the tab is open; the texts
 *  of a `file` do not replace it. */
async function scored(main, project, names, show) {
  const choices = await getJson("choices"), query = new URLSearchParams(location.search), file = query.get("file");
  const kept = file ? {} : JSON.parse(sessionStorage.getItem(location.pathname) ?? "{}");
  const prompt = area(kept.input, { name: "input", class: "grows", placeholder: "What the model was asked. It may be empty.", oninput: edited });
  const reference = area(kept.reference, { name: "reference", rows: 2, class: "grows", oninput: edited });
  const problem = el("div"), origin = el("div"), pictures = el("div", {}, thumbnails(kept.images)), said = el("span", { class: "muted", role: "status" });
  const old = el("span", { class: "flag", hidden: true }, "stale: changed since it was scored");
  const editor = itemEditor(edited, show === inItems ? "no answer yet" : "");
  const sides = names.map(sideOf), [first] = sides, alone = sides.length === 1;
  const answers = show(editor, choices.advice, sides, body);
  const act = (work) => attempt(problem, work);
  const rows = file ? candidates(file, names, act, put, take) : null;

  main.replaceChildren(
    el("div", { class: "scorebar" }, el("button", { type: "button", class: "primary", name: "score", title: "Ctrl+Enter", onclick: score }, alone ? "Score" : "Score both"), sides.map((side) => side.head), old, said, answers.total),
    problem,
    rows?.node ?? origin,
    el(
      "div",
      { class: "judge" },
      section(alone ? "Response" : "Responses", field("prompt", prompt), pictures, sides.map((side) => side.node), el("details", { open: Boolean(kept.reference) }, el("summary", {}, "Reference answer"), field("reference", reference))),
      section(
        "Checklist",
        editor.node,
        sides.map((side) => [side.name && el("strong", {}, side.name), side.figures]),
        shelf(choices, { checklist: editor.checklist, open: replace, act, tell: (text) => (said.textContent = text) }),
        writing(),
        asJson(),
      ),
    ),
    ...answers.nodes,
    ...(alone ? first.own : []),
  );
  editor.replace(kept.checklist?.length ? kept.checklist : [""]);
  onSend(score);
  draw();
  await rows?.load();
  await Promise.all(sides.map((side) => side.scored.named()));
  const asked = query.get("checklist");
  if (asked) await act(async () => replace(itemsOf((await getJson("library/file", { name: asked })).text)));

  function sideOf(name, i) {
    const called = (what, link = " ") => (name ? what + link + name : what);
    const side = { name, lines: [], problem: el("div"), result: el("div", { class: "result", "aria-live": "polite" }), figures: el("div", { class: "figures" }), judge: el("small", { class: "muted" }) };
    side.scored = scoring(project.judge, () => body(side), draw, `Each gives the figures of ${name || "this page"}.`);
    side.form = schemaForm(choices.settings, kept.settings?.[i], () => (edited(), side.scored.named()));
    side.response = area(kept.targets?.[i], { name: called("target", "-"), rows: name ? 4 : 8, class: "grows", placeholder: i ? "empty: the response of A, under the settings of B" : "The text to score", oninput: edited });
    side.own = [el("details", { class: "part settings" }, el("summary", {}, called("Settings of the judge", " for ")), side.form.node), side.scored.code.node];
    side.head = name ? el("div", { class: "result" }, el("strong", {}, name), side.judge, side.result) : side.result;
    side.node = el("div", { class: called("side side", "-") }, field(called("response"), side.response), side.problem, name && side.own);
    unscored(side);
    return side;
  }

  /** Who writes a checklist, and by which method. The writer need not be the judge. */
  function writing() {
    const method = choice(choices.pipelines.filter((one) => !one.corpus_level).map((one) => [one.name, `${one.name}: ${one.description}`]), { name: "method", "aria-label": "pipeline" });
    const by = choice([["", choices.cannot_write === null ? `as started (${choices.writer})` : "choose a writer"], ...choices.writers], { name: "writer", onchange: allow });
    const button = el("button", { type: "button", name: "generate", onclick: generate }, "Write checklist");
    allow();
    return el("details", {}, el("summary", {}, "Let a model write the checklist"), choices.cannot_write === null ? null : note(`${choices.writer} writes no checklists. Choose another writer here, or start the app with --writer.model.`), el("div", { class: "filters" }, field("method", method), field("written by", by), button));

    function allow() {
      button.disabled = !by.value && choices.cannot_write !== null;
    }

    async function generate() {
      button.disabled = true;
      said.textContent = "Writing the checklist …";
      await act(async () => {
        const settings = { ...first.form.value(), pipeline: method.value };
        const found = await post("generate", { input: prompt.value, reference: reference.value, writer: by.value || null, settings, of: kept.of });
        replace(found.items);
        said.textContent = `${found.items.length} items by ${found.model ?? "the writer"}`;
      });
      if (problem.childElementCount) said.textContent = "";
      allow();
    }
  }

  /** The whole checklist as text, to paste or copy. */
  function asJson() {
    const json = area("", { rows: 8, name: "json", "aria-label": "checklist as JSON" });
    return el("details", { ontoggle: () => (json.value = JSON.stringify(editor.checklist(), null, 2)) }, el("summary", {}, "As JSON"), json, el("button", { type: "button", name: "apply", onclick: () => act(() => replace(itemsOf(json.value))) }, "Apply"));
  }

  function replace(items) {
    editor.replace(items);
    edited();
  }

  /** Take over what a row of a file has. */
  function put({ input, images, of, checklist }) {
    prompt.value = input ?? "";
    Object.assign(kept, { images, of });
    pictures.replaceChildren(thumbnails(images) ?? "");
    if (checklist) editor.replace(checklist);
  }

  function take(i, text) {
    sides[i].response.value = text;
    edited();
  }

  function body(side) {
    const { value } = side.response;
    return { input: prompt.value, target: file ? value : value || first.response.value, reference: reference.value, checklist: editor.checklist(), settings: side.form.value(), of: kept.of };
  }

  function edited() {
    if (!file) sessionStorage.setItem(location.pathname, JSON.stringify({ ...kept, input: prompt.value, reference: reference.value, targets: sides.map((side) => side.response.value), checklist: editor.checklist(), settings: sides.map((side) => side.form.value()) }));
    draw();
  }

  /** Name the judges, and mark what is not of the boxes. */
  function draw() {
    const states = sides.map((side) => side.scored.state()), by = sides.map((side) => side.scored.by), isOld = states.includes("stale");
    const all = (name) => [...new Set(by.map((one) => one[name]))].filter((one) => one !== null).join(" and ");
    sides.forEach((side, i) => {
      side.judge.textContent = `by ${by[i].judge}`;
      for (const node of [side.result, side.figures]) node.classList.toggle("stale", states[i] === "stale");
      side.scored.code.refresh();
    });
    old.hidden = !isOld;
    answers.mark(isOld);
    pictures.hidden = ![prompt, ...sides.map((side) => side.response)].some((one) => one.value.includes(PLACE)); // the judge sees those that have a place
    chip({ judge: all("judge"), models: by.flatMap((one) => one.models), threshold: all("threshold") || null, caveats: by.flatMap((one) => one.caveats), toy: by.some((one) => one.toy) }, ["stale", "not scored"].find((one) => states.includes(one)) ?? "current");
    const from = kept.scored, isRow = from && first.response.value === area(from.target).value && prompt.value === area(from.input).value;
    if (!isRow) return origin.replaceChildren();
    const { file, id, score, judges, same, judge } = from, asked = (first.form.value().judge ?? null) === judge;
    origin.replaceChildren(
      note(`From row ${id} of ${file}, scored ${fixed(score, 4)} by ${judges.join(", ") || "an unrecorded judge"}.`),
      same && asked ? "" : alertOf(`Score asks ${by[0].judge}, not ${judges.join(", ")}. To ask that judge, choose its file under Settings of the judge, or write one in Library.`),
    );
  }

  function unscored(side) {
    side.result.replaceChildren(el("span", { class: "muted" }, side.problem.childElementCount ? "failed" : "not scored yet"));
    side.figures.replaceChildren();
  }

  async function score() {
    const asked = sides.map(ask);
    answers.begin();
    await Promise.all(asked);
  }

  async function ask(side) {
    side.running?.abort();
    const own = (side.running = new AbortController()), given = body(side), say = (text) => (said.textContent = [side.name, text].filter(Boolean).join(": "));
    Object.assign(side, { lines: [], score: null });
    side.scored.of = null;
    say("Scoring …");
    for (const node of [side.result, side.figures]) node.classList.add("stale");
    await attempt(side.problem, async () => {
      let answered = 0;
      const { score, seconds, by } = await judged(given, (place, line) => {
        side.lines[place] = line;
        answers.show(place, line);
        say(`${++answered} of ${given.checklist.length} items answered`);
      }, own.signal);
      Object.assign(side.scored, { of: given, made: by });
      side.score = score.primary_score;
      side.result.replaceChildren(...scoreLine(score));
      side.figures.replaceChildren(metricsLine((name) => score[name]));
      say(`${score.answered} of ${score.total} answered in ${seconds} s, ${fixed(seconds / Math.max(1, score.total), 3)} s per item`);
    });
    if (own !== side.running) return; // scored again meanwhile
    if (side.scored.of === null) [unscored(side), (said.textContent = "")];
    await side.scored.named();
    edited();
  }
}

/** The answers about one response, each in its item, which keeps it while its texts and what it asks are the same. */
function inItems(editor, advice, [side], body) {
  let shown = [], given = null;
  return { total: null, nodes: [], begin, show, mark };

  function begin() {
    [shown, given] = [editor.asked(), body(side)];
    for (const item of shown) item.answer.classList.add("stale");
  }

  function show(place, line) {
    const item = shown[place];
    item.of = asks(given, place);
    item.answer.replaceChildren(...answerBar(line).filter(Boolean));
    item.notes.replaceChildren(...answerNotes(line, advice));
    item.answer.classList.remove("stale");
  }

  function mark() {
    const now = body(side);
    editor.asked().forEach((item, i) => item.answer.classList.toggle("stale", item.of !== undefined && item.of !== asks(now, i)));
  }

  /** What an answer depends on: texts, settings and the item, without its weight and gate. */
  function asks({ checklist, ...given }, i) {
    const { weight, required, ...item } = checklist[i];
    return JSON.stringify([given, item]);
  }
}
