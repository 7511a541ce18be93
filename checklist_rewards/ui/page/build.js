// Build: write a checklist stage by stage, refine it, edit it with a live preview, save it. Nothing typed is lost: what
// replaces the checklist can be undone, and the page keeps its text while the tab is open.

import { probabilityOf, scoreLine } from "./answers.js";
import { getJson, judged, latest, post } from "./api.js";
import { choice, el, field, fixed, note, plural, section, table } from "./dom.js";
import { alertOf, area, attempt, exporter, onSend, schemaForm } from "./forms.js";
import { itemEditor, shelf } from "./items.js";

const KEPT = "build-view", OPEN = "build-panel"; // of the panels with this name, one is open at a time
const PAUSE = 150, TICK = 500, FIRST = 2, MOST_ANSWERS = 1000;

export async function build(main, project) {
  const [choices, parts] = await Promise.all([getJson("choices"), getJson("build")]);
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  const past = []; // earlier checklists, for Undo
  let complete = false;
  const editor = itemEditor(changed, "no sample yet");
  const preview = samplesPreview(editor, { served: choices.served, settings: () => form.value() }, kept.preview ?? {}, keep);
  const code = exporter(() => post("code", { input: preview.value().prompt, target: preview.samples()[0]?.target ?? "", checklist: editor.checklist(), settings: form.value() }), () => "Each gives the figures of this page.");
  const form = schemaForm(choices.settings, {}, changed);
  const by = choice([["", parts.cannot_write === null ? parts.writer : "choose a writer"], ...parts.writers], { name: "writer", value: kept.writer ?? "", onchange: () => (stages.ready(), keep()) });
  const writer = { name: () => by.value || null, able: () => Boolean(by.value) || parts.cannot_write === null };
  const stages = stagesForm(parts, writer, kept.stages ?? {}, use, keep);
  const refine = refineForm(parts, { checklist: editor.checklist, samples: preview.samples, judge: () => form.value(), writer: writer.name, accept: use });
  const problem = el("div", {});
  const state = el("span", { class: "muted", role: "status" });
  const undo = el("button", { type: "button", name: "undo", disabled: true, onclick: takeBack }, "Undo");

  main.replaceChildren(
    el(
      "div",
      { class: "build" },
      el(
        "div",
        {},
        section("Write in stages", note("Each stage reads what the one before it holds, with your edits."), field("written by", by), parts.cannot_write === null ? null : note(`${parts.cannot_write} Choose a writer, or start the app with --writer.model.`), stages.node),
        section("Refine", el("details", { name: OPEN }, el("summary", {}, "Merge, drop or rewrite items, and see why before you accept it"), refine)),
        el("details", { class: "part settings", name: OPEN }, el("summary", {}, `Settings of the judge (${project.judge.judge})`), form.node),
        code.node,
      ),
      el(
        "div",
        { class: "in-sight" },
        el(
          "section",
          { class: "part" },
          el("div", { class: "heading" }, el("h2", {}, "Checklist"), state, undo),
          problem,
          editor.node,
          shelf(choices, { checklist: editor.checklist, open: (items) => use(items, "opened"), act: (work) => attempt(problem, work), tell: (text) => (state.textContent = text) }),
        ),
        preview.node,
      ),
    ),
  );
  editor.replace(kept.checklist?.length ? kept.checklist : [{ question: "" }]);
  complete = true;
  preview.update();
  onSend(preview.read);

  function changed() {
    keep();
    preview.update();
    code.refresh();
  }

  /** Another checklist takes the place of the one on the page. */
  function use(items, sentence) {
    past.push(editor.checklist());
    undo.disabled = false;
    editor.replace(items);
    state.textContent = sentence;
    changed();
  }

  function takeBack() {
    const items = past.pop();
    undo.disabled = !past.length;
    editor.replace(items.length ? items : [{ question: "" }]);
    state.textContent = "undone";
    changed();
  }

  function keep() {
    if (!complete) return;
    sessionStorage.setItem(KEPT, JSON.stringify({ writer: by.value, stages: stages.value(), checklist: editor.checklist(), preview: preview.value() }));
  }
}

/** What a refiner would change, before and after side by side, to accept or to discard. `checklist()` and `samples()` are what is refined, `accept(items, sentence)` takes the result. */
function refineForm(choices, { checklist, samples, judge, writer, accept }) {
  const select = choice(choices.refiners.map((one) => one.name), { name: "refiner" });
  const about = el("div", { class: "about" }), own = el("div", {}), result = el("div", { "aria-live": "polite" });
  const button = el("button", { type: "button", class: "primary", name: "refine", onclick: refine }, "Refine");
  const state = el("span", { class: "muted", role: "status" });
  let settings = null;
  select.addEventListener("change", draw);
  draw();
  return el(
    "div",
    { class: "refine" },
    el("div", { class: "controls" }, field("refiner", select), button, state),
    about,
    el("details", { class: "settings" }, el("summary", {}, "Settings of the refiner"), own),
    result,
  );

  function draw() {
    const one = choices.refiners.find((entry) => entry.name === select.value);
    about.replaceChildren(note(one.description.replaceAll("`", "")));
    settings = schemaForm(one.settings);
    own.replaceChildren(Object.keys(one.settings.properties).length ? settings.node : note("It has none."));
  }

  async function refine() {
    state.textContent = "Refining …";
    await attempt(result, async () => {
      const body = { refiner: select.value, settings: settings.value(), checklist: checklist(), samples: samples(), judge: judge(), writer: writer() };
      show(select.value, await post("build/refine", body));
    }, button);
    state.textContent = "";
  }

  function show(name, found) {
    const count = (side, state) => found[side].filter((line) => line.state === state).length;
    const sentence = `${name}: ${plural(found.before.length, "item")} before, ${found.after.length} after; ${count("before", "dropped")} dropped or merged, ${count("after", "changed")} changed, ${count("after", "new")} new`;
    result.replaceChildren(
      note(sentence, "."),
      el("div", { class: "columns" }, side("Before", found.before), side("After", found.after)),
      el(
        "div",
        { class: "controls" },
        el("button", { type: "button", class: "primary", name: "accept", onclick: () => (result.replaceChildren(), accept(found.items, sentence)) }, "Accept"),
        el("button", { type: "button", name: "discard", onclick: () => result.replaceChildren() }, "Discard"),
      ),
    );
  }

  function side(heading, lines) {
    const rows = lines.map((line) => [[line.question, line.reason ? el("div", { class: "reason" }, line.reason) : null], el("span", { class: `state ${line.state}` }, line.state)]);
    return el("div", {}, el("h3", {}, heading), table(["item", "what became of it"], rows, { "aria-label": heading }));
  }
}

/** The form of a source and its stages. `writer` is who writes, and whether it can; `use(items)` gets the finished checklist; `keep()` is called after edits. */
function stagesForm(choices, writer, kept, use, keep) {
  const select = choice(choices.pipelines.map((one) => [one.name, one.description ? `${one.name}: ${one.description}` : one.name]), { name: "method", value: kept.pipeline ?? choices.pipelines[0].name });
  const about = el("div", {}), inputs = el("div", {}), own = el("div", {}), problem = el("div", {});
  const settingsPanel = el("details", { class: "settings", name: OPEN }, el("summary", {}, "Settings of the writer"), own);
  const sourcePanel = el("details", { class: "source-form", name: OPEN, open: true }, el("summary", {}, "Source"), about, inputs);
  const strip = el("ol", { class: "stages" });
  const sources = kept.sources ?? {}, chosen = kept.settings ?? {};
  const plans = latest("build/plan");
  let plan = null, source = null, settings = null, cards = [];
  select.addEventListener("change", () => load({}));
  load(kept.drafts ?? {}, kept.made);
  return {
    node: el("div", {}, field("method", select), sourcePanel, settingsPanel, problem, strip),
    ready,
    value,
  };

  function value() {
    collect();
    const shown = cards.filter((card) => card.form), of = (get) => Object.fromEntries(shown.map((card) => [card.name, get(card)]));
    return { pipeline: select.value, sources, settings: chosen, drafts: of((card) => card.form.value()), made: of((card) => card.made) };
  }

  function collect() {
    if (source) sources[plan.pipeline] = source.value();
    if (settings) chosen[plan.pipeline] = settings.value();
  }

  /** Show the source, the settings and the stages of the chosen method. */
  async function load(drafts, made) {
    collect();
    const { name, settings: schema } = choices.pipelines.find((one) => one.name === select.value);
    const found = await planned(name, chosen[name]);
    if (!found) return;
    plan = { ...found, pipeline: name };
    settings = schemaForm(schema, chosen[name], replan);
    own.replaceChildren(settings.node);
    fill(sources[name] ?? {});
    about.replaceChildren(el("button", { type: "button", name: "example", onclick: example }, "Fill in an example"));
    draw(drafts, made);
    keep();
  }

  function example() {
    const typed = source.value();
    fill(plan.example);
    if (Object.keys(typed).length) about.append(" ", el("button", { type: "button", name: "undo-example", onclick: (event) => (event.target.remove(), fill(typed), keep()) }, "Undo"));
    keep();
  }

  function fill(value) {
    source = schemaForm(plan.source, value, () => (age(), keep()));
    inputs.replaceChildren(source.node);
    age();
  }

  async function planned(pipeline, settings) {
    const found = await plans({ pipeline, settings });
    if (found) problem.replaceChildren(found.error ? alertOf(found.error) : "");
    return found?.error ? null : found;
  }

  /** After a change of the settings, there may be other stages; those that remain keep their output. */
  async function replan() {
    keep();
    const found = await planned(plan.pipeline, settings.value());
    if (!found || found.stages.join() === plan.stages.join()) return;
    const { drafts, made } = value();
    plan = { ...found, pipeline: plan.pipeline };
    draw(drafts, made);
  }

  function draw(drafts, made = {}) {
    cards = plan.stages.map((name, place) => stageCard(name, place));
    strip.replaceChildren(...cards.map((card) => card.node));
    for (const card of cards) if (drafts[card.name]) card.show(drafts[card.name], made[card.name]);
    ready();
  }

  /** A stage can be run once the stage before has an output. */
  function ready() {
    cards.forEach((card, i) => (card.run.disabled = card.busy || !writer.able() || (i > 0 && !cards[i - 1].form)));
  }

  /** What the output of a stage is made from now. */
  function inputOf(place) {
    return JSON.stringify([source.value(), place ? cards[place - 1].form?.value() : null]);
  }

  /** Mark the stages whose output, or that of a stage before, was made from something else. */
  function age() {
    let old = false;
    for (const [place, card] of cards.entries()) {
      old ||= card.form !== null && card.made !== inputOf(place);
      card.age.textContent = old && card.form ? "made from an older version of the text above; run it again to update it" : "";
    }
  }

  function stageCard(name, place) {
    const card = { name, form: null, made: null, busy: false }, earlier = []; // what another run has replaced
    const state = el("span", { class: "muted", role: "status" }), failed = el("div", {}), output = el("div", { class: "draft" });
    const panel = el("details", { name: OPEN, hidden: true }, el("summary", {}, "Output"), output);
    card.age = el("span", { class: "muted" });
    card.run = el("button", { type: "button", name: `run-${name}`, class: "primary", onclick: run }, `Run ${name.replaceAll("_", " ")}`);
    const finish = el("button", { type: "button", name: `use-${name}`, onclick: finished, hidden: true }, "Use as checklist");
    const back = el("button", { type: "button", name: `undo-${name}`, hidden: true, onclick: () => (card.show(...earlier.pop()), (back.hidden = !earlier.length), keep()) }, "Undo");
    const cancel = el("button", { type: "button", name: `cancel-${name}`, hidden: true }, "Cancel");
    card.node = el(
      "li",
      { class: "stage" },
      el("h3", {}, `${place + 1}. ${name.replaceAll("_", " ")}`),
      el("span", { class: "muted" }, choices.stages[name] ?? ""),
      el("div", { class: "controls" }, card.run, cancel, finish, back, state, card.age),
      failed,
      panel,
    );
    card.show = (draft, made = inputOf(place)) => {
      card.form = schemaForm(plan.draft, draft, () => (age(), keep()));
      card.made = made;
      finish.hidden = false;
      output.replaceChildren(card.form.node);
      panel.hidden = false;
      age();
    };
    return card;

    function request() {
      return { pipeline: plan.pipeline, settings: settings.value(), source: source.value(), writer: writer.name() };
    }

    async function run() {
      const id = crypto.randomUUID(), own = new AbortController(), started = Date.now();
      card.busy = true;
      ready();
      cancel.hidden = false;
      cancel.onclick = () => {
        own.abort();
        post("build/stop", { run: id }).catch(() => null); // a server that is gone has stopped
      };
      const told = async () => {
        const { done, total } = await getJson("build/progress", { run: id }).catch(() => ({}));
        if (card.busy) state.textContent = `${total ? `${done} of ${plural(total, "request")} answered${done === total ? ", unusable replies are asked again" : ""}` : "Starting the writer"}, ${fixed((Date.now() - started) / 1000, 0)} s`;
      };
      const ticking = setInterval(told, TICK);
      state.textContent = "Running …";
      await attempt(failed, async () => {
        const draft = place ? cards[place - 1].form.value() : null, made = inputOf(place);
        const found = await post("build/stage", { ...request(), stage: name, draft, run: id }, own.signal);
        if (card.form) earlier.push([card.form.value(), card.made]);
        back.hidden = !earlier.length;
        card.show(found.draft, made);
        panel.open = true; // which closes the others
        finish.hidden = found.questions === null;
        state.textContent = `${plural(found.asked, "request")}, ${found.kept} kept, ${found.seconds} s`;
        keep();
      });
      clearInterval(ticking);
      cancel.hidden = true;
      if (failed.childElementCount || own.signal.aborted) state.textContent = own.signal.aborted ? "cancelled; the replies so far are stored" : "";
      card.busy = false;
      ready();
    }

    function finished() {
      return attempt(failed, async () => {
        const found = await post("build/checklist", { ...request(), draft: card.form.value() });
        use(found.items, `${plural(found.items.length, "item")} by ${found.model}`);
      });
    }
  }
}

/** The scores of sample responses while a checklist is edited. `editor` holds the checklist; `settings()` are those of the judge, which is `served` or runs in the app's process.
 *  `update()` is called after every edit of the checklist. */
function samplesPreview(editor, { served, settings }, kept, keep) {
  const prompt = area(kept.prompt, { name: "sample-prompt", rows: 1, class: "grows" });
  const samples = []; // { target, answers, quality, score, last, problem }
  const list = el("div", { class: "samples" }), problem = el("div", {});
  const state = el("span", { class: "muted", role: "status" });
  const button = el("button", { type: "button", class: "primary", name: "read", onclick: read }, "Score the samples");
  const previewed = latest("build/preview");
  let timer = null, running = null;
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
    const shown = filled(), items = editor.asked();
    if (!shown.length || !items.length) return draw([], items, shown);
    const body = shown.map((sample) => ({ target: sample.target.value, input: prompt.value, answers: [...sample.answers.values()], quality: sample.quality }));
    const found = await previewed({ checklist: editor.checklist(), samples: body, settings: settings() });
    if (found) problem.replaceChildren(found.error ? alertOf(found.error) : "");
    if (found?.scores && filled().length) draw(found.scores, items, shown);
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
