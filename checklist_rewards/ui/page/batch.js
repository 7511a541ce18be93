// Batch: score a file of the project in a process of its own. Jobs are files; they go on without this page.

import { download, getJson, latest, post, upload } from "./api.js";
import { choice, count, el, field, fixed, note, plural, section, table } from "./dom.js";
import { alertOf, attempt, chip, codeOf, exporter, schemaForm } from "./forms.js";

const TABLES = [".jsonl", ".csv", ".parquet"];
const KEYS = [
  ["target", "response (--target-key)", "target, else completion"],
  ["input", "prompt (--input-key)", "prompt, else input"],
  ["checklist", "checklist (--checklist-key)", "checklist"],
  ["reference", "reference answer (--reference-key)", "none"],
  ["history", "conversation (--history-key)", "history"],
];
const POLLED = 1000, RESTED = 5000;

export async function batch(main, project) {
  const [choices, first] = await Promise.all([getJson("choices"), getJson("jobs")]);
  const names = project.files.filter((file) => TABLES.some((end) => file.name.toLowerCase().endsWith(end))).map((file) => file.name);
  const checklists = project.files.filter((file) => /^checklists\/.*\.json$/i.test(file.name)).map((file) => file.name);
  const file = choice([["", "choose a file"], ...names], { name: "file" });
  const sent = el("input", { type: "file", name: "upload", accept: ".jsonl,.csv", "aria-label": "upload a file" });
  const output = el("input", { name: "output", size: 34, placeholder: "scored/….jsonl" });
  const shared = choice([["", "that of each row"], ...checklists], { name: "shared" });
  const keys = Object.fromEntries(KEYS.map(([name, , otherwise]) => [name, choice([["", otherwise]], { name: `key-${name}` })]));
  const columns = el("details", {}, el("summary", {}, "Columns of the file"), el("div", { class: "filters" }, KEYS.map(([name, shown]) => field(shown, keys[name]))));
  const code = exporter(() => post("jobs/code", request()), () => codeOf("Run it in the project folder. Each gives the figures of the job.", named));
  const query = new URLSearchParams(location.search), form = schemaForm(choices.settings, { judge: query.get("judge") ?? undefined }, () => (code.refresh(), priced()));
  const prices = new Map(), settings = latest("settings"); // model: [input, input]
  const priceFields = el("div", {});
  const budget = el("input", { type: "number", min: 0, step: "any", class: "short", name: "budget" });
  const by = el("strong", {}, project.judge.judge);
  const preview = el("div", { class: "preview" });
  const forecast = el("div", { class: "forecast", "aria-live": "polite" });
  const problem = el("div");
  const dryButton = el("button", { type: "button", name: "forecast", onclick: dryRun }, "Dry run");
  const startButton = el("button", { type: "button", class: "primary", name: "start", onclick: start }, "Start");
  const list = el("div", { class: "jobs" });
  const cards = new Map();
  let timer = null, named = project.judge;

  main.replaceChildren(
    section(
      "New job",
      note("Scores a file with ", by, ", as ", el("code", {}, "checklist-rewards score"), " does; the figures are the same."),
      el("div", { class: "filters" }, field("file of the project", file), field("or upload one (.jsonl, .csv)", sent)),
      preview,
      el("div", { class: "filters" }, field("checklist", shared), field("result", output)),
      columns,
      el("details", {}, el("summary", {}, "Settings of the judge"), form.node),
      el(
        "details",
        {},
        el("summary", {}, "Price and budget"),
        priceFields,
        el("div", { class: "filters" }, field("budget in US dollars", budget)),
        note("A budget needs the price of every model: the job stops before more is spent, and can be resumed with a larger one."),
      ),
      first.stored ? null : el("p", { class: "note warning" }, "The app was started with --no-store: a job that is paused begins again."),
      el("div", { class: "controls" }, dryButton, startButton),
      problem,
      forecast,
      code.node,
    ),
    section("Jobs", list),
  );
  file.addEventListener("change", chosen);
  sent.addEventListener("change", send);
  const asked = query.get("file");
  if (names.includes(asked)) file.value = asked;
  for (const control of [output, shared, ...Object.values(keys)]) control.addEventListener("change", code.refresh);
  await priced();
  if (file.value) await chosen();
  showJobs(first.jobs);

  function send() {
    return act(sent, async () => {
      const [given] = sent.files;
      if (!given) return;
      const { name } = await upload(given);
      file.append(el("option", { value: name }, name));
      file.value = name;
      sent.value = "";
      await chosen();
    });
  }

  function chosen() {
    return act(file, async () => {
      forecast.replaceChildren();
      preview.replaceChildren();
      if (!file.value) return;
      const found = await getJson("jobs/preview", { file: file.value });
      for (const [name, , otherwise] of KEYS) {
        const before = keys[name].value;
        keys[name].replaceChildren(...choice([["", otherwise], ...found.columns]).children);
        keys[name].value = found.columns.includes(before) ? before : "";
      }
      columns.open = !(found.columns.includes("checklist") && ["target", "completion"].some((name) => found.columns.includes(name)));
      const stem = file.value.split("/").at(-1).replace(/\.\w+$/, "");
      output.value = `scored/${[stem, ...(form.value().judge?.split("/").at(-1).match(/^[^.]+/) ?? [])].join(".")}.jsonl`;
      code.refresh();
      preview.replaceChildren(table(found.columns, found.rows.map((row) => found.columns.map((name) => el("div", { class: "two-lines", dir: "auto" }, row[name] ?? ""))), { "aria-label": "First rows" }));
    });
  }

  /** The judge that the settings choose, and a pair of prices for each of its models. */
  function priced() {
    return act(budget, async () => {
      const found = await settings({ settings: form.value() });
      if (!found) return; // the settings have changed again
      if (found.error) throw new Error(found.error);
      const { models } = (named = found);
      by.textContent = found.judge;
      chip(found);
      code.refresh();
      const before = new Map(prices);
      prices.clear();
      for (const model of models) prices.set(model, before.get(model) ?? ["prompt", "reply"].map((name) => el("input", { type: "number", min: 0, step: "any", class: "short", name: `price-${name}`, "aria-label": `${model}: US dollars per million ${name} tokens` })));
      priceFields.replaceChildren(...[...prices].map(([model, fields]) => el("div", { class: "filters" }, field(`${model}: US dollars per million prompt tokens`, fields[0]), field("per million reply tokens", fields[1]))));
    });
  }

  function request() {
    if (!file.value) throw new Error("Choose a file first.");
    const chosenKeys = Object.fromEntries(Object.entries(keys).filter(([, control]) => control.value).map(([name, control]) => [name, name === "input" ? [control.value] : control.value]));
    const known = [...prices].filter(([, fields]) => fields.some((one) => one.value !== ""));
    return {
      file: file.value,
      output: output.value,
      columns: chosenKeys,
      checklist: shared.value || null,
      settings: form.value(),
      price: known.length ? Object.fromEntries(known.map(([model, fields]) => [model, fields.map((one) => Number(one.value))])) : null,
      budget: budget.value === "" ? null : Number(budget.value),
    };
  }

  function dryRun() {
    return act(dryButton, async () => {
      forecast.replaceChildren(note("Counting the calls …"));
      try {
        const found = await post("jobs/forecast", request());
        const heads = found.heads.map((head, i) => (i > 1 ? [head, "n"] : head));
        forecast.replaceChildren(heads.length ? table(heads, found.rows, { class: "counted", "aria-label": "Dry run" }) : "", ...found.notes.map((text) => note(text)));
      } catch (error) {
        forecast.replaceChildren();
        throw error;
      }
    });
  }

  function start() {
    return act(startButton, async () => {
      await post("jobs", request());
      await poll();
      list.scrollIntoView({ block: "nearest" });
    });
  }

  function act(button, work) {
    return attempt(problem, work, button);
  }

  async function poll() {
    clearTimeout(timer);
    try {
      showJobs((await getJson("jobs")).jobs);
    } catch (error) {
      problem.replaceChildren(alertOf(error.message));
      timer = setTimeout(poll, RESTED);
    }
  }

  function showJobs(jobs) {
    if (!jobs.length) list.replaceChildren(note("There are no jobs yet."));
    else if (!cards.size) list.replaceChildren();
    jobs.toReversed().forEach((job) => {
      if (!cards.has(job.id)) {
        cards.set(job.id, jobCard(poll));
        list.prepend(cards.get(job.id).node);
      }
      cards.get(job.id).show(job);
    });
    const working = jobs.some((job) => job.state === "running" || job.state === "pausing");
    clearTimeout(timer);
    timer = setTimeout(poll, working ? POLLED : RESTED);
  }
}

/** The card of one job, which is updated in place. `changed` is called after a button. */
function jobCard(changed) {
  const title = el("h3"), state = el("span", { class: "tag state" }), bar = el("progress", { max: 1, "aria-label": "answered reads" });
  const progress = el("div", { class: "muted figures" }), text = el("div", { class: "outcome" }), buttons = el("div", { class: "controls" }), problem = el("div");
  const node = el("article", { class: "card job" }, el("div", { class: "heading" }, title, state), bar, progress, text, buttons, problem);
  let drawn = "";

  function button(shown, name, work, attributes = {}) {
    return el("button", { type: "button", name, onclick: (event) => attempt(problem, work, event.target).then(changed), ...attributes }, shown);
  }

  function show(job) {
    node.dataset.state = job.state;
    node.dataset.job = job.id;
    if (JSON.stringify(job) === drawn) return;
    drawn = JSON.stringify(job);
    title.replaceChildren(job.file ? `${job.file} → ${job.output}` : `jobs/${job.id}.json`, " ", job.judge ? el("span", { class: "tag" }, `by ${job.judge}`) : "");
    state.textContent = job.state;
    bar.hidden = progress.hidden = job.state === "invalid" || job.state === "done"; // then the summary has the figures
    if (job.total) bar.value = job.done / job.total;
    else if (job.state === "running") bar.removeAttribute("value");
    else bar.value = 0;
    progress.textContent = job.progress ?? (job.state === "running" ? "Checking the rows and loading the judge …" : "");
    text.replaceChildren(...outcome(job));
    buttons.replaceChildren(...actions(job));
  }

  function actions(job) {
    const again = (budget) => post("jobs/resume", { id: job.id, budget });
    if (job.state === "running") return [button("Pause", "pause", () => post("jobs/pause", { id: job.id }))];
    if (job.state === "pausing" || job.state === "invalid") return [];
    const missing = Object.keys(job.summary?.unanswered ?? {}).some((reason) => reason !== "too_long"); // it would be too long again
    const budget = job.budget === null ? null : el("input", { type: "number", min: 0, step: "any", value: job.budget, class: "short", "aria-label": "budget in US dollars" });
    const resume = job.state !== "done" || missing;
    return [
      job.state === "done" ? el("a", { class: "button", href: `/report?${new URLSearchParams({ file: job.output })}` }, "Open the report") : null,
      job.state === "done" ? button("Download", "download", () => download(job.output)) : null,
      resume && budget ? field("budget", budget) : null,
      resume ? button(job.state === "new" ? "Start" : job.state === "done" ? "Ask again for what is missing" : "Resume", "resume", () => again(budget === null ? null : Number(budget.value)), { class: job.state === "done" ? null : "primary" }) : null,
    ].filter(Boolean);
  }

  return { node, show };
}

function outcome(job) {
  const parts = [];
  if (job.message) parts.push(alertOf(job.message));
  if (job.log) parts.push(el("pre", { class: "log", tabindex: "0", "aria-label": "log" }, job.log.slice(-2000)));
  if (job.note) parts.push(note(job.note));
  const done = job.summary;
  if (done) {
    const unanswered = Object.entries(done.unanswered ?? {});
    parts.push(
      note(
        `${plural(done.rows, "row")}, mean score `,
        el("strong", { class: "num mean", title: String(done.mean_score) }, fixed(done.mean_score, 4)),
        `, ${plural(done.reads, "question")} (${count(done.receipt?.stored ?? 0)} answers from the store), ${fixed(done.seconds, 1)} s`,
        done.US_dollars === undefined ? "" : `, US dollars: ${done.US_dollars}`,
      ),
    );
    if (unanswered.length) parts.push(alertOf(`Unanswered: ${unanswered.map(([reason, n]) => `${reason} ${count(n)}`).join(", ")}.`));
  }
  return parts;
}
