// Judge: a prompt, a response and a checklist; the answers arrive in the items. Unchanged items come from the store.

import { answerLine, scoreLine } from "./answers.js";
import { getJson, lines, post } from "./api.js";
import { el, note, section } from "./dom.js";
import { alertOf, area, choice, exporter, field, settingsForm } from "./forms.js";

const KEPT = "judge-view";

export async function judge(main) {
  const choices = await getJson("choices");
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  const items = []; // { question, weight, more, node, place }
  const prompt = area(kept.input, { name: "input" });
  const response = area(kept.target, { name: "target", rows: 8 });
  const reference = area(kept.reference, { name: "reference", rows: 2 });
  const list = el("ol", { class: "editor" });
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
        list,
        shelf(),
        el("div", { class: "controls" }, el("button", { type: "button", name: "add", onclick: () => add({ question: "" }).node.querySelector("textarea").focus() }, "Add item")),
        asJson(),
      ),
      el("section", { class: "part" }, el("div", { class: "controls" }, scoreButton, state), problem, result),
    ),
    el("details", { class: "part settings" }, el("summary", {}, `Settings of the judge (${choices.judge})`), form.node),
    code.node,
  );
  for (const control of [prompt, response, reference]) control.addEventListener("change", keep);
  for (const item of kept.checklist ?? []) add(item);
  if (!items.length) add({ question: "" });
  addEventListener("resize", () => items.forEach((item) => fit(item.question)));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) score();
  });

  /** Open and save checklists of the library. */
  function shelf() {
    const files = choice([["", "open a saved checklist"], ...choices.checklists], { name: "saved", "aria-label": "saved checklists" });
    files.addEventListener("change", () => act(async () => {
      if (!files.value) return;
      const value = JSON.parse((await getJson("library/file", { name: files.value })).text);
      replace(Array.isArray(value) ? value : value.items);
    }));
    const name = el("input", { name: "checklist-name", placeholder: "name", "aria-label": "name of the checklist" });
    const save = el("button", { type: "button", name: "save", onclick: () => act(async () => {
      const file = `checklists/${name.value.replace(/\.json$/, "")}.json`;
      const known = choices.checklists.includes(file) ? (await getJson("library/file", { name: file })).stamp : null;
      await post("library/file", { name: file, checklist: checklist(), stamp: known });
      if (known === null) {
        choices.checklists.push(file);
        files.append(el("option", {}, file));
      }
      state.textContent = `${file} is saved`;
    }) }, "Save checklist");
    return el("div", { class: "controls" }, files, name, save);
  }

  async function act(work) {
    try {
      await work();
      problem.replaceChildren();
    } catch (error) {
      problem.replaceChildren(alertOf(error.message));
    }
  }

  /** Items with options, checks or categories are edited as JSON. */
  function asJson() {
    const details = el("details", {}, el("summary", {}, "As JSON: options, categories, code checks"), json, el("button", { type: "button", name: "apply", onclick: apply }, "Apply"));
    details.addEventListener("toggle", () => (json.value = JSON.stringify(checklist(), null, 2)));
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
    items.length = 0;
    list.replaceChildren();
    for (const value of values) add(value);
    keep();
  }

  function add(value) {
    const { question, weight = 1, required = false, ...more } = typeof value === "string" ? { question: value } : value;
    delete more.id; // follows from the question
    const item = { more };
    item.question = area(question, { rows: 1, class: "question", "aria-label": "question", placeholder: "Does the response …?" });
    item.weight = el("input", { type: "number", step: "any", class: "short", "aria-label": "weight", value: weight });
    item.required = el("input", { type: "checkbox", "aria-label": "required", checked: required });
    item.answer = el("div", { class: "given" }, el("span", { class: "muted" }, "no answer yet"));
    const remove = el("button", { type: "button", class: "link", onclick: () => (items.splice(items.indexOf(item), 1), item.node.remove(), keep()) }, "remove");
    const tags = [more.category, more.options && `options: ${more.options.map((one) => one.label).join(", ")}`, more.check && "code check"].filter(Boolean);
    item.node = el(
      "li",
      { class: "item" },
      item.question,
      el("div", { class: "controls" }, field("weight", item.weight), el("label", { class: "check" }, item.required, " required"), tags.map((tag) => el("span", { class: "tag" }, tag)), remove),
      item.answer,
    );
    item.question.addEventListener("input", () => {
      item.answer.classList.add("stale");
      fit(item.question);
    });
    for (const control of [item.question, item.weight, item.required]) control.addEventListener("change", keep);
    items.push(item);
    list.append(item.node);
    fit(item.question);
    return item;
  }

  function fit(control) {
    control.style.setProperty("height", "auto");
    control.style.setProperty("height", `${control.scrollHeight + 2}px`);
  }

  function asked() {
    return items.filter((item) => item.question.value.trim());
  }

  function checklist() {
    return asked().map((item) => {
      const weight = Number(item.weight.value);
      return { question: item.question.value, ...(weight === 1 ? {} : { weight }), ...(item.required.checked ? { required: true } : {}), ...item.more };
    });
  }

  function body() {
    return { input: prompt.value, target: response.value, reference: reference.value, checklist: checklist(), settings: form.value() };
  }

  function keep() {
    sessionStorage.setItem(KEPT, JSON.stringify(body()));
    code.refresh();
  }

  async function score() {
    running?.abort();
    const own = (running = new AbortController()), shown = asked();
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
