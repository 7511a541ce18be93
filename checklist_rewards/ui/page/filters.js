// Which rows a filter keeps, and in what order. Works on the typed arrays of a file; texts are searched once each.

const ANY = -1, NOWHERE = -2; // a filter without a value; a value that no row of the page has, as in a sample

export const EMPTY = {
  text: "",
  item: "", // the id of an item
  answer: "", // "" any, or "pass", "fail", "unanswered", or "=" and an answer
  reason: "",
  state: "",
  low: "",
  high: "",
  from: "", // steps
  to: "",
  column: "", // another column of the file, and its value
  value: null,
  unscored: false,
  judgesDiffer: false,
  peopleDiffer: false,
};

/** The rows that the filter keeps, in the order of the file. `partner` is the other file, for judgesDiffer. */
export function matching(file, filter, partner) {
  const { rows, cells, starts } = file;
  const inText = filter.text ? textMatches(file, filter.text) : null;
  const place = (wanted, list) => (wanted === "" ? ANY : list.includes(wanted) ? list.indexOf(wanted) : NOWHERE);
  const item = place(filter.item, file.items.map((one) => one.id));
  const reason = place(filter.reason, file.reasons), state = place(filter.state, file.states);
  const answer = filter.answer.startsWith("=") ? place(filter.answer.slice(1), file.answers) : ANY;
  const passed = { pass: 1, fail: 0 }[filter.answer];
  const limit = (text, other) => (text === "" ? other : Number(text));
  const low = limit(filter.low, -Infinity), high = limit(filter.high, Infinity);
  const from = limit(filter.from, -Infinity), to = limit(filter.to, Infinity);
  const byScore = filter.low !== "" || filter.high !== "";
  const differs = filter.judgesDiffer && partner ? differingCells(file, partner) : null;
  const byCell = item !== ANY || reason !== ANY || filter.answer !== "" || differs !== null || filter.peopleDiffer;
  const others = Object.values(file.others), column = filter.value === null ? null : file.others[filter.column], value = column && (file.texts.includes(filter.value) ? file.texts.indexOf(filter.value) : NOWHERE);
  const kept = [];
  for (let row = 0; row < file.length; row++) {
    if (inText && !inText[rows.prompt[row] + 1] && !inText[rows.target[row] + 1] && !inText[rows.id[row] + 1] && !others.some((one) => inText[one[row] + 1])) continue;
    if (column && column[row] !== value) continue;
    if (state !== ANY && rows.state[row] !== state) continue;
    if (filter.unscored && !Number.isNaN(rows.score[row])) continue;
    if (byScore && !(rows.score[row] >= low && rows.score[row] <= high)) continue;
    if (rows.step[row] >= 0 && !(rows.step[row] >= from && rows.step[row] <= to)) continue;
    if (byCell) {
      let found = false;
      for (let cell = starts[row]; cell < starts[row + 1] && !found; cell++) {
        found =
          (item === ANY || cells.item[cell] === item) &&
          (reason === ANY || cells.reason[cell] === reason) &&
          (answer === ANY || cells.answer[cell] === answer) &&
          (passed === undefined || cells.passed[cell] === passed) &&
          (filter.answer !== "unanswered" || (cells.reason[cell] >= 0 && cells.reason[cell] !== file.unread)) &&
          (!filter.peopleDiffer || peopleDiffer(file, cell)) &&
          (differs === null || differs[cell] === 1);
      }
      if (!found) continue;
    }
    kept.push(row);
  }
  return Int32Array.from(kept);
}

/** The rows in order of a number of the row, or of P(yes) of an item ("item:ID") or of the k-th item ("place:K"). Rows
 * without the number come last. */
export function sorted(file, kept, key, descending) {
  if (key === "row") return descending ? kept.slice().reverse() : kept;
  const values = new Float64Array(file.length).fill(NaN);
  if (key.startsWith("item:") || key.startsWith("place:")) {
    const at = key.startsWith("item:")
      ? (row) => file.cellOf(row, key.slice(5))
      : (row) => (Number(key.slice(6)) < file.rows.counts[row] ? file.starts[row] + Number(key.slice(6)) : -1);
    for (const row of kept) {
      const cell = at(row);
      if (cell >= 0) values[row] = Number.isNaN(file.cells.p[cell]) && file.cells.passed[cell] >= 0 ? file.cells.passed[cell] : file.cells.p[cell];
    }
  } else {
    values.set(file.rows[key]);
  }
  const sign = descending ? -1 : 1;
  return kept.slice().sort((a, b) => {
    const one = values[a], other = values[b];
    if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other) || a - b;
    return sign * (one - other) || a - b;
  });
}

/** The rows by their value in another column of the file, the most frequent value first: [value, rows, mean score]. */
export function groupsOf(file, kept, column) {
  const groups = Map.groupBy(kept, (row) => file.text(file.others[column][row]));
  return [...groups].sort((a, b) => b[1].length - a[1].length).map(([value, rows]) => {
    const scores = rows.map((row) => file.rows.score[row]).filter((score) => !Number.isNaN(score));
    return [value, rows.length, scores.length ? scores.reduce((sum, score) => sum + score, 0) / scores.length : null];
  });
}

/** Whether people give another answer than the judge. Where no judge has read the row, they do not. */
export function peopleDiffer({ cells, unread }, cell) {
  return cells.label[cell] >= 0 && cells.label[cell] !== cells.answer[cell] && (unread < 0 || cells.reason[cell] !== unread);
}

/** Per cell of `file`: 1 where the other file has another answer to the same item of the same row. */
export function differingCells(file, partner) {
  file.differing ??= new Map();
  if (!file.differing.has(partner)) {
    const differs = new Uint8Array(file.cells.item.length);
    const answers = file.answers.map((name) => partner.answers.indexOf(name));
    const items = file.items.map((one) => partner.items.findIndex((other) => other.id === one.id));
    for (let row = 0; row < file.length; row++) {
      const other = file.rowIn(partner, row);
      if (other === undefined) continue;
      const used = new Set();
      for (let cell = file.starts[row]; cell < file.starts[row + 1]; cell++) {
        const item = items[file.cells.item[cell]], answer = file.cells.answer[cell];
        for (let theirs = partner.starts[other]; theirs < partner.starts[other + 1]; theirs++) {
          if (partner.cells.item[theirs] !== item || used.has(theirs)) continue;
          used.add(theirs);
          const given = partner.cells.answer[theirs];
          differs[cell] = Number(answer >= 0 && given >= 0 && answers[answer] !== given);
          break;
        }
      }
    }
    file.differing.set(partner, differs);
  }
  return file.differing.get(partner);
}

/** Per text, with a shift of 1 for "no text": 1 if it contains the words. Lower-case copies are kept for the next search. */
function textMatches(file, words) {
  const wanted = words.toLowerCase();
  file.texts.lower ??= file.texts.map((text) => text.toLowerCase());
  const found = new Uint8Array(file.texts.length + 1);
  file.texts.lower.forEach((text, place) => (found[place + 1] = Number(text.includes(wanted))));
  return found;
}
