// The stages of a generator: each is run on its own, its output is a form, and the next stage reads what the form holds.

import { post } from "./api.js";
import { choice, el, note, plural } from "./dom.js";
import { alertOf, attempt, field, schemaForm } from "./forms.js";

const ABOUT = {
  seed: "A few questions per dimension, to start with. Dimensions with seed questions keep theirs.",
  elaborate: "Adds more detailed questions, from the seeds.",
  diversify: "Adds questions about other aspects, from the seeds.",
  filter: "Keeps questions to which yes is better and that belong to their dimension.",
  deduplicate: "Merges questions of a dimension that ask the same.",
  questions: "Questions from the observations, each with the numbers of those behind it, from 0.",
  components: "Groups the attributes into a few components.",
  assign: "Assigns every attribute to a component.",
  key_questions: "One key question per component.",
  sub_questions: "Two or three questions per component.",
  validate: "Merges and revises all questions of the checklist.",
};

/** The name of the panels of which one is open at a time. */
export const OPEN = "build-panel";

/** The form of a source and its stages. `use(items)` gets the finished checklist; `keep()` is called after edits. */
export function stagesForm(choices, kept, use, keep) {
  const select = choice(choices.pipelines.map((one) => [one.name, one.description ? `${one.name}: ${one.description}` : one.name]), { name: "method", value: kept.pipeline ?? choices.pipelines[0].name });
  const about = el("div", {}), inputs = el("div", {}), own = el("div", {}), problem = el("div", {});
  const settingsPanel = el("details", { class: "settings", name: OPEN }, el("summary", {}, `Settings of the writer (${choices.writer})`), own);
  const sourcePanel = el("details", { class: "source-form", name: OPEN, open: true }, el("summary", {}, "Source"), about, inputs);
  const strip = el("ol", { class: "stages" });
  const sources = kept.sources ?? {}, chosen = kept.settings ?? {};
  let plan = null, source = null, settings = null, cards = [], asked = 0;
  select.addEventListener("change", () => load({}));
  load(kept.drafts ?? {});
  return {
    node: el("div", {}, field("method", select), sourcePanel, settingsPanel, problem, strip),
    value() {
      collect();
      return { pipeline: select.value, sources, settings: chosen, drafts: Object.fromEntries(cards.filter((card) => card.form).map((card) => [card.name, card.form.value()])) };
    },
  };

  function collect() {
    if (source) sources[plan.pipeline] = source.value();
    if (settings) chosen[plan.pipeline] = settings.value();
  }

  /** Show the source, the settings and the stages of the chosen method. */
  async function load(drafts) {
    collect();
    const { name, settings: schema } = choices.pipelines.find((one) => one.name === select.value);
    const found = await planned(name, chosen[name]);
    if (!found) return;
    plan = { ...found, pipeline: name };
    settings = schemaForm(schema, chosen[name], replan);
    own.replaceChildren(settings.node);
    fill(sources[name] ?? {});
    about.replaceChildren(el("button", { type: "button", name: "example", onclick: () => (fill(plan.example), keep()) }, "Fill in an example"));
    draw(drafts);
    keep();
  }

  function fill(value) {
    source = schemaForm(plan.source, value, () => (outdated(0), keep()));
    inputs.replaceChildren(source.node);
  }

  async function planned(name, given) {
    const number = ++asked;
    try {
      const found = await post("build/plan", { pipeline: name, settings: given });
      if (number !== asked) return null;
      if (found.error) throw new Error(found.error);
      problem.replaceChildren();
      return found;
    } catch (error) {
      if (number === asked) problem.replaceChildren(alertOf(error.message));
      return null;
    }
  }

  /** After a change of the settings, there may be other stages; those that remain keep their output. */
  async function replan() {
    keep();
    const found = await planned(plan.pipeline, settings.value());
    if (!found || found.stages.join() === plan.stages.join()) return;
    const drafts = Object.fromEntries(cards.filter((card) => card.form).map((card) => [card.name, card.form.value()]));
    plan = { ...found, pipeline: plan.pipeline };
    draw(drafts);
  }

  function draw(drafts) {
    cards = plan.stages.map((name, place) => stageCard(name, place));
    strip.replaceChildren(...cards.map((card) => card.node));
    for (const card of cards) if (drafts[card.name]) card.show(drafts[card.name]);
    ready();
  }

  /** A stage can be run once the stage before has an output. */
  function ready() {
    cards.forEach((card, i) => (card.run.disabled = card.busy || (i > 0 && !cards[i - 1].form)));
  }

  /** The stages from `place` on were made from an older text. */
  function outdated(place) {
    for (const card of cards.slice(place)) if (card.form) card.age.textContent = "made from an older version of the text above; run it again to update it";
  }

  function stageCard(name, place) {
    const card = { name, form: null, busy: false };
    const state = el("span", { class: "muted", role: "status" }), failed = el("div", {}), output = el("div", { class: "draft" });
    const panel = el("details", { name: OPEN, hidden: true }, el("summary", {}, "Output"), output);
    card.age = el("span", { class: "muted" });
    card.run = el("button", { type: "button", name: `run-${name}`, class: "primary", onclick: run }, `Run ${name.replaceAll("_", " ")}`);
    const finish = el("button", { type: "button", name: `use-${name}`, onclick: finished, hidden: true }, "Use as checklist");
    card.node = el(
      "li",
      { class: "stage" },
      el("h3", {}, `${place + 1}. ${name.replaceAll("_", " ")}`),
      el("span", { class: "muted" }, ABOUT[name] ?? ""),
      el("div", { class: "controls" }, card.run, finish, state, card.age),
      failed,
      panel,
    );
    card.show = (draft) => {
      card.form = schemaForm(plan.draft, draft, () => (outdated(place + 1), keep()));
      finish.hidden = false;
      output.replaceChildren(card.form.node);
      panel.hidden = false;
    };
    return card;

    function request() {
      return { pipeline: plan.pipeline, settings: settings.value(), source: source.value() };
    }

    async function run() {
      card.busy = true;
      ready();
      state.textContent = "Running …";
      await attempt(failed, async () => {
        const draft = place ? cards[place - 1].form.value() : null;
        const found = await post("build/stage", { ...request(), stage: name, draft });
        card.show(found.draft);
        panel.open = true; // which closes the others
        finish.hidden = found.questions === null;
        card.age.textContent = "";
        state.textContent = `${plural(found.asked, "request")}, ${found.kept} kept, ${found.seconds} s`;
        outdated(place + 1);
        keep();
      });
      if (failed.childElementCount) state.textContent = "";
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
