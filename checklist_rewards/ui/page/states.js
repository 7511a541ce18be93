// The state of a response: what the policy made of its turn. Without an answer, the judge is not asked.

import { el } from "./dom.js";

/** "cut_in_thought" as words. */
export function stateName(state) {
  return state.replaceAll("_", " ");
}

/** The state as a tag; nothing for a response with an answer, or of an unknown state. */
export function stateTag(state) {
  return state && state !== "answered" ? el("span", { class: "flag" }, stateName(state)) : null;
}
