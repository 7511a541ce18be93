// Judge: a prompt, a response and a checklist; the answers arrive in the items. Unchanged items come from the store.

import { answerLine, scoreLine } from "./answers.js";
import { getJson, lines, post } from "./api.js";
import { el, section } from "./dom.js";
import { alertOf, area, choice, exporter, field, settingsForm } from "./forms.js";
import { itemEditor } from "./items.js";
import { shelf } from "./shelf.js";

const KEPT = "judge-view";

export async function judge(main) {
  const choices = await getJson("choices");
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  const prompt = area(kept.input, { name: "input" });
  const response = area(kept.target, { name: "target", rows: 8 });
  const reference = area(kept.reference, { name: "reference", rows: 2 });
  const editor = itemEditor((item, asks) => {
    if (asks) item.answer.classList.add("stale");
    keep();
  });
  const result = el("div", { class: "scores result", "aria-live": "polite" });
  const problem = el("div", {});
  const state = el("span", { class: "muted", role: "status" });
  const code = exporter(() => post("code", body()), "Each gives the figures of this page.");
  const form = settingsForm(choices, code.refresh);
  const writer = choice(choices.pipelines.filter((one) => !one.corpus_level).map((one) => [one.name, `${one.name}: ${one.description}`]), { name: "writer", "aria-label": "pipeline" });
  const json = area("", { rows: 8, name: "json", "aria-label": "checklist as JSON" });
  let running = null;

  const scoreButton = el("button", { type: "button", class: "primary", name: "score", onclick: score }, "Score");
  main.replaceChildren(
    el(
      "div",
      { class: "judge" },
      section("Response", field("prompt", prompt), field("response", response), el("details", { open: Boolean(kept.reference) }, el("summary", {}, "Reference answer"), field("reference", reference))),
      el(
        "section",
        { class: "part" },
        el("h2", {}, "Checklist"),
        el("div", { class: "controls" }, writer, el("button", { type: "button", name: "generate", onclick: generate }, "Write checklist")),
        editor.node,
        shelf(choices, { checklist: editor.checklist, open: replace, act, tell: (text) => (state.textContent = text) }),
        el("div", { class: "controls" }, el("button", { type: "button", name: "add", onclick: () => editor.add({ question: "" }).question.focus() }, "Add item")),
        asJson(),
      ),
      el("section", { class: "part" }, el("div", { class: "controls" }, scoreButton, state), problem, result),
    ),
    el("details", { class: "part settings" }, el("summary", {}, `Settings of the judge (${choices.judge})`), form.node),
    code.node,
  );
  for (const control of [prompt, response, reference]) control.addEventListener("change", keep);
  editor.replace(kept.checklist?.length ? kept.checklist : [{ question: "" }]);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) score();
  });

  async function act(work) {
    try {
      await work();
      problem.replaceChildren();
    } catch (error) {
      problem.replaceChildren(alertOf(error.message));
    }
  }

  /** The whole checklist as text, to paste or copy. */
  function asJson() {
    const details = el("details", {}, el("summary", {}, "As JSON"), json, el("button", { type: "button", name: "apply", onclick: apply }, "Apply"));
    details.addEventListener("toggle", () => (json.value = JSON.stringify(editor.checklist(), null, 2)));
    return details;
  }

  function apply() {
    try {
      const value = JSON.parse(json.value);
      replace(Array.isArray(value) ? value : value.items);
      problem.replaceChildren();
    } catch (error) {
      problem.replaceChildren(alertOf(`The checklist is not valid JSON: ${error.message}`));
    }
  }

  function replace(values) {
    editor.replace(values);
    keep();
  }

  function body() {
    return { input: prompt.value, target: response.value, reference: reference.value, checklist: editor.checklist(), settings: form.value() };
  }

  function keep() {
    sessionStorage.setItem(KEPT, JSON.stringify(body()));
    code.refresh();
  }

  async function score() {
    running?.abort();
    const own = (running = new AbortController()), shown = editor.asked();
    problem.replaceChildren();
    state.textContent = "Scoring …";
    for (const item of shown) item.answer.classList.add("stale");
    keep();
    try {
      let answered = 0;
      for await (const event of lines("judge", body(), own.signal)) {
        if (event.event === "item") {
          shown[event.index].answer.replaceChildren(...answerLine(event.item).filter(Boolean));
          shown[event.index].answer.classList.remove("stale");
          state.textContent = `${++answered} of ${shown.length} items answered`;
        } else if (event.event === "score") {
          event.score.items.forEach((line, i) => shown[i].answer.replaceChildren(...answerLine(line).filter(Boolean)));
          result.replaceChildren(...scoreLine(event.score));
          state.textContent = `${event.score.answered} of ${event.score.total} items answered in ${event.seconds} s`;
        } else if (event.event === "error") throw new Error(event.message);
      }
    } catch (error) {
      if (own.signal.aborted) return;
      state.textContent = "";
      problem.replaceChildren(alertOf(error.message));
    }
  }

  async function generate(event) {
    event.target.disabled = true;
    state.textContent = "Writing the checklist …";
    problem.replaceChildren();
    try {
      const settings = { ...form.value(), pipeline: writer.value };
      const found = await post("generate", { input: prompt.value, reference: reference.value, settings });
      replace(found.items);
      state.textContent = `${found.items.length} items by ${found.model ?? "the writer"}`;
    } catch (error) {
      state.textContent = "";
      problem.replaceChildren(alertOf(error.message));
    }
    event.target.disabled = false;
  }
}
