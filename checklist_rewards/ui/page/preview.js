// The scores of sample responses while a checklist is edited. The judge is asked only for answers that are not known.

import { probabilityOf, scoreLine } from "./answers.js";
import { judged, post } from "./api.js";
import { el, fixed, note, plural } from "./dom.js";
import { alertOf, area, attempt, field } from "./forms.js";

const PAUSE = 150, FIRST = 2, MOST_ANSWERS = 1000;

/** `editor` holds the checklist; `settings()` are those of the judge, which is `served` or runs in the app's process.
 *  `update()` is called after every edit of the checklist. */
export function samplesPreview(editor, { served, settings }, kept, keep) {
  const prompt = area(kept.prompt, { name: "sample-prompt", rows: 1, class: "grows" });
  const samples = []; // { target, answers, quality, score, last, problem }
  const list = el("div", { class: "samples" }), problem = el("div", {});
  const state = el("span", { class: "muted", role: "status" });
  const button = el("button", { type: "button", class: "primary", name: "read", onclick: read }, "Score the samples");
  let timer = null, asked = 0, running = null;
  for (const text of kept.samples?.length ? kept.samples : Array(FIRST).fill("")) add(text);
  prompt.addEventListener("input", () => (samples.forEach(forget), changed()));
  return {
    node: el(
      "section",
      { class: "part preview-samples" },
      el("h2", {}, "Preview"),
      note("Paste responses. Weights, options and code checks change the scores at once; the judge reads an item again only when its text has changed."),
      field("prompt (optional)", prompt),
      list,
      el("div", { class: "controls" }, el("button", { type: "button", name: "add-sample", onclick: () => add("").target.focus() }, "Add response"), button, state),
      problem,
    ),
    update,
    read,
    value: () => ({ prompt: prompt.value, samples: samples.map((sample) => sample.target.value) }),
    samples: () => filled().map((sample) => ({ target: sample.target.value, input: prompt.value })),
  };

  function filled() {
    return samples.filter((sample) => sample.target.value.trim());
  }

  function add(text) {
    const sample = { target: area(text, { rows: 2, class: "grows", name: "sample", "aria-label": `response ${samples.length + 1}` }), answers: new Map(), quality: null };
    sample.score = el("div", { class: "result sample-score" }, el("span", { class: "muted" }, "not scored yet"));
    sample.problem = el("div", {});
    const remove = el("button", { type: "button", class: "link", onclick: () => (samples.splice(samples.indexOf(sample), 1), sample.node.remove(), changed()) }, "remove");
    sample.node = el("div", { class: "card" }, sample.target, el("div", { class: "heading" }, sample.score, remove), sample.problem);
    sample.target.addEventListener("input", () => (forget(sample), changed()));
    samples.push(sample);
    list.append(sample.node);
    return sample;
  }

  function forget(sample) {
    sample.answers.clear();
    sample.quality = sample.last = null;
  }

  function changed() {
    keep();
    update();
  }

  function update() {
    clearTimeout(timer);
    timer = setTimeout(preview, PAUSE);
  }

  async function preview() {
    const number = ++asked, shown = filled(), items = editor.asked();
    if (!shown.length || !items.length) return draw([], items, shown);
    const body = shown.map((sample) => ({ target: sample.target.value, input: prompt.value, answers: [...sample.answers.values()], quality: sample.quality }));
    try {
      const found = await post("build/preview", { checklist: editor.checklist(), samples: body, settings: settings() });
      if (number !== asked) return;
      if (found.error) throw new Error(found.error);
      problem.replaceChildren();
      draw(found.scores, items, shown);
    } catch (error) {
      if (number === asked) problem.replaceChildren(alertOf(error.message));
    }
  }

  function draw(scores, items, shown) {
    let missing = 0;
    for (const sample of samples) if (!shown.includes(sample) || !scores.length) sample.score.replaceChildren(el("span", { class: "muted" }, "not scored yet"));
    scores.forEach((score, i) => {
      missing += score.items.filter((line) => line.unanswered === "not_read").length;
      const { last } = shown[i], changed = last !== null && last !== undefined && last !== score.primary_score;
      shown[i].score.replaceChildren(...scoreLine(score), changed ? el("small", { class: "was" }, `was ${fixed(last, 4)} when read`) : "");
    });
    items.forEach((item, place) => {
      const answers = scores.map((score, i) => answerOf(score.items[place], samples.indexOf(shown[i]) + 1));
      item.answer.replaceChildren(...(answers.length ? answers : [el("span", { class: "muted" }, "no sample yet")]));
    });
    state.textContent = missing ? `${plural(missing, "answer")} not read yet` : "";
  }

  /** Ask the judge about every sample that lacks an answer; the store has the others. A failure stays with its sample. */
  async function read() {
    clearTimeout(timer);
    running?.abort();
    const own = (running = new AbortController());
    state.textContent = "Reading …";
    // A judge in the app's process answers one response at a time.
    if (served) await Promise.all(filled().map((sample) => readOne(sample, own)));
    else for (const sample of filled()) await readOne(sample, own);
    if (running !== own) return;
    state.textContent = "";
    await preview();
  }

  async function readOne(sample, own) {
    if (own.signal.aborted) return;
    await attempt(sample.problem, async () => {
      const body = { input: prompt.value, target: sample.target.value, checklist: editor.checklist(), settings: settings() };
      const { score } = await judged(body, (_, line) => store(sample, line), own.signal);
      [sample.quality, sample.last] = [score.quality, score.primary_score];
    });
  }

  function store(sample, line) {
    sample.answers.delete(line.id);
    sample.answers.set(line.id, line);
    if (sample.answers.size > MOST_ANSWERS) sample.answers.delete(sample.answers.keys().next().value);
  }
}

/** The answer of an item about one sample, short: the sample's number, the answer and P(answer). */
function answerOf(line, number) {
  const kind = line.passed === true ? "pass" : line.passed === false ? "fail" : "open";
  const p = probabilityOf(line);
  const shown = line.answer ?? (line.unanswered === "not_read" ? "not read yet" : line.unanswered);
  return el("span", { class: `pill ${kind}`, title: line.reasoning }, el("small", {}, `${number}: `), shown, p === null ? null : el("small", {}, ` ${fixed(p, 2)}`));
}
