// Matrix: rows x items. Only the rows in sight are in the document, so any number of rows scrolls.

import { detail } from "./detail.js";
import { choice, count, el, field, fixed, highlight, note, num, plural, questionOf, shorter, stateName, stateTag, table } from "./dom.js";
import { EMPTY, differingCells, groupsOf, matching, peopleDiffer, sorted } from "./filters.js";
import { sampled } from "./overview.js";

const ROW_HEIGHT = 30;
const SPARE_ROWS = 8;
const MOST_COLUMNS = 100, MOST_VALUES = 20;
const DENSE = 0.3;
const STEPS = 5;

/** The matrix of a file. `at.state` keeps filter, order and row while other views are open; `at.opened(row)` is told of them. */
export function matrix(report, file, at) {
  const { state, opened } = at;
  const partner = report.partner(file);
  const differs = partner ? differingCells(file, partner) : null;
  const earlier = history.state?.[file.path]; // before a reload
  state.filter ??= { ...EMPTY, ...earlier?.filter };
  state.order ??= earlier?.order ?? ["row", false];
  const heads = columnsOf(file);
  let kept = [], column = state.column ?? 0, place = 0;

  const status = el("p", { class: "note", role: "status" });
  const body = el("div", { class: "grid-body", role: "rowgroup" });
  const head = el("div", { class: "grid-head", role: "row", "aria-rowindex": "1" });
  const widths = heads.map((one) => (one.grows ? `minmax(${one.width}px, 1fr)` : `${one.width}px`)).join(" ");
  const least = heads.reduce((sum, one) => sum + one.width, 0);
  const grid = el(
    "div",
    {
      class: "grid", role: "grid", tabindex: "0", "aria-label": "Rows and items", "aria-colcount": heads.length,
      vars: { "--widths": widths, "--least": `${least}px`, "--row": `${ROW_HEIGHT}px` }, onscroll: () => requestAnimationFrame(draw),
    },
    head,
    body,
  );
  const panel = el("aside", { class: "panel", "aria-label": "Row details", hidden: true });

  function refresh() {
    if (!(state.filter.column in file.others)) Object.assign(state.filter, { column: "", value: null }); // of an earlier version of the file
    kept = sorted(file, matching(file, state.filter, partner), ...state.order);
    if (state.row < 0) state.row = kept[0] ?? null; // -1: the first one
    status.textContent = `${count(kept.length)} of ${count(file.length)} rows`;
    grid.setAttribute("aria-rowcount", kept.length + 1);
    body.style.setProperty("height", `${kept.length * ROW_HEIGHT}px`);
    const sorting = [...head.children].findIndex((one) => one.contains(document.activeElement));
    head.replaceChildren(...heads.map(headCell));
    head.children[sorting]?.firstChild.focus();
    groups.replaceChildren(...(state.filter.column ? grouped() : []));
    history.replaceState({ ...history.state, [file.path]: { filter: state.filter, order: state.order } }, "");
    place = Math.max(0, kept.indexOf(state.row ?? state.at));
    if (kept.length && !kept.includes(state.row)) grid.scrollTop = 0;
    drawn = "";
    draw();
  }

  /** The rows by their value in the chosen column. A click on a value keeps only its rows, a second click all of them. */
  function grouped() {
    const { column, value } = state.filter;
    const found = groupsOf(file, matching(file, { ...state.filter, value: null }, partner), column);
    const line = (one) => one === null ? "no value" : el("button", { type: "button", class: "link", "aria-pressed": String(one === value), onclick: () => {
      state.filter.value = one === value ? null : one;
      refresh();
      groups.querySelectorAll("button")[found.findIndex(([own]) => own === one)]?.focus();
    } }, one || "an empty text");
    return [
      table([column, ["rows", "n"], ["mean score", "n"]], found.slice(0, MOST_VALUES).map(([one, rows, mean]) => [line(one), count(rows), num(mean)]), { class: "fit", "aria-label": `Rows by ${column}` }),
      found.length > MOST_VALUES ? note(`${plural(found.length - MOST_VALUES, "more value")}: search for one.`) : "",
    ];
  }

  let drawn = "";
  function draw() {
    const first = Math.max(0, Math.floor(grid.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
    const last = Math.min(kept.length, first + Math.ceil((grid.clientHeight || 600) / ROW_HEIGHT) + 2 * SPARE_ROWS);
    const now = `${first} ${last} ${place} ${column} ${state.row}`;
    if (now === drawn) return;
    drawn = now;
    Object.assign(state, { at: kept[place] ?? null, column });
    const shown = [];
    for (let i = first; i < last; i++) shown.push(rowOf(i));
    body.replaceChildren(...shown);
    grid.setAttribute("aria-activedescendant", `cell-${place}-${column}`);
  }

  function headCell(one, i) {
    const [key, descending] = state.order;
    const sort = key === one.key ? (descending ? "descending" : "ascending") : "none";
    const turn = () => {
      state.order = [one.key, key === one.key ? !descending : one.falling];
      refresh();
    };
    return el(
      "div",
      { role: "columnheader", "aria-sort": sort, "aria-colindex": i + 1 },
      el("button", { title: `${one.title}. Click to sort.`, onclick: turn }, el("span", {}, one.name, sort === "none" ? "" : sort === "ascending" ? " ▲" : " ▼")),
    );
  }

  function rowOf(i) {
    const row = kept[i];
    const cells = heads.map((one, k) => {
      const attributes = { role: "gridcell", id: `cell-${i}-${k}`, "aria-colindex": k + 1 };
      const node = one.draw(row, attributes);
      if (i === place && k === column) node.classList.add("here");
      return node;
    });
    return el(
      "div",
      { class: row === state.row ? "grid-row open" : "grid-row", role: "row", "aria-rowindex": i + 2, vars: { top: `${i * ROW_HEIGHT}px` }, onclick: () => (place = i, open(row)) },
      cells,
    );
  }

  function open(row) {
    state.row = row;
    opened(row);
    if (row === null) {
      panel.hidden = true;
      wrap.classList.remove("with-panel");
      grid.focus();
    } else {
      const step = (by) => () => {
        place = Math.min(kept.length - 1, Math.max(0, place + by));
        reveal();
        open(kept[place]);
      };
      const focused = panel.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") ?? "close" : null;
      panel.replaceChildren(
        el(
          "div",
          { class: "panel-head" },
          el("h2", {}, `Row ${file.id(row)}`),
          at.actions.open && [["/judge", "Open in Judge"], ["/compare", "Compare"]].map(([view, shown]) => el("button", { onclick: () => at.actions.open(view, file, row) }, shown)),
          el("button", { onclick: step(-1), "aria-label": "previous row", title: "previous row (k)" }, "↑"),
          el("button", { onclick: step(1), "aria-label": "next row", title: "next row (j)" }, "↓"),
          el("button", { onclick: () => open(null), "aria-label": "close", title: "close (Esc)" }, "✕"),
        ),
        ...detail(file, row, partner).filter(Boolean).map((node) => highlight(node, state.filter.text)),
      );
      if (focused) panel.querySelector(`[aria-label="${focused}"]`)?.focus();
      panel.hidden = false;
      panel.scrollTop = 0;
      wrap.classList.add("with-panel");
    }
    drawn = "";
    draw();
  }

  function reveal() {
    const top = place * ROW_HEIGHT, space = grid.clientHeight - head.offsetHeight - ROW_HEIGHT;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top > grid.scrollTop + space) grid.scrollTop = top - space;
    const cell = head.children[column];
    if (cell && column > 2) {
      const right = cell.offsetLeft + cell.offsetWidth;
      if (right > grid.scrollLeft + grid.clientWidth) grid.scrollLeft = right - grid.clientWidth;
      else if (cell.offsetLeft < grid.scrollLeft) grid.scrollLeft = cell.offsetLeft;
    }
  }

  function keys(event) {
    const page = Math.max(1, Math.floor(grid.clientHeight / ROW_HEIGHT) - 3);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, j: 1, k: -1, Home: -Infinity, End: Infinity };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target !== grid && !["j", "k", "Escape", "/"].includes(event.key)) return; // in the heads and the details
    if (event.key in moves) place = Math.min(kept.length - 1, Math.max(0, place + moves[event.key]));
    else if (event.key === "ArrowRight") column = Math.min(heads.length - 1, column + 1);
    else if (event.key === "ArrowLeft") column = Math.max(0, column - 1);
    else if (event.key === "Enter" || event.key === " ") open(kept[place]);
    else if (event.key === "Escape") open(null);
    else if (event.key === "/") form.querySelector("input").focus();
    else return;
    event.preventDefault();
    reveal();
    if (event.key in moves && !panel.hidden && kept.length) open(kept[place]);
    draw();
  }

  const form = el("div", {}, filterForm(file, state.filter, partner, refresh)), groups = el("div", { class: "groups" });
  const wrap = el("div", { class: "matrix", onkeydown: keys }, grid, panel);
  const limits = new Set(file.rows.threshold), [limit] = limits.size === 1 ? limits : [NaN];
  const legend = el(
    "p",
    { class: "note" },
    el("span", { class: "sample", "data-passed": "1", "data-step": "5" }, "passes"),
    " ",
    el("span", { class: "sample", "data-passed": "0", "data-step": "5" }, "fails"),
    " ",
    el("span", { class: "sample", "data-passed": "-1" }, "–"),
    file.unread >= 0 ? " unanswered, or not asked because the response has no answer (see the state)." : " unanswered.",
    " The number is P(yes)", Number.isNaN(limit) ? "" : `, and the answer is yes from ${limit}`, "; the line below it is the probability on the answers (label mass). A penalty passes if the answer is no.",
    differs ? " A dot marks answers that the other file does not give." : "",
    file.hasLabels ? " A corner marks answers that people do not give." : "",
    " Keys: arrows, Enter to open, Esc to close, / to search.",
  );
  // The grid has no height before it is in the document.
  requestAnimationFrame(() => {
    refresh();
    if (state.row !== undefined && state.row !== null) {
      reveal();
      open(state.row);
    }
    if (!document.activeElement.matches("input, select, a, button")) grid.focus({ preventScroll: true });
  });
  return [sampled(file), form, groups, status, wrap, legend];

  function columnsOf(file) {
    const { rows, cells, items } = file;
    const narrow = innerWidth < 700;
    const longest = rows.id.reduce((most, place) => Math.max(most, file.texts[place].length), 0);
    const idWidth = Math.min(narrow ? 80 : 130, Math.max(62, 14 + 8 * longest));
    const number = (key, name, title, digits) => ({
      key, name, title, falling: true, width: 66,
      draw: (row, attributes) => el("div", { ...attributes, class: "number" }, fixed(rows[key][row], digits)),
    });
    const result = [
      { key: "row", name: "row", title: "Order of the file", falling: false, width: idWidth, draw: (row, a) => el("div", { ...a, class: "name", dir: "auto" }, file.id(row)) },
      number("score", "score", "Primary score", 3),
    ];
    if (file.kind === "rewards") {
      result.push({ ...number("step", "step", "Training step", 0), width: 56, falling: false });
      if (!narrow) result.push(number("reward", "reward", "Reward", 3), number("advantage", "adv.", "Reward minus the mean of its group", 3));
    }
    const response = { key: "words", name: "response", title: "Length of the response in words", falling: true, width: 240, grows: true, draw: (row, a) => el("div", { ...a, class: "snippet", dir: "auto" }, stateTag(file.state(row)), " ", highlight(el("span", {}, shorter(around(file.target(row) ?? file.prompt(row) ?? ""), 160)), state.filter.text)) };
    if (!narrow) result.push(response);
    const dense = cells.item.length >= DENSE * items.length * file.length && items.length <= MOST_COLUMNS;
    const most = rows.counts.reduce((a, b) => Math.max(a, b), 0);
    const places = Array.from({ length: Math.min(dense ? items.length : most, MOST_COLUMNS) }, (_, k) => k);
    for (const k of places) {
      result.push({
        key: dense ? `item:${items[k].id}` : `place:${k}`,
        name: dense ? questionOf(items[k]) : `${k + 1}`,
        title: dense ? questionOf(items[k]) : `Item ${k + 1} of the row's checklist`,
        falling: true,
        width: dense ? 104 : 46,
        draw: (row, attributes) => itemCell(dense ? file.cellOf(row, items[k].id) : k < rows.counts[row] ? file.starts[row] + k : -1, attributes),
      });
    }
    if (narrow) result.push(response); // the items first, where there is no room for both
    return result;
  }

  /** A text from a little before the words that were searched. */
  function around(text) {
    const at = state.filter.text ? text.toLowerCase().indexOf(state.filter.text.toLowerCase()) : -1;
    return at > 30 ? `… ${text.slice(at - 20)}` : text;
  }

  function itemCell(cell, attributes) {
    if (cell < 0) return el("div", { ...attributes, class: "cell absent", "aria-label": "not in this checklist" });
    const { cells } = file, p = cells.p[cell], passed = cells.passed[cell], mass = cells.mass[cell];
    const answer = cells.answer[cell] < 0 ? null : file.answers[cells.answer[cell]];
    const shown = answer === null ? "–" : answer === "yes" || answer === "no" ? (Number.isNaN(p) ? answer : fixed(p, 2).replace(/^0/, "")) : answer;
    const sure = Number.isNaN(p) ? STEPS : Math.min(STEPS, 1 + Math.floor((answer === "yes" || answer === "no" ? Math.abs(p - 0.5) * 2 : p) * STEPS));
    const question = questionOf(file.cell(cell).item);
    const unread = file.unread >= 0 && cells.reason[cell] === file.unread;
    const outcome = unread ? "not asked: the response has no answer" : answer === null ? `unanswered: ${file.reasons[cells.reason[cell]] ?? ""}` : `${answer}${Number.isNaN(p) ? "" : ", P(yes) " + fixed(p)}${Number.isNaN(mass) ? "" : ", mass " + fixed(mass)}`;
    const marks = [
      answer !== null && answer !== "yes" && answer !== "no" ? "word" : "",
      differs && differs[cell] ? "other" : "",
      peopleDiffer(file, cell) ? "people" : "",
    ].join(" ");
    return el(
      "div",
      { ...attributes, class: `cell ${marks}`, "data-passed": passed, "data-step": sure, title: `${question}\n${outcome}`, vars: Number.isNaN(mass) ? {} : { "--mass": mass } },
      shown,
    );
  }
}

function filterForm(file, filter, partner, refresh) {
  let timer = 0;
  const change = (name, value) => {
    filter[name] = value;
    if (name === "column") filter.value = null;
    clearTimeout(timer);
    timer = setTimeout(refresh, 60);
  };
  const text = (name, attributes) => el("input", { value: filter[name], oninput: (event) => change(name, event.target.value.trim()), ...attributes });
  const select = (name, options) => choice(options, { value: filter[name], onchange: (event) => change(name, event.target.value) });
  const check = (name, label) => el("label", { class: "check" }, el("input", { type: "checkbox", checked: filter[name], onchange: (event) => change(name, event.target.checked) }), el("span", {}, label));
  const items = file.items.map((one) => [one.id, shorter(one.question, 80)]).sort((a, b) => a[1].localeCompare(b[1]));
  const answers = file.answers.map((name) => [`=${name}`, name]);
  const number = { type: "number", step: "any", class: "short" };
  return el(
    "form",
    { class: "filters", onsubmit: (event) => event.preventDefault() },
    field("search", text("text", { type: "search", placeholder: "prompt, response, columns" })),
    field("item", select("item", [["", "any item"], ...items])),
    field("answer", select("answer", [["", "any answer"], ["pass", "passes"], ["fail", "fails"], ["unanswered", "unanswered"], ...answers])),
    file.reasons.length ? field("reason", select("reason", [["", "any reason"], ...file.reasons])) : null,
    file.hasStates ? field("state", select("state", [["", "any state"], ...file.states.map((name) => [name, stateName(name)])])) : null,
    field("score from", text("low", number)),
    field("to", text("high", number)),
    file.kind === "rewards" ? [field("step from", text("from", number)), field("to", text("to", number))] : null,
    Object.keys(file.others).length ? field("group by", select("column", [["", "no column"], ...Object.keys(file.others)])) : null,
    file.overview.unscored ? check("unscored", "without a score") : null,
    partner ? check("judgesDiffer", "judges differ") : null,
    file.hasLabels ? check("peopleDiffer", "people differ") : null,
    el("button", { type: "button", onclick: () => {
      Object.assign(filter, EMPTY);
      const fresh = filterForm(file, filter, partner, refresh);
      document.querySelector(".filters").replaceWith(fresh);
      fresh.lastChild.focus();
      refresh();
    } }, "Clear"),
  );
}
