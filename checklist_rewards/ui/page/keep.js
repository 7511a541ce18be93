// Redraw a part of the page, and keep what the reader did there: scroll positions, open details, chosen values, focus.

const CONTROLS = "input, select, textarea";

/** Call `redraw`, which replaces children of `root`. Elements are found again by what they are called, not by their place. */
export function keeping(root, redraw) {
  const before = named(root);
  const scrolled = [], opened = [], chosen = [];
  for (const [name, node] of before) {
    if (node.scrollTop || node.scrollLeft) scrolled.push([name, node.scrollTop, node.scrollLeft]);
    if (node.matches("details[open]")) opened.push(name);
    if (node.matches("select, input[type=range]")) chosen.push([name, node.value]);
  }
  const active = document.activeElement;
  const focused = [...before].find(([, node]) => node === active)?.[0];
  const typed = active?.matches(CONTROLS) ? { value: active.value, start: place(active, "selectionStart"), end: place(active, "selectionEnd") } : null;
  const page = [scrollX, scrollY];
  redraw();
  const after = named(root);
  for (const [name, value] of chosen) choose(after.get(name), value);
  for (const name of opened) after.get(name)?.setAttribute("open", "");
  // A matrix draws its rows in the next frame, before which it cannot be scrolled.
  requestAnimationFrame(() => {
    const drawn = named(root);
    for (const [name, top, left] of scrolled) {
      const node = drawn.get(name);
      if (node) [node.scrollTop, node.scrollLeft] = [top, left];
    }
    if (focused !== undefined && !active.isConnected) focusAgain(drawn.get(focused), typed);
    else if (focused !== undefined && document.activeElement !== active) active.focus({ preventScroll: true }); // it was moved
    scrollTo(...page);
  });
}

function choose(node, value) {
  if (!node || node.value === value) return;
  const had = node.value;
  node.value = value;
  if (node.value !== value) node.value = had; // the option is gone
  else node.dispatchEvent(new Event(node.matches("select") ? "change" : "input"));
}

function focusAgain(node, typed) {
  if (!node) return;
  if (typed && node.matches("input:not([type=range]):not([type=checkbox]), textarea")) node.value = typed.value;
  node.focus({ preventScroll: true });
  if (typed?.start !== null && typed?.start !== undefined && place(node, "selectionStart") !== null) node.setSelectionRange(typed.start, typed.end);
}

/** Where the cursor is; null for controls without one. */
function place(node, which) {
  return node.type === "text" || node.type === "search" || node.matches("textarea") ? node[which] : null;
}

/** The elements that a reader can scroll, open, fill or focus, by name. */
function named(root) {
  const found = new Map(), seen = new Map();
  for (const node of root.querySelectorAll(`details, [tabindex], a, button, .panel, .written, ${CONTROLS}`)) {
    const shown = node.matches("details") ? `${node.closest("figure")?.getAttribute("aria-label") ?? ""} ${node.firstElementChild?.textContent}` : node.matches("button, a") ? node.textContent : node.closest("label")?.textContent.slice(0, 40) ?? "";
    const name = [node.tagName, node.getAttribute("aria-label") ?? node.getAttribute("name") ?? node.className, shown].join("|");
    seen.set(name, (seen.get(name) ?? 0) + 1);
    found.set(`${name}|${seen.get(name)}`, node);
  }
  return found;
}
