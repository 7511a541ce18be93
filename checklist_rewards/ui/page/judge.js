// Judge: a prompt, a response and a checklist; the answers arrive in the items. Unchanged items come from the store.

import { answerBar, answerNotes, metricsLine, scoreLine } from "./answers.js";
import { getJson, judged, post } from "./api.js";
import { choice, el, field, fixed, note, section } from "./dom.js";
import { area, attempt, exporter, onSend, schemaForm } from "./forms.js";
import { itemEditor, itemsOf, shelf } from "./items.js";

const KEPT = "judge-view";

/** What the view shows when it is opened next: `input`, `target`, `reference` and `checklist`. */
export function keepForJudge(value) {
  sessionStorage.setItem(KEPT, JSON.stringify(value));
}

export async function judge(main) {
  const choices = await getJson("choices");
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  const prompt = area(kept.input, { name: "input", class: "grows", placeholder: "What the model was asked. It may be empty." });
  const response = area(kept.target, { name: "target", rows: 8, class: "grows", placeholder: "The text to score" });
  const reference = area(kept.reference, { name: "reference", rows: 2, class: "grows" });
  const editor = itemEditor((item, asks) => {
    if (asks) item.answer.classList.add("stale");
    keep();
  });
  const result = el("div", { class: "result", "aria-live": "polite" }, el("span", { class: "muted" }, "not scored yet"));
  const figures = el("div", { class: "figures" });
  const problem = el("div", {});
  const state = el("span", { class: "muted", role: "status" });
  const code = exporter(() => post("code", body()), "Each gives the figures of this page.");
  const form = schemaForm(choices.settings, {}, code.refresh);
  const json = area("", { rows: 8, name: "json", "aria-label": "checklist as JSON" });
  const act = (work) => attempt(problem, work);
  const write = writing();
  let running = null;

  main.replaceChildren(
    el("div", { class: "scorebar" }, el("button", { type: "button", class: "primary", name: "score", title: "Ctrl+Enter", onclick: score }, "Score"), result, state),
    problem,
    el(
      "div",
      { class: "judge" },
      section("Response", field("prompt", prompt), field("response", response), el("details", { open: Boolean(kept.reference) }, el("summary", {}, "Reference answer"), field("reference", reference))),
      section(
        "Checklist",
        editor.node,
        figures,
        shelf(choices, { checklist: editor.checklist, open: replace, act, tell: (text) => (state.textContent = text) }),
        write,
        asJson(),
      ),
    ),
    el("details", { class: "part settings" }, el("summary", {}, `Settings of the judge (${choices.judge})`), form.node),
    code.node,
  );
  for (const control of [prompt, response, reference]) control.addEventListener("change", keep);
  editor.replace(kept.checklist?.length ? kept.checklist : [{ question: "" }]);
  onSend(score);
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
        const found = await post("generate", { input: prompt.value, reference: reference.value, writer: by.value || null, settings });
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
    result.replaceChildren(el("span", { class: "muted" }, "not scored yet"));
    figures.replaceChildren();
    keep();
  }

  function body() {
    return { input: prompt.value, target: response.value, reference: reference.value, checklist: editor.checklist(), settings: form.value() };
  }

  function keep() {
    keepForJudge({ input: prompt.value, target: response.value, reference: reference.value, checklist: editor.checklist() });
    code.refresh();
  }

  function tell(item, line) {
    item.answer.replaceChildren(...answerBar(line).filter(Boolean));
    item.notes.replaceChildren(...answerNotes(line, choices.advice));
    item.answer.classList.remove("stale");
  }

  async function score() {
    running?.abort();
    const own = (running = new AbortController()), shown = editor.asked();
    state.textContent = "Scoring …";
    for (const item of shown) item.answer.classList.add("stale");
    keep();
    await act(async () => {
      let answered = 0;
      const { score, seconds } = await judged(body(), (place, line) => {
        tell(shown[place], line);
        state.textContent = `${++answered} of ${shown.length} items answered`;
      }, own.signal);
      result.replaceChildren(...scoreLine(score));
      figures.replaceChildren(metricsLine(score));
      state.textContent = `${score.answered} of ${score.total} answered in ${seconds} s, ${fixed(seconds / Math.max(1, score.total), 3)} s per item`;
    });
    if (problem.childElementCount) state.textContent = "";
  }
}
