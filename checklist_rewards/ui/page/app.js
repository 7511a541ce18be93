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
import { library } from "./library.js";
import { live } from "./live.js";
import { show } from "./main.js";

const VIEWS = [["/", "Start", home], ["/judge", "Judge", judge], ["/compare", "Compare", compare], ["/build", "Build", build], ["/batch", "Batch", batch], ["/live", "Live", live], ["/annotate", "Annotate", annotate], ["/library", "Library", library]];
const OF_A_FILE = [["/report", "Report", report], ["/improve", "Changes", improve]]; // reached from the file
const WATCHED = 3000, READING = 300;

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

/** The report of one file, or of two. The chip says when they have changed since. */
async function report(main) {
  const query = new URLSearchParams(location.search), file = query.get("file"), other = query.get("other"), column = query.get("labels");
  const labelled = (name) => `/report?${new URLSearchParams(Object.entries({ file, other, labels: name }).filter(([, value]) => value))}#/0/${other ? "compare" : "trust"}`;
  const ask = (more) => get("report", { file, other, labels: column, ...more });
  let answer;
  try {
    answer = await reading(ask({}));
  } catch (error) {
    if (!column) throw error;
    return main.replaceChildren(alertOf(error.message), el("p", {}, el("a", { href: labelled(null) }, "The report without these labels")));
  }
  const stamp = answer.headers.get("x-stamp"), command = decodeURIComponent(answer.headers.get("x-command"));
  const data = new Report(await answer.json(), async () => (await ask({ rows: stamp })).json());
  const scored = scoredBy(data.files), problem = el("div");
  const open = async (view, shown, row) => openRow(view, await getJson("row", { file: data.files.indexOf(shown) === 1 ? other : file, id: shown.id(row) }));
  chip(scored, "current", "scored by");
  show(data, main, { column, controls: [copying(command, "Copy as command")], labelled, open });
  document.getElementById("header").after(problem);
  let busy = false;
  setInterval(async () => {
    if (document.hidden || busy) return;
    busy = true;
    await attempt(problem, async () => {
      if ((await ask({ known: stamp })).status !== 204) chip(scored, "stale", "scored by");
    });
    busy = false;
  }, WATCHED);

  /** Show how many rows are read, until the report has arrived. */
  async function reading(answer) {
    let done = false;
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
}

start();
