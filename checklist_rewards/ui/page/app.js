// The app: the views of a project folder. A view has an address of its own; the report's views are in its fragment.

import { annotate } from "./annotate.js";
import { get, getJson, keepToken } from "./api.js";
import { batch } from "./batch.js";
import { build } from "./build.js";
import { columns } from "./columns.js";
import { Report } from "./data.js";
import { count, el, note, section, table } from "./dom.js";
import { alertOf } from "./forms.js";
import { judge } from "./judge.js";
import { keeping } from "./keep.js";
import { library } from "./library.js";
import { live } from "./live.js";
import { show } from "./main.js";

const VIEWS = [["/", "Files", files], ["/annotate", "Annotate", annotate], ["/judge", "Judge", judge], ["/compare", "Compare", columns], ["/build", "Build", build], ["/batch", "Batch", batch], ["/library", "Library", library], ["/live", "Live", live]];
const TABLES = [".jsonl", ".csv", ".parquet"];
const FOLLOWED = 3000;

async function start() {
  keepToken();
  const main = document.getElementById("view");
  const links = VIEWS.map(([path, shown]) => el("a", { href: path, "aria-current": path === location.pathname ? "page" : null }, shown));
  document.getElementById("views").replaceChildren(...links);
  const [, title, view] = VIEWS.find(([path]) => path === location.pathname) ?? [null, "Report", report];
  document.title = `${title}: checklist-rewards`;
  try {
    const project = await getJson("project");
    document.getElementById("project").textContent = project.folder;
    document.body.dataset.view = title.toLowerCase();
    await view(main, project);
  } catch (error) {
    main.replaceChildren(alertOf(error.message));
  }
}

/** The files of the project. */
function files(main, project) {
  const rows = project.files.map((file) => {
    const query = `?${new URLSearchParams({ file: file.name })}`;
    const isTable = TABLES.some((end) => file.name.toLowerCase().endsWith(end));
    return [
      file.name,
      count(file.size),
      new Date(file.changed * 1000).toLocaleString(),
      isTable ? [el("a", { href: `/report${query}` }, "Report"), " ", el("a", { href: `/annotate${query}` }, "Annotate"), " ", el("a", { href: `/batch${query}` }, "Score")] : null,
    ];
  });
  main.replaceChildren(
    section(
      "Files",
      note("The files of the project folder. A report opens scored files, reward logs and pairs; people can annotate files with checklists."),
      rows.length ? table(["file", ["bytes", "n"], ["changed", "changed"], "open"], rows, { "aria-label": "Files", class: "files" }) : note("The folder has no file that the app can open."),
    ),
  );
}

/** The report of one file, and while a training run writes it, again whenever it has changed. */
async function report(main) {
  const query = new URLSearchParams(location.search), file = query.get("file");
  const follow = el("input", { type: "checkbox", checked: query.has("follow") });
  let stamp = null, shown = null;
  async function load() {
    const answer = await get("report", { file, known: stamp });
    if (answer.status === 204) return;
    stamp = answer.headers.get("x-stamp");
    const data = new Report(await answer.json());
    const draw = () => {
      shown = show(data, main, shown);
      document.getElementById("header").append(el("label", { class: "check" }, follow, " follow the file"));
    };
    if (shown) keeping(document.body, draw);
    else draw();
  }
  await load();
  let failed = null, busy = false;
  setInterval(async () => {
    if (!follow.checked || busy) return;
    busy = true;
    try {
      await load();
      failed?.remove();
    } catch (error) {
      failed?.remove();
      main.prepend((failed = alertOf(error.message)));
    }
    busy = false;
  }, FOLLOWED);
}

start();
