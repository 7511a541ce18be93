// Start: what this is, the judge and whether it works, and the files of the project with what can be done with them.

import { getJson, post } from "./api.js";
import { choice, count, el, fixed, note, plural, section, table } from "./dom.js";
import { alertOf, attempt } from "./forms.js";

const RECENT = 12;

export async function home(main, project) {
  const health = el("div", { class: "health", "aria-live": "polite" }, note("Loading the judge …"));
  const opens = (file) => file.actions.length > 0;
  const files = project.files.filter((file) => !file.name.startsWith("jobs/")).sort((a, b) => opens(b) - opens(a) || b.changed - a.changed); // Batch lists jobs
  const started = files.some((file) => file.name.startsWith("example/"));
  const problem = el("div"), choices = await getJson("choices");
  main.replaceChildren(
    el(
      "div",
      { class: "hero" },
      el("section", {}, el("h2", {}, "Checklists as rewards"), el("p", { class: "lead" }, "A judge answers yes/no questions about each response. The answers are its score, and the reward of a training. Here you try a judge and its questions, score files, compare judges with people, and watch runs."), problem),
      el("section", { class: "card" }, el("h2", {}, "Judge"), health),
    ),
    recent(files, project, choices, started ? null : el("button", { type: "button", name: "example", onclick: example }, "Open an example")),
  );
  showHealth(health, await getJson("health").catch((error) => ({ state: "failed", error: error.message })), project.judge, choices);

  /** Copy the example into the project and open its report. */
  function example(event) {
    return attempt(problem, async () => (location.href = `/report?${new URLSearchParams({ file: (await post("example", {})).open })}`), event.target);
  }
}

function recent(files, project, { judges }, example) {
  const list = el("div"), selected = new Map();
  const judge = choice([["", project.judge.judge], ...judges], { name: "judge", "aria-label": "judge" });
  const compare = el("button", { type: "button", name: "compare", title: "two scored files, or two reward logs", onclick: () => go("report", { other: [...selected.keys()][1] }, "#/0/compare") }, "Compare selected");
  const score = el("button", { type: "button", name: "score", title: "one file of rows", onclick: () => go("batch", judge.value ? { judge: judge.value } : {}) }, "Score selected with");
  const go = (view, more, fragment = "") => (location.href = `/${view}?${new URLSearchParams({ file: [...selected.keys()][0], ...more })}${fragment}`);
  const select = (file) => (event) => {
    if (event.target.checked) selected.set(file.name, file.kind);
    else selected.delete(file.name);
    allow();
  };
  const allow = () => {
    const kinds = [...selected.values()];
    compare.disabled = !(kinds.length === 2 && kinds[0] === kinds[1] && ["scored", "rewards"].includes(kinds[0]));
    score.disabled = !(kinds.length === 1 && ["scored", "rows"].includes(kinds[0]));
  };
  allow();
  const row = (file) => {
    const [first, ...others] = file.actions;
    return [
      [["scored", "rewards", "rows"].includes(file.kind) && el("input", { type: "checkbox", "aria-label": `select ${file.name}`, checked: selected.has(file.name), onchange: select(file) }), first ? el("a", { href: first[1] }, file.name) : el("span", {}, file.name)],
      [el("span", { class: "tag", "data-kind": file.kind }, file.shown), file.error ? el("div", { class: "muted" }, file.error) : null],
      [first, ...others].filter(Boolean).map(([shown, href]) => [el("a", { href, "aria-label": `${shown}: ${file.name}` }, shown), " "]),
      file.large,
      el("span", { title: new Date(file.changed * 1000).toLocaleString() }, file.ago),
    ];
  };
  const draw = (most) => list.replaceChildren(table(["file", "kind", "open with", ["size", "n"], ["changed", "changed"]], files.slice(0, most).map(row), { "aria-label": "Files", class: "files" }), files.length > most ? el("button", { type: "button", onclick: () => draw(files.length) }, `Show all ${count(files.length)} files`) : "");
  if (files.length) draw(RECENT);
  else list.replaceChildren(note("The folder has no file that the app can open."));
  return section("Files", el("div", { class: "controls" }, compare, score, judge), list, example ? el("div", { class: "controls" }, example, el("span", { class: "muted" }, "a small finished run with what its audit found, scored texts with labels, and a checklist")) : null);
}

function showHealth(node, found, { judge, caveats }, { writer, cannot_write }) {
  const states = { loaded: "loaded in this process", reachable: "its server answers", files: "of a file of judges: each loads at its first score", failed: "does not work" };
  const button = el("button", { type: "button", name: "probe", onclick: test }, "Test the judge");
  const told = el("div");
  const passed = found.state !== "failed";
  node.replaceChildren(
    el("p", {}, el("strong", {}, judge), " ", el("span", { class: passed ? "state ok" : "state wrong" }, states[found.state])),
    passed ? "" : alertOf(found.error),
    ...caveats.map((text) => el("p", { class: "note warning" }, text)),
    found.can_probe && passed ? el("div", { class: "controls" }, button, el("span", { class: "muted" }, "twelve questions with known answers")) : "",
    told,
    note(cannot_write === null ? `Checklists are written by ${writer}.` : "It writes no checklists: choose a writer in Judge."),
  );
  if (found.probe) tell(found.probe);

  function test() {
    return attempt(told, async () => {
      told.replaceChildren(note("Testing …"));
      tell(await post("probe", {}));
    }, button);
  }

  function tell(probe) {
    told.replaceChildren(probe.refusal ? alertOf(probe.refusal) : note(`${probe.answered} of ${plural(probe.asked, "question")} answered, ${fixed(probe.accuracy * probe.asked, 0)} right; margin between yes and no ${fixed(probe.margin, 2)}, label mass ${fixed(probe.mass, 3)}; ${fixed(probe.seconds, 1)} s.`));
  }
}
