// The words that one text has and another has not, as marks in the text.

import { el, written } from "./dom.js";

const TOKEN = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[\p{L}\p{M}\p{N}]+|\s+|[^\p{L}\p{M}\p{N}\s]/gu;
const MOST_TOKENS = 1500; // of either text, after what both begin and end with
const LEAST_SHARED = 0.3; // of the words: below this, every mark would be chance

/** `text` with its changes since `before`: added words as <ins>, removed ones as <del>. Unrelated texts get no marks. */
export function changed(before, text) {
  const parts = before === null || text === null ? null : difference(before, text);
  if (parts === null) return written(text);
  return el("div", { class: "written", dir: "auto" }, parts.map(([kind, part]) => (kind === "same" ? part : el(kind, {}, part))));
}

/** The texts as a list of [kind, part] with the kinds "same", "ins" and "del"; null if they are unrelated or too long. */
export function difference(before, after) {
  const old = before.match(TOKEN) ?? [], now = after.match(TOKEN) ?? [];
  let head = 0, tail = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head++;
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++;
  const a = old.slice(head, old.length - tail), b = now.slice(head, now.length - tail);
  if (Math.max(a.length, b.length) > MOST_TOKENS) return null;
  // Length of the longest common subsequence of a[i..] and b[j..].
  const width = b.length + 1, lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
  const parts = [["same", old.slice(0, head).join("")]];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) add(parts, "same", a[i++]), j++;
    else if (i < a.length && (j === b.length || lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) add(parts, "del", a[i++]);
    else add(parts, "ins", b[j++]);
  }
  add(parts, "same", old.slice(old.length - tail).join(""));
  const words = (tokens) => tokens.filter((token) => token.trim()).length;
  const shared = words(parts.filter(([kind]) => kind === "same").flatMap(([, part]) => part.match(TOKEN) ?? []));
  return shared < LEAST_SHARED * Math.max(words(old), words(now)) ? null : joined(parts.filter(([, part]) => part));
}

/** Changes of words that follow each other as one removed and one added text. */
function joined(parts) {
  const found = [], changes = { del: "", ins: "" };
  for (const [i, [kind, part]] of [...parts, ["same", ""]].entries()) {
    const between = kind === "same" && !part.trim() && i > 0 && i < parts.length - 1;
    for (const one of ["del", "ins"]) if (kind === one || between) changes[one] += part;
    if (kind !== "same" || between) continue;
    for (const one of ["del", "ins"]) if (changes[one]) found.push([one, changes[one]]);
    Object.assign(changes, { del: "", ins: "" });
    if (part) found.push([kind, part]);
  }
  return found;
}

function add(parts, kind, token) {
  if (parts.at(-1)[0] === kind) parts.at(-1)[1] += token;
  else parts.push([kind, token]);
}
