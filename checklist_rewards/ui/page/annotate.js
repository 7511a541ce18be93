// Annotate: people answer the items of a queue of responses. The page never gets an answer of the judge or of others.

import { getJson, post } from "./api.js";
import { choice, el, field, note, num, pieces, plural, section, thumbnails, written } from "./dom.js";
import { alertOf, area, attempt, copyable } from "./forms.js";

const ORDERS = [["random", "random"], ["sample", "random, uncertain ones sooner: corrects rates"], ["uncertain", "judge least certain first"], ["differ", "judges differ first"]];
const KEYS = [["y n", "yes, no"], ["1 2 …", "an option"], ["u", "cannot assess"], ["j k", "next, previous item"], ["z", "undo"], ["e", "selected text as evidence"], ["m", "note"]];

const REFUSED = [400, 403, 413]; // an answer that the server does not take; after others it is sent again
const NONE = { label: null, note: "", spans: [] };
const FIRST_PAUSE = 500, LAST_PAUSE = 10_000; // milliseconds until answers are sent again

export async function annotate(main, project) {
  const given = Object.fromEntries(new URLSearchParams(location.search));
  if (given.file && given.annotator) await queue(main, given);
  else setup(main, project, given);
}

function setup(main, project, given) {
  const tables = project.files.filter((file) => ["scored", "rows"].includes(file.kind) && !file.name.startsWith("labels/")).map((file) => file.name);
  const file = choice(tables, { value: given.file ?? tables[0], name: "file" });
  const name = el("input", { name: "annotator", required: true, maxlength: 64, autocomplete: "username", pattern: "[\\p{L}\\p{N}_][\\p{L}\\p{N}_.\\-]*" });
  name.value = localStorage.getItem("annotator") ?? "";
  const order = choice(ORDERS, { name: "order" });
  const seed = el("input", { name: "seed", type: "number", min: 0, value: 0, class: "short" });
  const other = choice([["", "none"], ...tables], { name: "other" });
  const form = el(
    "form",
    { class: "setup" },
    field("file", file),
    field("your name", name),
    field("order", order),
    field("seed of the random order", seed),
    field("second scored file, for “judges differ”", other),
    el("button", { class: "primary" }, "Start"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    localStorage.setItem("annotator", name.value);
    location.search = String(new URLSearchParams(new FormData(form)));
  });
  main.replaceChildren(
    section(
      "Annotate",
      note("Answer the items of a checklist about each response. You see neither the judge's answers nor those of others. Answers are stored in ", el("code", {}, "annotations/NAME.jsonl"), " of the project."),
      tables.length ? form : note("The project folder has no .jsonl, .csv or .parquet file."),
    ),
  );
}

async function queue(main, given) {
  const { rows, ...first } = await getJson("annotate/queue", given);
  const place = (row) => ({ file: given.file, annotator: given.annotator, place: rows[row].place });
  const undo = [];
  const pending = []; // answers that the server does not have yet, in order; they are sent until it has them
  let at = Math.max(0, rows.findIndex((row) => row.done < row.items)), task = null, current = 0, loading = 0, opened = 0; // the number of the last row that was asked for, and of the one that is shown
  let answered = 0; // items whose answer the server has
  let sending = null, retry = null, pause = FIRST_PAUSE;

  const savedShown = el("span", { class: "muted saved" }, "saved");
  const status = el("div", { class: "progress-line", "aria-live": "polite" });
  const people = el("div", { class: "people" });
  const problem = el("div", {}), waiting = el("div", { class: "waiting" });
  const text = el("section", { class: "part text" });
  const items = el("ol", { class: "items" });
  const exported = el("div", {});
  main.replaceChildren(
    status,
    waiting,
    problem,
    el("div", { class: "annotate" }, text, el("section", { class: "part" }, el("h2", {}, "Items"), items)),
    el("div", { class: "part keys" }, el("dl", { class: "metrics" }, KEYS.map(([key, what]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, what))))),
    section("Progress", people, el("p", {}, el("button", { type: "button", onclick: exportLabels }, "Export labels")), exported),
  );

  async function open(row, item = null) {
    const number = ++loading, before = [...pending];
    const found = await getJson("annotate/task", place(row)).finally(() => (opened = Math.max(opened, number)));
    if (number !== loading) return; // another row was opened meanwhile
    for (const { body, change } of [...before, ...pending]) if (body.row === found.id) found.mine[body.item] = { ...NONE, ...found.mine[body.item], ...change };
    [at, task] = [row, found];
    rows[row].done = found.items.filter((one) => found.mine[one.key]?.label).length;
    const unanswered = task.items.findIndex((one) => !task.mine[one.key]?.label);
    current = item ?? Math.max(0, unanswered);
    drawText();
    drawItems();
  }

  function drawText() {
    text.replaceChildren(
      ...(task.prompt === null ? [] : [el("h2", {}, "Prompt"), written(task.prompt)]),
      thumbnails(task.images) ?? "",
      el("h2", {}, "Response"),
      written(null, { class: "written response", id: "response" }),
    );
    drawMarks();
  }

  /** The response, with the evidence of the current item marked. */
  function drawMarks() {
    const spans = task.mine[task.items[current].key]?.spans ?? [];
    document.getElementById("response").replaceChildren(...pieces(task.target, spans).map(({ text, over }) => (over.length ? el("mark", {}, text) : text)));
  }

  function drawItems() {
    items.replaceChildren(...task.items.map(itemOf));
    mark();
  }

  function mark() {
    [...items.children].forEach((one, i) => (i === current ? one.setAttribute("aria-current", "true") : one.removeAttribute("aria-current")));
    items.children[current]?.scrollIntoView({ block: "nearest" });
    drawMarks();
    drawStatus();
  }

  function drawStatus() {
    const all = rows.reduce((sum, row) => sum + row.items, 0);
    savedShown.textContent = !pending.length ? "saved" : retry === null ? "saving …" : `${plural(pending.length, "answer")} not saved`;
    status.replaceChildren(
      el("progress", { max: all, value: answered, "aria-label": "answered" }),
      el("span", { class: "num" }, `${answered} of ${plural(all, "item")}, response ${at + 1} of ${rows.length}`),
      savedShown,
      ...(answered === all ? [el("strong", {}, "All items are answered.")] : []),
    );
  }

  function itemOf(item, i) {
    const mine = state(i);
    const labels = [...item.labels, item.abstention];
    const buttons = labels.map((label, k) => {
      const key = label === item.abstention ? "u" : item.yes_no ? label[0] : String(k + 1);
      const shown = label === "cannot_assess" ? "cannot assess" : label;
      return el("button", { type: "button", "aria-pressed": String(mine.label === label), onclick: () => answer(i, label) }, shown, " ", el("kbd", {}, key));
    });
    const remark = area(mine.note, { rows: 1, placeholder: "note", "aria-label": "note", class: "remark" });
    remark.addEventListener("change", () => store(i, { note: remark.value }, { redraw: false })); // a click that left the note is on a button of this item
    remark.addEventListener("keydown", (event) => event.key === "Escape" && remark.blur());
    const spans = mine.spans.map((span, k) =>
      el("li", {}, el("q", {}, span.text), " ", el("button", { type: "button", class: "link", onclick: () => store(i, { spans: state(i).spans.filter((_, n) => n !== k) }) }, "remove")),
    );
    const node = el(
      "li",
      { class: "item" },
      el("div", { class: "question" }, item.question, item.category ? el("span", { class: "tag" }, item.category) : null),
      el("div", { class: "buttons", role: "group", "aria-label": "answer" }, buttons),
      remark,
      spans.length ? el("ul", { class: "spans" }, spans) : null,
    );
    node.addEventListener("pointerdown", () => i !== current && move(i));
    return node;
  }

  function state(i) {
    return task.mine[task.items[i].key] ?? NONE;
  }

  function answer(i, label) {
    if (task === null || opened < loading) return; // the answer would be to the response that is being left
    const before = state(i);
    store(i, { label: before.label === label ? null : label });
    if (before.label === label) return; // withdrawn: stay
    const next = task.items.findIndex((one, k) => k > i && !task.mine[one.key]?.label);
    if (next >= 0) return move(next);
    const open_ = task.items.findIndex((one) => !task.mine[one.key]?.label);
    if (open_ >= 0) return move(open_);
    const later = rows.findIndex((row, k) => k > at && row.done < row.items);
    const row = later >= 0 ? later : rows.findIndex((one) => one.done < one.items);
    if (row >= 0) show(row);
  }

  /** Keep a change of an answer on the page at once, and send it, without the parts that another tab may have changed. */
  function store(i, change, { remember = true, redraw = true } = {}) {
    const item = task.items[i], before = state(i), value = { ...before, ...change }, [row, shown] = [at, task];
    if (remember) undo.push({ row, key: item.key, before: Object.fromEntries(Object.keys(change).map((part) => [part, before[part]])) });
    shown.mine[item.key] = value;
    rows[row].done += (value.label !== null) - (before.label !== null);
    if (redraw) items.children[i]?.replaceWith(itemOf(item, i));
    mark();
    const body = { file: given.file, annotator: given.annotator, row: shown.id, item: item.key, text: shown.text, question: item.question, ...change };
    pending.push({ row, body, change });
    send();
  }

  /** Send the pending answers one after the other. What cannot be sent now stays, and is sent again after a pause. */
  function send() {
    clearTimeout(retry);
    retry = null;
    sending ??= attempts().finally(() => (sending = null));
    drawStatus();
    return sending;
  }

  async function attempts() {
    while (pending.length) {
      const [{ row, body }] = pending;
      try {
        drawPeople(await post("annotate/answer", body));
        pending.shift();
        pause = FIRST_PAUSE;
        waiting.replaceChildren();
      } catch (error) {
        if (!REFUSED.includes(error.status)) {
          waiting.replaceChildren(alertOf(`Not saved yet, ${plural(pending.length, "answer")}: ${error.message} Keep this page open: they are sent again until they are saved.`));
          retry = setTimeout(send, pause);
          pause = Math.min(2 * pause, LAST_PAUSE);
          return drawStatus();
        }
        pending.shift();
        problem.replaceChildren(alertOf(`Not saved: ${error.message}`));
        await refresh(row).catch(() => null);
      }
      drawStatus();
    }
  }

  async function takeBack() {
    const last = undo.pop();
    if (last === undefined) return;
    if (last.row !== at && !(await show(last.row))) return void undo.push(last);
    const i = task.items.findIndex((one) => one.key === last.key);
    current = i;
    store(i, last.before, { remember: false });
  }

  function move(i) {
    if (i >= 0 && i < task.items.length) {
      current = i;
      return mark();
    }
    const row = at + (i < 0 ? -1 : 1);
    if (rows[row]) show(row, i < 0 ? rows[row].items - 1 : 0);
  }

  /** The selected part of the response becomes evidence for the current item. */
  function evidence() {
    const selection = getSelection(), response = document.getElementById("response");
    if (!selection.rangeCount || selection.isCollapsed) return;
    const range = selection.getRangeAt(0);
    if (!response.contains(range.startContainer) || !response.contains(range.endContainer)) return;
    const before = document.createRange();
    before.setStart(response, 0);
    before.setEnd(range.startContainer, range.startOffset);
    const start = [...before.toString()].length, end = start + [...range.toString()].length;
    selection.removeAllRanges();
    if (end > start) store(current, { spans: [...state(current).spans, { start, end, text: [...task.target].slice(start, end).join("") }] });
  }

  /** Open a row. The result is whether it could be opened. */
  async function show(row, item = null) {
    try {
      await open(row, item);
      problem.replaceChildren();
      return true;
    } catch (error) {
      problem.replaceChildren(alertOf(`Response ${row + 1} cannot be shown: ${error.message}`));
      return false;
    }
  }

  /** After a refusal, show what the server has. */
  async function refresh(row) {
    const { rows: known, ...progress } = await getJson("annotate/queue", given);
    rows.forEach((one, i) => (one.done = known[i].done));
    drawPeople(progress);
    if (row === at) await open(row, current);
  }

  function drawPeople(progress) {
    answered = progress.annotators.find((one) => one.name === given.annotator)?.answered ?? 0;
    const lines = progress.annotators.map((one) =>
      el("li", {}, `${one.name}: ${plural(one.answered, "item")} of ${progress.items}, ${plural(one.rows, "response")}`, one.outdated ? `; ${plural(one.outdated, "answer")} about an older text` : ""),
    );
    const sections = Object.entries(progress.agreement).map(([kind, one]) =>
      el("p", { class: "agreement" }, `Krippendorff's alpha, ${kind}: `, el("strong", {}, num(one.figures.alpha.value)), ` over ${plural(one.units, "item")} with two or more answers`),
    );
    people.replaceChildren(el("ul", {}, lines.length ? lines : el("li", {}, "no answers yet")), ...(sections.length ? sections : [note("Agreement appears when two annotators have answered the same item.")]));
  }

  async function exportLabels() {
    await sending;
    if (pending.length) return exported.replaceChildren(alertOf(`${plural(pending.length, "answer")} not saved yet: export the labels when all are saved.`));
    await attempt(exported, async () => {
      const done = await post("annotate/export", { file: given.file, order: given.order, seed: given.seed });
      exported.replaceChildren(
        note(
          `${done.name}: ${plural(done.labels, "label")} of ${plural(done.rows, "response")} by ${done.annotators.join(", ")}.`,
          done.ties ? ` ${plural(done.ties, "item")} without a majority: no label.` : "",
          done.cannot_assess ? ` ${plural(done.cannot_assess, "answer")} “cannot assess” to items without that option: no label.` : "",
          done.sampled ? ` ${plural(done.sampled, "response")} in the order of the sample: agree corrects rates by them.` : "",
        ),
        note("Run in the project folder:"),
        copyable(done.commands.join("\n"), "commands"),
      );
    });
  }

  document.addEventListener("keydown", (event) => {
    if (task === null || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const item = task.items[current], key = event.key.toLowerCase();
    const named = item.yes_no ? item.labels.find((label) => label[0] === key) : undefined;
    if (named !== undefined) answer(current, named);
    else if (key === "u") answer(current, item.abstention);
    else if (/^[1-9]$/.test(key) && item.labels[key - 1] !== undefined) answer(current, item.labels[key - 1]);
    else if (key === "j") move(current + 1);
    else if (key === "k") move(current - 1);
    else if (key === "z") takeBack();
    else if (key === "e") evidence();
    else if (key === "m") items.children[current].querySelector("textarea").focus();
    else return;
    event.preventDefault();
  });

  addEventListener("beforeunload", (event) => pending.length && event.preventDefault());
  addEventListener("online", send);
  drawPeople(first);
  await open(at);
}
