// Judge: a prompt, a response and a checklist; the answers arrive in the items. Unchanged items come from the store.

import { answerBar, answerNotes, metricsLine, scoreLine } from "./answers.js";
import { getJson, judged, post } from "./api.js";
import { PLACE, choice, el, field, fixed, note, section, thumbnails } from "./dom.js";
import { alertOf, area, attempt, chip, onSend, schemaForm, scoring } from "./forms.js";
import { itemEditor, itemsOf, shelf } from "./items.js";

const KEPT = "judge-view";

/** What the view shows when it is opened next: `input`, `target`, `reference`, `checklist` and `settings`; and `scored`, the
 *  row of a file that it is of, with its `input` and `target`. */
export function keepForJudge(value) {
  sessionStorage.setItem(KEPT, JSON.stringify(value));
}

export async function judge(main, project) {
  const choices = await getJson("choices");
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  const prompt = area(kept.input, { name: "input", class: "grows", placeholder: "What the model was asked. It may be empty." });
  const response = area(kept.target, { name: "target", rows: 8, class: "grows", placeholder: "The text to score" });
  const reference = area(kept.reference, { name: "reference", rows: 2, class: "grows" });
  const editor = itemEditor(() => keep());
  const result = el("div", { class: "result", "aria-live": "polite" }, el("span", { class: "muted" }, "not scored yet"));
  const figures = el("div", { class: "figures" });
  const problem = el("div", {});
  const pictures = el("div", {}, thumbnails(kept.images));
  const state = el("span", { class: "muted", role: "status" });
  const scored = scoring(project.judge, body, draw, "Each gives the figures of this page.");
  const form = schemaForm(choices.settings, kept.settings, () => (keep(), scored.named()));
  const origin = el("div", {}), old = el("span", { class: "flag", hidden: true }, "stale: changed since it was scored");
  const json = area("", { rows: 8, name: "json", "aria-label": "checklist as JSON" });
  const act = (work) => attempt(problem, work);
  const write = writing();
  let running = null;

  main.replaceChildren(
    el("div", { class: "scorebar" }, el("button", { type: "button", class: "primary", name: "score", title: "Ctrl+Enter", onclick: score }, "Score"), result, old, state),
    problem,
    origin,
    el(
      "div",
      { class: "judge" },
      section("Response", field("prompt", prompt), pictures, field("response", response), el("details", { open: Boolean(kept.reference) }, el("summary", {}, "Reference answer"), field("reference", reference))),
      section(
        "Checklist",
        editor.node,
        figures,
        shelf(choices, { checklist: editor.checklist, open: replace, act, tell: (text) => (state.textContent = text) }),
        write,
        asJson(),
      ),
    ),
    el("details", { class: "part settings" }, el("summary", {}, "Settings of the judge"), form.node),
    scored.code.node,
  );
  for (const control of [prompt, response, reference]) for (const event of ["input", "change"]) control.addEventListener(event, keep);
  editor.replace(kept.checklist?.length ? kept.checklist : [{ question: "" }]);
  onSend(score);
  draw();
  await scored.named();
  const asked = new URLSearchParams(location.search).get("checklist");
  if (asked) await act(async () => replace(itemsOf((await getJson("library/file", { name: asked })).text)));

  /** Who writes a checklist, and by which method. The writer need not be the judge. */
  function writing() {
    const method = choice(choices.pipelines.filter((one) => !one.corpus_level).map((one) => [one.name, `${one.name}: ${one.description}`]), { name: "method", "aria-label": "pipeline" });
    const first = choices.cannot_write === null ? ["", `as started (${choices.writer})`] : ["", "choose a writer"];
    const by = choice([first, ...choices.writers], { name: "writer" });
    const button = el("button", { type: "button", name: "generate", onclick: generate }, "Write checklist");
    const allow = () => (button.disabled = !by.value && choices.cannot_write !== null);
    by.addEventListener("change", allow);
    allow();
    return el("details", {}, el("summary", {}, "Let a model write the checklist"), choices.cannot_write === null ? null : note(`${choices.writer} writes no checklists. Choose another writer here, or start the app with --writer.model.`), el("div", { class: "filters" }, field("method", method), field("written by", by), button));

    async function generate() {
      button.disabled = true;
      state.textContent = "Writing the checklist …";
      await act(async () => {
        const settings = { ...form.value(), pipeline: method.value };
        const found = await post("generate", { input: prompt.value, reference: reference.value, writer: by.value || null, settings, of: kept.of });
        replace(found.items);
        state.textContent = `${found.items.length} items by ${found.model ?? "the writer"}`;
      });
      if (problem.childElementCount) state.textContent = "";
      allow();
    }
  }

  /** The whole checklist as text, to paste or copy. */
  function asJson() {
    const details = el("details", {}, el("summary", {}, "As JSON"), json, el("button", { type: "button", name: "apply", onclick: () => act(() => replace(itemsOf(json.value))) }, "Apply"));
    details.addEventListener("toggle", () => (json.value = JSON.stringify(editor.checklist(), null, 2)));
    return details;
  }

  function replace(items) {
    editor.replace(items);
    none();
    keep();
  }

  /** There is no score. */
  function none() {
    scored.of = null;
    result.replaceChildren(el("span", { class: "muted" }, "not scored yet"));
    figures.replaceChildren();
  }

  /** Mark what is not of the texts in the boxes. An item keeps its answer while its texts and what it asks are the same. */
  function draw() {
    const stale = scored.isStale(), now = body();
    for (const node of [result, figures]) node.classList.toggle("stale", stale);
    old.hidden = !stale;
    pictures.hidden = !`${prompt.value}${response.value}`.includes(PLACE); // the judge sees those that have a place
    editor.asked().forEach((item, i) => item.answer.classList.toggle("stale", item.of !== undefined && item.of !== asks(now, i)));
    chip(scored.by, scored.state());
    const from = kept.scored, isRow = from && response.value === area(from.target).value && prompt.value === area(from.input).value;
    if (!isRow) return origin.replaceChildren();
    const { file, id, score, judges, same, judge } = from, asked = (form.value().judge ?? null) === judge;
    origin.replaceChildren(
      note(`From row ${id} of ${file}, scored ${fixed(score, 4)} by ${judges.join(", ") || "an unrecorded judge"}.`),
      same && asked ? "" : alertOf(`Score asks ${scored.by.judge}, not ${judges.join(", ")}. To ask that judge, choose its file under Settings of the judge, or write one in Library.`),
    );
  }

  /** What an answer depends on: texts, settings and the item, without its weight and gate. */
  function asks({ checklist, ...given }, i) {
    const { weight, required, ...item } = checklist[i];
    return JSON.stringify([given, item]);
  }

  function body() {
    return { input: prompt.value, target: response.value, reference: reference.value, checklist: editor.checklist(), settings: form.value(), of: kept.of };
  }

  function keep() {
    keepForJudge({ ...body(), scored: kept.scored, images: kept.images });
    scored.code.refresh();
    draw();
  }

  function tell(item, line, of) {
    item.of = of;
    item.answer.replaceChildren(...answerBar(line).filter(Boolean));
    item.notes.replaceChildren(...answerNotes(line, choices.advice));
    item.answer.classList.remove("stale");
  }

  async function score() {
    running?.abort();
    const own = (running = new AbortController()), shown = editor.asked(), given = body();
    state.textContent = "Scoring …";
    scored.of = null;
    for (const item of shown) item.answer.classList.add("stale");
    for (const node of [result, figures]) node.classList.add("stale");
    await act(async () => {
      let answered = 0;
      const { score, seconds, by } = await judged(given, (place, line) => {
        tell(shown[place], line, asks(given, place));
        state.textContent = `${++answered} of ${shown.length} items answered`;
      }, own.signal);
      result.replaceChildren(...scoreLine(score));
      figures.replaceChildren(metricsLine(score));
      Object.assign(scored, { of: given, made: by });
      state.textContent = `${score.answered} of ${score.total} answered in ${seconds} s, ${fixed(seconds / Math.max(1, score.total), 3)} s per item`;
    });
    if (own !== running) return;
    if (scored.of === null) [none(), (state.textContent = "")];
    await scored.named();
    keep();
  }
}
