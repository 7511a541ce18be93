// Charts in SVG. Colours are CSS variables, so they follow light and dark.

import { count, el, fixed, note, num, svg, table } from "./dom.js";

const SERIES = ["--series-1", "--series-2", "--series-3", "--series-4", "--series-5", "--series-6"];
const WIDTH = innerWidth < 600 ? 360 : 640; // in the units of the drawing: texts stay readable on a phone
const LEFT = 48, RIGHT = 12, TOP = 10, BOTTOM = 26;
const SMOOTHING = 0.85;
const DASHES = ["none", "7 3", "2 3", "9 3 2 3", "5 5", "1 4"]; // lines that coincide are told apart
const chosen = new Map(); // by label of a chart: the steps and lines that the reader chose; a redraw keeps them

/** Counts of equal bins from `low` to 1. */
export function histogram(counts, { label, low }) {
  const value = (share) => fixed(low + share * (1 - low), 2);
  const height = 150, bottom = height - BOTTOM;
  const most = Math.max(...counts, 1), step = (WIDTH - LEFT - RIGHT) / counts.length;
  const bars = counts.map((number, i) => {
    const size = ((bottom - TOP) * number) / most;
    const shown = `${value(i / counts.length)} to ${value((i + 1) / counts.length)}: ${count(number)}`;
    return svg("rect", { x: LEFT + i * step + 1, y: bottom - size, width: Math.max(step - 2, 1), height: size, class: "bar" }, svg("title", {}, shown));
  });
  return drawing(height, label, [
    line(LEFT, bottom, WIDTH - RIGHT, bottom),
    text(LEFT - 6, TOP + 8, count(most), "end"),
    text(LEFT - 6, bottom, "0", "end"),
    bars,
    [0, 0.25, 0.5, 0.75, 1].map((share) => text(LEFT + share * (WIDTH - LEFT - RIGHT), height - 6, value(share), share === 1 ? "end" : "middle")),
  ]);
}

/** A horizontal bar from 0 to 1 with its interval. */
export function rateBar(value, interval) {
  if (value === null || value === undefined) return el("span", { class: "num none" }, "–");
  return el(
    "span",
    { class: "rate", role: "img", "aria-label": fixed(value, 3) },
    el("span", { class: "rate-fill", vars: { "--at": value } }),
    interval && el("span", { class: "rate-interval", vars: { "--low": interval[0], "--high": interval[1] } }),
  );
}

/** Lines over steps: [{ name, values }]. The faint line has the values, the strong one their moving average. Both begin
 *  anew where `breaks[i]` is not 0. The axis has `low`, `high` and all values: rewards may leave [0, 1]. Dragging over steps shows only these; a double click shows all of them again. */
export function lines(steps, series, { label, low = null, high = null, digits = 3, breaks = [] }) {
  const height = 220, isKnown = (value) => value !== null;
  if (!steps.length || !series.some((one) => one.values.some(isKnown))) return note(`${label}: no values.`);
  if (!chosen.has(label)) chosen.set(label, { first: -Infinity, last: Infinity, hidden: new Set() });
  const choice = chosen.get(label);
  const smooth = series.map((one) => smoothed(one.values, breaks));
  const picture = drawing(height, label, []);
  const at = el("span", { class: "muted" }), figures = series.map(() => el("span"));
  const whole = el("button", { type: "button", onclick: () => zoom(-Infinity, Infinity) }, "All steps");
  const style = (i) => ({ class: "line", stroke: `var(${SERIES[i % SERIES.length]})`, "stroke-dasharray": DASHES[i % DASHES.length] });
  let axes = null, started = null;

  function draw() {
    const inside = steps.map((_, i) => i).filter((i) => steps[i] >= choice.first && steps[i] <= choice.last);
    const shown = inside.length ? inside : steps.map((_, i) => i); // another run may have other steps
    const part = (values) => (values.length ? shown.map((i) => values[i]) : []);
    const own = part(steps), visible = series.map((_, i) => i).filter((i) => !choice.hidden.has(series[i].name));
    const known = visible.flatMap((i) => part(series[i].values)).filter(isKnown);
    const ends = [low, high, ...known].filter(isKnown);
    axes = axesOf(height, own, ends.length ? Math.min(...ends) : 0, ends.length ? Math.max(...ends) : 1);
    const drawn = (values, attributes) => svg("path", { ...attributes, d: path(own, part(values), axes.x, axes.y, part(breaks)) });
    picture.replaceChildren(
      ...axes.parts,
      ...steps.filter((_, i) => breaks[i] && shown.includes(i)).map((step) => line(axes.x(step), TOP, axes.x(step), height - BOTTOM, "tick")),
      ...visible.flatMap((i) => [drawn(series[i].values, { ...style(i), class: "line faint", "stroke-dasharray": "none" }), drawn(smooth[i], style(i))]),
    );
    whole.hidden = shown.length === steps.length;
    show(own.at(-1));
  }

  function show(step) {
    at.textContent = `step ${step}`;
    series.forEach((one, i) => figures[i].replaceChildren(num(one.values[steps.indexOf(step)], digits)));
    axes.mark(step);
  }

  function zoom(first, last) {
    Object.assign(choice, { first, last });
    draw();
  }

  picture.addEventListener("pointerdown", (event) => {
    started = axes.at(event);
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => (started === null ? show(axes.at(event)) : axes.mark(started, axes.at(event))));
  picture.addEventListener("pointerup", (event) => {
    const range = [started, axes.at(event)].sort((a, b) => a - b);
    started = null;
    if (range[0] < range[1]) zoom(...range);
  });
  picture.addEventListener("dblclick", () => zoom(-Infinity, Infinity));
  const entry = (one, i) => {
    const parts = [svg("svg", { viewBox: "0 0 24 4", class: "swatch", "aria-hidden": "true" }, svg("path", { ...style(i), d: "M0 2H24" })), `${one.name} `, figures[i]];
    if (series.length < 2) return el("span", {}, parts);
    return el("button", { type: "button", class: "toggle", "aria-pressed": String(!choice.hidden.has(one.name)), title: "show or hide this line", onclick: (event) => {
      if (!choice.hidden.delete(one.name)) choice.hidden.add(one.name);
      event.currentTarget.setAttribute("aria-pressed", String(!choice.hidden.has(one.name)));
      draw();
    } }, parts);
  };
  const numbers = el("details", { ontoggle: () => {
    if (numbers.childElementCount > 1) return;
    const heads = ["step", ...series.map((one) => [one.name, "n"])];
    numbers.append(table(heads, steps.map((step, i) => [String(step), ...series.map((one) => num(one.values[i], digits))])));
  } }, el("summary", {}, "Numbers"));
  draw();
  return el("figure", { class: "chart", "aria-label": label }, el("figcaption", {}, label), picture, el("div", { class: "legend" }, at, series.map(entry), whole), numbers);
}

/** The axes of a chart over steps, and a cursor that marks a step or a range of them. */
function axesOf(height, steps, low, high) {
  const first = steps[0], last = steps.at(-1), span = high - low || 1;
  const x = (step) => LEFT + ((step - first) / (last - first || 1)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + (1 - (value - low) / span) * (height - TOP - BOTTOM);
  const cursor = svg("rect", { class: "cursor", y: TOP, height: height - TOP - BOTTOM });
  const ticks = [low, low + span / 2, low + span].flatMap((value) => [line(LEFT, y(value), WIDTH - RIGHT, y(value), "tick"), text(LEFT - 6, y(value) + 4, fixed(value, span > 20 ? 0 : 2), "end")]);
  return {
    x,
    y,
    parts: [...ticks, text(LEFT, height - 8, String(first), "start"), text(WIDTH - RIGHT, height - 8, `step ${last}`, "end"), cursor],
    mark(from, to = from) {
      cursor.setAttribute("x", Math.min(x(from), x(to)));
      cursor.setAttribute("width", Math.max(1, Math.abs(x(to) - x(from))));
    },
    /** The step that is nearest to the pointer. */
    at(event) {
      const box = event.currentTarget.getBoundingClientRect(), place = ((event.clientX - box.left) / box.width) * WIDTH;
      return steps.reduce((best, step) => (Math.abs(x(step) - place) < Math.abs(x(best) - place) ? step : best));
    },
  };
}

/** A line without axes, for a table. */
export function sparkline(values) {
  const width = 120, height = 28;
  const x = (i) => 2 + (i / Math.max(values.length - 1, 1)) * (width - 4);
  const y = (value) => 2 + (1 - value) * (height - 4);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "sparkline", "aria-hidden": "true" },
    svg("path", { d: path([...values.keys()], smoothed(values), x, y), class: "line", stroke: "var(--series-1)" }),
  );
}

/** A reliability diagram: observed frequency against probability, sizes by number of reads. */
export function reliabilityChart(bins, label) {
  const most = Math.max(...bins.map((bin) => bin.count), 1), known = bins.filter((bin) => bin.count);
  const told = (bin) => `${count(bin.count)} reads: probability ${fixed(bin.confidence)}, true ${fixed(bin.frequency)}`;
  return square(label, ["probability", "share that is true"], [0, 1], (at, up) => [
    line(at(0), up(0), at(1), up(1), "diagonal"),
    svg("path", { d: path(known.map((bin) => bin.confidence), known.map((bin) => bin.frequency), at, up), class: "line", stroke: "var(--series-1)" }),
    known.map((bin) => svg("circle", { cx: at(bin.confidence), cy: up(bin.frequency), r: 3 + 6 * Math.sqrt(bin.count / most), class: "dot" }, svg("title", {}, told(bin)))),
  ]);
}

/** Many points, with both coordinates in a range. `pick` is called with the index of the point that was clicked. */
export function scatter(xs, ys, { label, names, range, pick }) {
  const told = (i) => `${names[0]} ${fixed(xs[i])}, ${names[1]} ${fixed(ys[i])}`;
  return square(label, names, range, (at, up) => [
    line(at(range[0]), up(range[0]), at(range[1]), up(range[1]), "diagonal"),
    svg("g", { vars: { "--opacity": Math.max(0.08, Math.min(0.7, 300 / xs.length)) } }, xs.map((x, i) => svg("circle", { cx: at(x), cy: up(ys[i]), r: 3, class: "dot pick", onclick: () => pick(i) }, svg("title", {}, told(i))))),
  ]);
}

/** A square drawing with the names of both axes, which have the same range. */
function square(label, names, [low, high], draw) {
  const size = 360, edge = 48, length = size - edge - 10;
  const at = (value) => edge + ((value - low) / (high - low)) * length;
  const up = (value) => size - edge - ((value - low) / (high - low)) * length;
  return svg(
    "svg",
    { viewBox: `0 0 ${size} ${size}`, class: "square", role: "img", "aria-label": label },
    [0, 0.5, 1].map((share) => {
      const value = low + share * (high - low);
      return [line(at(low), up(value), at(high), up(value), "tick"), text(edge - 6, up(value) + 4, fixed(value, 1), "end"), text(at(value), size - edge + 16, fixed(value, 1), "middle")];
    }),
    draw(at, up),
    text(edge + length / 2, size - 6, names[0], "middle"),
    svg("g", { transform: `translate(12 ${size - edge - length / 2}) rotate(-90)` }, text(0, 0, names[1], "middle")),
  );
}

function drawing(height, label, children) {
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "plot", role: "img", "aria-label": label }, children);
}

function line(x1, y1, x2, y2, kind = "axis-line") {
  return svg("line", { x1, y1, x2, y2, class: kind });
}

function text(x, y, content, anchor) {
  return svg("text", { x, y, class: "axis", "text-anchor": anchor }, content);
}

function path(steps, values, x, y, breaks = []) {
  let d = "", pen = "M";
  values.forEach((value, i) => {
    if (breaks[i]) pen = "M";
    if (value === null || Number.isNaN(value)) return;
    d += `${pen}${x(steps[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    if (pen === "M" && breaks.length) d += "h1"; // a segment of one step is a dot
    pen = "L";
  });
  return d;
}

function smoothed(values, breaks = []) {
  let last = null;
  return values.map((value, i) => {
    if (breaks[i]) last = null;
    if (value === null) return null;
    last = last === null ? value : SMOOTHING * last + (1 - SMOOTHING) * value;
    return last;
  });
}
