// Compare: one input in several columns, each with its settings, response or own checklist. A failure stays in its column.

import { answerLine, scoreLine } from "./answers.js";
import { getJson, lines, post } from "./api.js";
import { el, note, section } from "./dom.js";
import { alertOf, area, choice, exporter, field, settingsForm } from "./forms.js";

export async function columns(main) {
  const choices = await getJson("choices");
  const prompt = area("", { name: "input" });
  const response = area("", { name: "target", rows: 6 });
  const questions = area("", { name: "checklist", rows: 5, placeholder: "One question per line" });
  const columns = [];
  const strip = el("div", { class: "cards" });
  main.replaceChildren(
    section("Compare", note("Every column scores the same prompt. Leave a field of a column empty to use the shared one.")),
    el("div", { class: "columns" }, el("div", {}, field("prompt", prompt), field("response", response)), field("checklist", questions)),
    el("div", { class: "controls" }, el("button", { type: "button", class: "primary", name: "run", onclick: () => columns.forEach(run) }, "Score all"), el("button", { type: "button", name: "add", onclick: add }, "Add column")),
    strip,
  );
  add();
  add();

  function add() {
    const column = { form: settingsForm(choices) };
    column.response = area("", { rows: 3, name: "target", placeholder: "the shared response" });
    column.questions = area("", { rows: 3, name: "checklist", placeholder: "the shared checklist" });
    column.writer = choice([["", "no: use the checklist"], ...choices.pipelines.filter((one) => !one.corpus_level).map((one) => one.name)], { name: "writer" });
    column.result = el("div", { class: "column-result", "aria-live": "polite" });
    column.name = `Column ${columns.length + 1}`;
    column.code = exporter(() => post("code", body(column, column.written)), "Each gives the figures of this column.");
    const remove = el("button", { type: "button", class: "link", onclick: () => (columns.splice(columns.indexOf(column), 1), column.node.remove()) }, "remove");
    column.node = el(
      "section",
      { class: "card" },
      el("h3", {}, column.name, " ", remove),
      el("details", {}, el("summary", {}, "Settings"), field("write a checklist with", column.writer), field("response", column.response), field("checklist", column.questions), column.form.node),
      column.result,
      column.code.node,
    );
    columns.push(column);
    strip.append(column.node);
  }

  /** What a column scores; `written` is the checklist that a pipeline wrote for it. */
  function body(column, written) {
    const checklist = written ?? list(column.questions.value || questions.value);
    return { input: prompt.value, target: column.response.value || response.value, checklist, settings: column.form.value() };
  }

  async function run(column) {
    column.result.replaceChildren(note("Scoring …"));
    try {
      column.written = null;
      if (column.writer.value) {
        const settings = { ...column.form.value(), pipeline: column.writer.value };
        column.written = (await post("generate", { input: prompt.value, settings })).items;
      }
      const request = body(column, column.written), { checklist } = request;
      column.code.refresh();
      const slots = checklist.map((item) => el("div", { class: "given" }, el("span", { class: "muted" }, "…")));
      const head = el("div", { class: "scores result" });
      column.result.replaceChildren(head, el("ol", { class: "answers" }, checklist.map((item, i) => el("li", {}, el("div", { class: "question" }, item.question ?? item), slots[i]))));
      for await (const event of lines("judge", request)) {
        if (event.event === "item") slots[event.index].replaceChildren(...answerLine(event.item).filter(Boolean));
        else if (event.event === "score") head.replaceChildren(...scoreLine(event.score));
        else if (event.event === "error") throw new Error(event.message);
      }
    } catch (error) {
      column.result.replaceChildren(alertOf(error.message));
    }
  }
}

function list(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}
