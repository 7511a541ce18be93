// The page: a header with the files and views of the report, and the view that the address names (#/FILE/VIEW/ROW).

import { compare, pairs } from "./compare.js";
import { openEmbedded } from "./data.js";
import { choice, el } from "./dom.js";
import { EMPTY } from "./filters.js";
import { matrix } from "./matrix.js";
import { monitor } from "./monitor.js";
import { overview } from "./overview.js";
import { training } from "./training.js";
import { hasTrust, labelled, trust } from "./trust.js";

const VIEWS = [
  ["overview", "Overview", (report, file) => file.kind !== "pairs", overview],
  ["matrix", "Matrix", (report, file) => file.kind !== "pairs", matrix],
  ["pairs", "Pairs", (report, file) => file.kind === "pairs", (report, file) => pairs(file)],
  ["training", "Training", (report, file) => file.training !== null, (report, file, at) => training(report, file, (row) => at.openRow(file, row))],
  ["monitor", "Monitor", (report) => report.monitors.length > 0, (report) => monitor(report)],
  ["compare", "Compare", (report) => report.comparisons.length > 0, (report, file, at) => [at.actions.labelled && labelled(report, file, at), ...compare(report, at)]],
  ["trust", "Trust", hasTrust, trust],
];
const OF_ROWS = ["matrix", "pairs", "compare"];

async function start() {
  const main = document.getElementById("view");
  try {
    show(await openEmbedded(), main);
  } catch (error) {
    main.replaceChildren(el("p", { class: "note", role: "alert" }, `This page cannot be shown (${error.message}). It needs a browser from 2024 or later.`));
    throw error;
  }
}

/** Show a report. The app gives `actions`: what only it can do. */
export function show(report, main, actions = {}) {
  const states = report.files.map(() => ({}));
  const progress = el("progress", { max: 1, value: 0, "aria-label": "rows that are unpacked" });
  let noted = null, drawn = false;

  function go(number, view, row = null) {
    location.hash = `#/${number}/${view}${row === null ? "" : `/${row}`}`;
  }

  function draw() {
    const [, number = "0", asked, row] = location.hash.split("/");
    const index = Math.min(report.files.length - 1, Math.max(0, Number(number) || 0));
    const file = report.files[index], state = states[index];
    const name = asked ?? report.extra.view ?? (file.training ? "training" : "overview");
    const known = VIEWS.filter(([, , has]) => has(report, file));
    const [view, title, , make] = known.find(([key]) => key === name) ?? known[0];
    if (row !== undefined && row !== "") state.row = Number(row);
    noted ??= view;
    const at = {
      state,
      actions,
      openView: (other) => go(index, other),
      openFilter: (other, filter, order = ["row", false], row = null) => {
        const place = report.files.indexOf(other);
        Object.assign(states[place], { filter: { ...EMPTY, ...filter }, order, row });
        go(place, "matrix");
      },
      openRow: (other, place) => go(report.files.indexOf(other), "matrix", place),
      opened: (place) => history.replaceState(history.state, "", `#/${index}/matrix${place === null ? "" : `/${place}`}`),
    };
    const files = choice(report.files.map((one, i) => [i, one.name]), { "aria-label": "file", value: index, onchange: (event) => go(event.target.value, view) });
    const links = known.map(([key, shown]) => el("a", { href: `#/${index}/${key}`, "aria-current": key === view ? "page" : null }, shown));
    document.getElementById("header").replaceChildren(
      el("h1", {}, report.title),
      report.files.length > 1 ? files : "",
      el("nav", { "aria-label": "views" }, links),
      ...(actions.controls ?? []),
    );
    document.title = `${title}: ${report.title}`;
    const notes = view === noted ? report.notes.map((text) => el("p", { class: "note warning" }, text)) : []; // once
    const waits = OF_ROWS.includes(view) && !report.ready;
    const parts = waits ? el("p", { class: "note" }, "Unpacking the rows … ", progress) : make(report, file, at);
    main.replaceChildren(...notes, ...[parts].flat(Infinity).filter(Boolean));
    if (waits) delete main.dataset.view;
    else main.dataset.view = view;
    if (drawn && document.activeElement === document.body) main.focus({ preventScroll: true }); // what had the focus was replaced
    drawn = true;
  }

  document.querySelector(".skip").onclick = (event) => {
    event.preventDefault(); // the fragment names the view
    (main.querySelector(".grid") ?? main).focus();
  };
  addEventListener("hashchange", draw);
  draw();
  if (!report.ready) {
    const failed = (error) => main.prepend(el("p", { class: "note warning", role: "alert" }, `The rows cannot be shown: ${error.message}`));
    report.load((share) => (progress.value = share)).then(() => {
      main.dataset.rows = "read";
      if (OF_ROWS.includes(main.dataset.view ?? "matrix") || main.dataset.view === "training") draw();
    }, failed);
  }
}

if (document.getElementById("first")) start(); // the app imports this module and has no embedded report
