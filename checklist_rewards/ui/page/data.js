// The data of a report, in two parts: what the page shows first, and the rows. Views read it through Report and RunFile only.

const ROW_INTEGERS = ["id", "prompt", "target", "counts", "words", "step", "group", "state", "counts_in_run"];
const CELL_INTEGERS = ["item", "answer", "passed", "reason", "judge", "method", "reasoning", "label"];
const PIECE = 2 ** 22; // letters of base64: a multiple of 4

/** The report in this page. Its rows come after the script, so they are there once the page is complete. */
export async function openEmbedded() {
  const complete = new Promise((done) => (document.readyState === "loading" ? addEventListener("DOMContentLoaded", done) : done()));
  return new Report(await unpacked("first"), (progress) => complete.then(() => unpacked("rows", progress)));
}

/** The JSON in an element: gzip in base64, unpacked piece by piece. */
function unpacked(id, progress = () => {}) {
  const text = document.getElementById(id).textContent;
  let at = 0;
  const packed = new ReadableStream({
    pull(controller) {
      if (at >= text.length) return controller.close();
      const letters = atob(text.slice(at, (at += PIECE))), bytes = new Uint8Array(letters.length);
      for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
      controller.enqueue(bytes);
      progress(Math.min(1, at / text.length));
    },
  });
  document.getElementById(id).remove(); // its text is no longer needed
  return new Response(packed.pipeThrough(new DecompressionStream("gzip"))).json();
}

/** A report: its files, and what was computed of several of them. `read(progress)` gives the rows; see `load`. */
export class Report {
  constructor(data, read) {
    this.read = read;
    this.ready = false;
    Object.assign(this, data, { files: data.files.map((file) => new RunFile(file)) });
  }

  /** Read the rows. `progress` is called with the share that is unpacked. */
  async load(progress) {
    const { tables, pairs, texts } = await this.read(progress);
    this.files.forEach((file, i) => file.fill(tables[i], texts));
    this.comparisons.forEach((compared, i) => (compared.pairs = pairs[i]));
    for (const comparison of this.comparisons) this.link(comparison);
    this.ready = true;
  }

  file(name) {
    return this.files.find((file) => file.name === name);
  }

  /** The first other file with answers to the same texts; see RunFile.rowIn. */
  partner(file) {
    return this.files.find((other) => other !== file && ((other.kind === "scored" && file.kind === "scored") || file.links.has(other)));
  }

  /** The rows of two compared files that belong together, as pairs. Reward logs list them; scored files have ids. */
  pairsOf({ comparison, pairs }) {
    const one = this.file(comparison.one), other = this.file(comparison.other);
    const ids = pairs ? pairs.map((side) => Array.from(numbers(side), String)) : [one.all.map((row) => one.id(row))];
    const found = ids[0].map((id, i) => [one.rowOf(id), other.rowOf((ids[1] ?? ids[0])[i])]);
    return found.filter(([row, second]) => row !== undefined && second !== undefined); // of larger files the page has a sample
  }

  /** Logs whose rows were matched by their completions show each other's answers. */
  link(compared) {
    if (compared.match !== "completion") return;
    const one = this.file(compared.comparison.one), other = this.file(compared.comparison.other);
    const pairs = this.pairsOf(compared);
    one.links.set(other, new Map(pairs));
    other.links.set(one, new Map(pairs.map(([row, second]) => [second, row])));
  }
}

/** The rows of one file. A row is a number from 0; a cell is one item of one row, also a number from 0. */
class RunFile {
  constructor(data) {
    Object.assign(this, data, { links: new Map() });
  }

  fill(table, texts) {
    Object.assign(this, table, { texts, rows: columns(table.rows, ROW_INTEGERS), cells: columns(table.cells, CELL_INTEGERS), others: columns(table.others, Object.keys(table.others)) });
    this.unread = this.reasons.indexOf("no_answer"); // the reason of cells that no judge has read
    this.length = this.rows.id.length;
    this.starts = new Int32Array(this.length + 1);
    for (let row = 0; row < this.length; row++) this.starts[row + 1] = this.starts[row] + this.rows.counts[row];
    this.places = new Map(this.all.map((row) => [this.id(row), row]));
  }

  /** The numbers of all rows. */
  get all() {
    return Array.from({ length: this.length }, (_, row) => row);
  }

  id(row) {
    return this.texts[this.rows.id[row]];
  }
  prompt(row) {
    return this.text(this.rows.prompt[row]);
  }
  target(row) {
    return this.text(this.rows.target[row]);
  }
  text(place) {
    return place < 0 ? null : this.texts[place];
  }
  rowOf(id) {
    return this.places.get(id);
  }
  thumbnails(row) {
    return this.images?.[row]?.map((place) => this.text(place));
  }

  /** What the policy made of its turn: "answered", "cut", ...; null if the file does not say. */
  state(row) {
    return this.rows.state[row] < 0 ? null : this.states[this.rows.state[row]];
  }

  /** Whether the row has no answer, so that the judge was not asked. */
  isUnread(row) {
    return this.rows.counts[row] > 0 && this.unread >= 0 && this.cells.reason[this.starts[row]] === this.unread;
  }

  /** Whether a row has a state other than "answered". */
  get hasStates() {
    return this.states.some((name) => name !== "answered");
  }

  /** The row of another file about the same text, or undefined. */
  rowIn(other, row) {
    return this.links.has(other) ? this.links.get(other).get(row) : other.rowOf(this.id(row));
  }

  /** The rows of the same group: the completions of one prompt in one step. */
  groupOf(row) {
    const { group } = this.rows;
    return Array.from(group.keys()).filter((other) => group[other] === group[row]);
  }

  /** Whether people have labelled any cell. */
  get hasLabels() {
    return this.cells.label.some((label) => label >= 0);
  }

  /** The cells of a row. */
  cellsOf(row) {
    return Array.from({ length: this.rows.counts[row] }, (_, k) => this.starts[row] + k);
  }

  /** The cell of the k-th item with this id in a row, or -1: a checklist may repeat a question. */
  cellOf(row, id, k = 0) {
    for (let cell = this.starts[row]; cell < this.starts[row + 1]; cell++)
      if (this.items[this.cells.item[cell]].id === id && k-- === 0) return cell;
    return -1;
  }

  /** One cell as an object, for details. */
  cell(cell) {
    const { cells } = this, more = this.more[cell];
    const name = (list, place) => (place < 0 ? null : list[place]);
    return {
      item: { ...this.items[cells.item[cell]], ...more },
      answer: name(this.answers, cells.answer[cell]),
      label: name(this.answers, cells.label[cell]),
      reason: name(this.reasons, cells.reason[cell]),
      judge: name(this.judges, cells.judge[cell]),
      method: name(this.methods, cells.method[cell]),
      reasoning: this.text(cells.reasoning[cell]),
      passed: cells.passed[cell],
      p: cells.p[cell],
      mass: cells.mass[cell],
      ...more,
    };
  }
}

function columns(specs, integers) {
  return Object.fromEntries(Object.entries(specs).map(([name, spec]) => [name, numbers(spec, integers.includes(name) ? Int32Array : Float64Array)]));
}

/** A column; one with equal values is written as { all, length }. */
function numbers(spec, Kind = Int32Array) {
  return Array.isArray(spec) ? Kind.from(spec, (value) => (value === null ? NaN : value)) : new Kind(spec.length).fill(spec.all === null ? NaN : spec.all);
}
