// Redraw a part of the page, and keep what the reader did there: scroll positions, open details, focus.

/** Call `redraw`, which replaces children of `root`. Elements are found again by what they are called, not by their place. */
export function keeping(root, redraw) {
  const before = named(root), scrolled = [], opened = [];
  for (const [name, node] of before) {
    if (node.scrollTop || node.scrollLeft) scrolled.push([name, node.scrollTop, node.scrollLeft]);
    if (node.matches("details[open]")) opened.push(name);
  }
  const focused = [...before].find(([, node]) => node === document.activeElement)?.[0];
  const page = [scrollX, scrollY];
  redraw();
  const after = named(root);
  for (const name of opened) after.get(name)?.setAttribute("open", "");
  // Details that are opened are filled before the next frame.
  requestAnimationFrame(() => {
    for (const [name, top, left] of scrolled) {
      const node = after.get(name);
      if (node) [node.scrollTop, node.scrollLeft] = [top, left];
    }
    after.get(focused)?.focus({ preventScroll: true });
    scrollTo(...page);
  });
}

/** The elements that a reader can scroll, open or focus, by name. */
function named(root) {
  const found = new Map(), seen = new Map();
  for (const node of root.querySelectorAll("details, summary, [tabindex], a, button, .written")) {
    const own = node.matches("details, summary") ? node.closest("figure")?.getAttribute("aria-label") : node.matches("a, button") ? node.textContent : "";
    const name = [node.tagName, node.getAttribute("aria-label") ?? node.className, own].join("|");
    seen.set(name, (seen.get(name) ?? 0) + 1);
    found.set(`${name}|${seen.get(name)}`, node);
  }
  return found;
}
