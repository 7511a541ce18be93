// Changes: what `improve --json` proposed and tested, to accept or refuse one by one. Saves the resulting checklist.

import { getJson, post } from "./api.js";
import { changed } from "./difference.js";
import { el, field, figure, fixed, note, plural, section, table } from "./dom.js";
import { attempt } from "./forms.js";

export async function improve(main) {
  const file = new URLSearchParams(location.search).get("file");
  const found = await getJson("download", { file });
  const accepted = found.steps.map((step) => step.kept), result = el("div", { "aria-live": "polite" }), told = el("div", { "aria-live": "polite" });
  const states = found.steps.map(() => el("div", { class: "muted" }));
  const name = el("input", { name: "name", size: 28, value: `checklists/${file.split("/").at(-1).replace(/\.json$/, "")}-accepted.json` });
  const save = el("button", { type: "button", class: "primary", name: "save", onclick: store }, "Save checklist");
  const box = (i) => el("input", { type: "checkbox", name: `step-${i}`, checked: accepted[i], "aria-label": `accept change ${i + 1}`, onchange: (event) => ((accepted[i] = event.target.checked), draw()) });
  const rows = found.steps.map((step, i) => [
    box(i),
    [step.kind, states[i]],
    [step.before.length ? step.before.map(line) : "–", step.reason ? el("div", { class: "muted" }, step.reason) : null],
    step.after.length ? step.after.map((item, k) => (step.before[k]?.question === item.question ? line(item) : [changed(step.before[k]?.question ?? null, item.question), weight(item)])) : "removed",
    figure(step.gain),
    step.kept ? "confirmed" : "not confirmed",
  ]);
  main.replaceChildren(
    section(
      `Changes of ${file}`,
      note(`A change is confirmed if agreement with the labels rises on rows that did not choose it. On ${found.rows.test} test rows, with all confirmed changes (${found.measure}): `, ["before", "after", "gain"].map((name, i) => [i ? ", " : "", `${name} `, figure(found.figures[name])])),
      rows.length ? table(["accept", "change", "item", "becomes", ["gain, confirming rows", "n"], "test"], rows, { "aria-label": "Changes" }) : note("No change was tested: none raised the agreement on the choosing rows."),
    ),
    section("Checklist with the accepted changes", result, el("div", { class: "controls" }, field("name", name), save), told),
    found.findings.length ? el("details", { class: "part" }, el("summary", {}, `Weak items (${found.findings.length})`), table(["item", "fault", "detail"], found.findings.map((one) => [one.question, one.fault, one.detail]), { "aria-label": "Weak items" })) : "",
  );
  let items = [];
  draw();

  function draw() {
    const missing = new Set();
    items = applied(found.before, found.steps, accepted, missing);
    states.forEach((node, i) => node.replaceChildren(missing.has(i) ? "has no effect: its item is gone" : ""));
    const asTested = accepted.every((one, i) => one === found.steps[i].kept);
    result.replaceChildren(el("ol", {}, items.map((item) => el("li", {}, line(item)))), note(asTested ? `${plural(items.length, "item")}, as tested.` : `${plural(items.length, "item")}. This selection was not tested: the figures above are of the confirmed changes.`));
    save.disabled = !items.some((item) => item.weight !== 0);
  }

  function store() {
    return attempt(told, async () => {
      const saved = await post("library/file", { name: name.value, checklist: { items }, stamp: null });
      told.replaceChildren(el("p", { class: "note", role: "status" }, "Saved: ", el("a", { href: `/library?${new URLSearchParams({ name: saved.name })}` }, saved.name), "."));
    }, save);
  }
}

/** The items after the accepted changes, in the order of the steps. A change whose item is gone is added to `missing`.
 *  Items are found by id, so that a weight which a refused change would have set does not hide them. */
function applied(before, steps, accepted, missing) {
  let items = before;
  steps.forEach((step, i) => {
    if (!accepted[i]) return;
    const gone = new Set(); // places in items
    for (const old of step.before) gone.add(items.findIndex((item, place) => item.id === old.id && !gone.has(place)));
    if (step.kind === "reweight") {
      const after = new Map(step.after.map((item) => [item.id, item]));
      items = items.flatMap((item, place) => after.get(item.id) ?? (gone.has(place) ? [] : [item]));
    } else if (gone.has(-1)) missing.add(i);
    else if (!gone.size) items = [...items, ...step.after];
    else items = items.flatMap((item, place) => [...(place === Math.min(...gone) ? step.after : []), ...(gone.has(place) ? [] : [item])]);
  });
  return items;
}

function line(item) {
  return el("div", {}, item.question, weight(item));
}

function weight(item) {
  return [(item.weight ?? 1) === 1 ? null : el("span", { class: "muted" }, ` weight ${fixed(item.weight, 2)}`), item.required ? el("span", { class: "tag" }, "required") : null];
}
