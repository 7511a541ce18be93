// Batch: score a file of the project in the background. A job can be paused, and goes on after a restart of the app.

import { getJson, post } from "./api.js";
import { count, el, note, plural, section, table } from "./dom.js";
import { alertOf, choice, field, settingsForm } from "./forms.js";

const REFRESH = 1000;

export async function batch(main, project) {
  const choices = await getJson("choices");
  const files = project.files.map((file) => file.name).filter((name) => /\.(jsonl|csv|parquet)$/i.test(name) && !/^(annotations|labels|batch)\//.test(name));
  const file = choice(files, { name: "file" });
  const columns = Object.fromEntries(["prompt", "target", "reference", "checklist"].map((name) => [name, choice([], { name })]));
  const shared = choice([["", "none: use the column"], ...choices.checklists], { name: "checklist_file" });
  const name = el("input", { name: "name", value: "scores" });
  const form = settingsForm(choices);
  const status = el("div", { role: "status" });
  const jobs = el("div", { class: "jobs" });
  const body = () => ({
    name: name.value,
    file: file.value,
    checklist_file: shared.value,
    settings: form.value(),
    ...Object.fromEntries(Object.entries(columns).map(([key, control]) => [key, control.value])),
  });

  async function act(work) {
    try {
      await work();
    } catch (error) {
      status.replaceChildren(alertOf(error.message));
    }
  }

  const choose = () =>
    act(async () => {
      const found = await getJson("batch/columns", { file: file.value });
      for (const [key, control] of Object.entries(columns)) {
        control.replaceChildren(...["", ...found.columns].map((one) => el("option", { value: one }, one || "none")));
        control.value = found[key] ?? "";
      }
      status.replaceChildren();
    });

  const dry = () =>
    act(async () => {
      const job = await post("batch/dry", body());
      status.replaceChildren(note(`${plural(job.rows, "row")}, ${plural(job.reads, "read")}; answers in the store are not asked again.`));
    });

  const start = (values) =>
    act(async () => {
      const job = await post("batch/start", values);
      status.replaceChildren(note(`${job.name} has started.`));
      await refresh();
    });

  async function refresh() {
    const found = await getJson("batch");
    const rows = found.map((job) => [
      job.name,
      job.file,
      el("span", { class: "status" }, job.error ? `${job.status}: ${job.error}` : job.status),
      [el("progress", { max: job.rows, value: job.done, "aria-label": `progress of ${job.name}` }), ` ${count(job.done)} of ${count(job.rows)}`],
      job.status === "running"
        ? el("button", { type: "button", name: "pause", onclick: () => act(() => post("batch/pause", { name: job.name })) }, "Pause")
        : job.status === "done"
          ? el("a", { href: `/report?${new URLSearchParams({ file: job.output })}` }, "Report")
          : el("button", { type: "button", name: "resume", onclick: () => start(job) }, "Resume"),
    ]);
    if (rows.length) jobs.replaceChildren(table(["job", "file", "status", "rows", "open"], rows, { "aria-label": "Jobs" }));
  }

  file.addEventListener("change", choose);
  main.replaceChildren(
    section(
      "Batch",
      note("Scores a file as ", el("code", {}, "checklist-rewards score"), " does. The result is batch/NAME.jsonl of the project."),
      el("div", { class: "filters" }, field("file", file), Object.entries(columns).map(([key, control]) => field(`column: ${key}`, control)), field("checklist for all rows", shared), field("name of the job", name)),
      el("details", {}, el("summary", {}, "Settings of the judge"), form.node),
      el("div", { class: "controls" }, el("button", { type: "button", name: "dry", onclick: dry }, "Dry run"), el("button", { type: "button", class: "primary", name: "start", onclick: () => start(body()) }, "Start")),
      status,
    ),
    section("Jobs", jobs),
  );
  jobs.append(note("No jobs yet."));
  if (files.length) await choose();
  await refresh();
  let busy = false;
  setInterval(async () => {
    if (busy) return;
    busy = true;
    if (jobs.querySelector("[name=pause]")) await act(refresh);
    busy = false;
  }, REFRESH);
}
