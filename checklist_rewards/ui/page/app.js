// The app: the views of a project folder. A view has an address of its own; the report's views are in its fragment.

import { annotate } from "./annotate.js";
import { get, getJson, keepToken } from "./api.js";
import { batch } from "./batch.js";
import { build } from "./build.js";
import { judgesOf } from "./compare.js";
import { Report } from "./data.js";
import { count, el, note } from "./dom.js";
import { alertOf, attempt, chip, copying } from "./forms.js";
import { home } from "./home.js";
import { improve } from "./improve.js";
import { compare, judge, openRow } from "./judge.js";
import { keeping } from "./keep.js";
import { library } from "./library.js";
import { live } from "./live.js";
import { show } from "./main.js";

const VIEWS = [["/", "Start", home], ["/judge", "Judge", judge], ["/compare", "Compare", compare], ["/build", "Build", build], ["/batch", "Batch", batch], ["/live", "Live", live], ["/annotate", "Annotate", annotate], ["/library", "Library", library]];
const OF_A_FILE = [["/report", "Report", report], ["/improve", "Changes", improve]]; // reached from the file
const FOLLOWED = 3000, READING = 300;

async function start() {
  keepToken();
  const main = document.getElementById("view");
  const links = VIEWS.map(([path, shown]) => el("a", { href: path, "aria-current": path === location.pathname ? "page" : null }, shown));
  document.getElementById("views").replaceChildren(...links);
  const [, title, view] = [...VIEWS, ...OF_A_FILE].find(([path]) => path === location.pathname);
  document.title = `${title}: checklist-rewards`;
  try {
    const project = await getJson("project");
    document.getElementById("project").textContent = project.folder;
    document.body.dataset.view = title.toLowerCase();
    chip(project.judge, null, "judge of the app");
    await view(main, project);
  } catch (error) {
    main.replaceChildren(alertOf(error.message));
  }
}

/** The judges that scored files of a report, and their thresholds. */
function scoredBy(files) {
  const models = [...new Set(files.flatMap(judgesOf))], thresholds = new Set(files.flatMap((file) => file.overview.thresholds));
  return { judge: models.join(", ") || "no judge", models, threshold: [...thresholds].join(" or ") || null };
}

/** The report of one file, and while a training run writes it, again whenever it has changed. */
async function report(main) {
  const query = new URLSearchParams(location.search), file = query.get("file"), other = query.get("other"), column = query.get("labels");
  const follow = el("input", { type: "checkbox", checked: query.has("follow") });
  const actions = {
    column,
    controls: [],
    labelled: (name) => `/report?${new URLSearchParams(Object.entries({ file, other, labels: name }).filter(([, value]) => value))}#/0/${other ? "compare" : "trust"}`,
    async open(view, shown, row) {
      openRow(view, await getJson("row", { file: fileOf(shown), id: shown.id(row) }));
    },
  };
  const fileOf = (one) => (shown.report.files.indexOf(one) === 1 ? other : file);
  let stamp = null, shown = null, scored = {};
  async function load(peek = null) {
    const answer = await reading(get("report", { file, other, labels: column, known: stamp, peek }));
    if (answer.status === 204) return;
    if (peek) return chip(scored, "stale", "scored by"); // the file has changed, and is not followed
    actions.controls = [el("label", { class: "check" }, follow, " follow the file"), copying(decodeURIComponent(answer.headers.get("x-command")), "Copy as command")];
    const data = new Report(await answer.json(), () => getJson("report", { file, other, labels: column, rows: answer.headers.get("x-stamp") }));
    if (shown) await data.load(); // what the reader did needs the rows
    stamp = answer.headers.get("x-stamp");
    scored = scoredBy(data.files);
    chip(scored, "current", "scored by");
    const draw = () => (shown = show(data, main, shown, actions));
    if (shown) keeping(document.body, draw);
    else draw();
  }
  /** Show how many rows are read, until the first report has arrived. */
  async function reading(answer) {
    let done = Boolean(shown);
    const asked = setInterval(async () => {
      const found = await getJson("report/progress", { file }).catch(() => ({})); // the report itself has the error
      if (!done && found.total) main.replaceChildren(note(`Reading ${count(found.done)} of ${count(found.total)} rows … `, el("progress", { max: found.total, value: found.done, "aria-label": "rows that are read" })));
    }, READING);
    try {
      return await answer;
    } finally {
      done = true;
      clearInterval(asked);
    }
  }
  try {
    await load();
  } catch (error) {
    if (!column) throw error;
    return main.replaceChildren(alertOf(error.message), el("p", {}, el("a", { href: actions.labelled(null) }, "The report without these labels")));
  }
  const problem = el("div");
  document.getElementById("header").after(problem);
  let busy = false;
  setInterval(async () => {
    if (document.hidden || busy) return;
    busy = true;
    await attempt(problem, () => load(follow.checked ? null : 1));
    busy = false;
  }, FOLLOWED);
}

start();
