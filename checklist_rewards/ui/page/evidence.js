// Evidence: the passages of a response that a judge quotes in its reasoning, and those that people marked.

import { el, written } from "./dom.js";

const QUOTED = /"([^"]+)"|“([^”]+)”|‘([^’]+)’|«([^»]+)»|「([^」]+)」|`([^`]+)`|(?<![\p{L}\p{N}])'([^']+)'(?![\p{L}\p{N}])/gu;
const WORD = /[\p{L}\p{N}]/u;
const MOST_PLACES = 20; // of one quote

/** The evidence of a row: a list of { cell, by, text, start, end }; `by` is null for a quote of the judge. */
export function evidenceOf(file, row) {
  const target = file.target(row);
  const found = [];
  if (target === null) return found;
  for (let cell = file.starts[row]; cell < file.starts[row + 1]; cell++) {
    const line = file.cell(cell);
    const texts = [line.reasoning, ...(line.votes ?? []).map((vote) => file.text(vote.reasoning))];
    for (const quote of new Set(texts.filter((text) => text !== null).flatMap(quotes)))
      if (!file.answers.includes(quote)) for (const start of places(target, quote)) found.push({ cell, by: null, text: quote, start, end: start + quote.length });
    for (const span of line.spans ?? []) {
      const [start, end] = [span.start, span.end].map((place) => [...target].slice(0, place).join("").length); // Python counts characters
      found.push({ cell, by: span.by, text: target.slice(start, end), start, end });
    }
  }
  return found;
}

/** The texts in quotation marks. */
export function quotes(text) {
  return [...text.matchAll(QUOTED)].map((match) => match.slice(1).find((part) => part !== undefined).trim()).filter((part) => WORD.test(part));
}

/** Where a text has a quote, as whole words. */
export function places(text, quote) {
  const found = [];
  for (let at = text.indexOf(quote); at >= 0 && found.length < MOST_PLACES; at = text.indexOf(quote, at + quote.length)) {
    const before = at > 0 && WORD.test(text[at - 1]) && WORD.test(quote[0]);
    const after = WORD.test(text[at + quote.length] ?? " ") && WORD.test(quote.at(-1));
    if (!before && !after) found.push(at);
  }
  return found;
}

/** The response with its evidence highlighted. The numbers of the items are drawn by the style, so that the text stays as it is. */
export function withEvidence(file, row, found) {
  const target = file.target(row);
  if (!found.length) return written(target, { class: "written response" });
  const cuts = [...new Set([0, target.length, ...found.flatMap((one) => [one.start, one.end])])].sort((a, b) => a - b);
  const parts = cuts.slice(1).map((end, i) => {
    const over = found.filter((one) => one.start <= cuts[i] && end <= one.end);
    const part = target.slice(cuts[i], end);
    if (!over.length) return part;
    const numbers = [...new Set(over.map((one) => one.cell - file.starts[row] + 1))];
    const ends = over.some((one) => one.end === end);
    return el("mark", { title: over.map((one) => `${one.by ?? "judge"}: ${file.cell(one.cell).item.question}`).join("\n"), "data-items": ends ? numbers.join(" ") : null, class: over.every((one) => one.by !== null) ? "person" : null }, part);
  });
  return el("div", { class: "written response", dir: "auto" }, parts);
}

/** The evidence of one answer. */
export function evidenceLine(found, cell) {
  const own = new Map(); // by text: who gave it
  for (const one of found) if (one.cell === cell) own.set(one.text, (own.get(one.text) ?? new Set()).add(one.by ?? "judge"));
  if (!own.size) return null;
  return el("p", { class: "evidence" }, el("span", { class: "muted" }, "evidence: "), [...own].map(([text, by], i) => [i ? ", " : "", el("q", {}, text), el("span", { class: "muted" }, ` (${[...by].join(", ")})`)]));
}
