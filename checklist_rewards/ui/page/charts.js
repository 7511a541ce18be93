// Small charts in SVG, and scatter plots on a canvas. Colours are CSS variables, so they follow light and dark.

import { el, fixed, svg, table, num, count } from "./dom.js";

const SERIES = ["--series-1", "--series-2", "--series-3", "--series-4", "--series-5", "--series-6"];
const WIDTH = innerWidth < 600 ? 360 : 640; // in the units of the drawing: texts stay readable on a phone
const SMOOTHING = 0.85;
const DASHES = ["none", "7 3", "2 3", "9 3 2 3", "5 5", "1 4"]; // lines that coincide are told apart

/** Counts of equal bins from low to high. */
export function histogram(counts, { low = 0, high = 1, label }) {
  const height = 150, left = 56, bottom = 24, top = 8;
  const most = Math.max(...counts, 1), step = (WIDTH - left - 8) / counts.length;
  const bars = counts.map((value, i) => {
    const size = ((height - top - bottom) * value) / most;
    const from = low + ((high - low) * i) / counts.length, to = low + ((high - low) * (i + 1)) / counts.length;
    return svg(
      "rect",
      { x: left + i * step + 1, y: height - bottom - size, width: Math.max(step - 2, 1), height: size, class: "bar" },
      svg("title", {}, `${fixed(from, 2)} to ${fixed(to, 2)}: ${count(value)}`),
    );
  });
  const axis = [0, 0.25, 0.5, 0.75, 1].map((share) =>
    text(left + share * (WIDTH - left - 8), height - 6, fixed(low + share * (high - low), 2), share === 1 ? "end" : "middle"),
  );
  return chart(height, label, [
    line(left, height - bottom, WIDTH - 8, height - bottom),
    text(left - 6, top + 8, count(most), "end"),
    text(left - 6, height - bottom, "0", "end"),
    ...bars,
    ...axis,
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

/** Lines over steps: [{ name, values }]. The faint line has the values, the strong one their moving average. Both begin anew where `breaks[i]` is not 0. */
export function lines(steps, series, { label, low = null, high = null, digits = 3, breaks = [] }) {
  const height = 220, left = 48, bottom = 26, top = 10;
  const known = series.flatMap((one) => one.values.filter((value) => value !== null));
  if (!known.length || !steps.length) return el("p", { class: "note" }, `${label}: no values.`);
  const least = low ?? Math.min(...known), most = high ?? Math.max(...known);
  const span = most - least || 1, range = steps.at(-1) - steps[0] || 1;
  const x = (step) => left + ((step - steps[0]) / range) * (WIDTH - left - 12);
  const y = (value) => top + (1 - (value - least) / span) * (height - top - bottom);
  const drawn = series.flatMap((one, i) => {
    const color = `var(${SERIES[i % SERIES.length]})`;
    return [
      svg("path", { d: path(steps, one.values, x, y, breaks), class: "line faint", stroke: color, "data-series": i }),
      svg("path", { d: path(steps, smoothed(one.values, breaks), x, y, breaks), class: "line", stroke: color, "stroke-dasharray": DASHES[i % DASHES.length], "data-series": i }),
    ];
  });
  const ticks = [0, 0.5, 1].flatMap((share) => {
    const value = least + share * span;
    return [line(left, y(value), WIDTH - 12, y(value), "tick"), text(left - 6, y(value) + 4, fixed(value, span > 20 ? 0 : 2), "end")];
  });
  const cursor = svg("line", { class: "cursor", y1: top, y2: height - bottom, x1: -9, x2: -9 });
  const picture = chart(height, label, [
    ...ticks,
    ...steps.filter((_, i) => breaks[i]).map((step) => line(x(step), top, x(step), height - bottom, "tick")),
    text(left, height - 8, String(steps[0]), "start"),
    text(WIDTH - 12, height - 8, `step ${steps.at(-1)}`, "end"),
    ...drawn,
    cursor,
  ]);
  const at = el("span", { class: "muted" });
  const figures = series.map(() => el("span"));
  const entry = (one, i) => {
    const sample = svg("svg", { viewBox: "0 0 24 4", class: "swatch", "aria-hidden": "true" }, svg("path", { d: "M0 2H24", class: "line", stroke: `var(${SERIES[i % SERIES.length]})`, "stroke-dasharray": DASHES[i % DASHES.length] }));
    if (series.length < 2) return el("span", {}, sample, `${one.name} `, figures[i]);
    return el("button", { type: "button", class: "toggle", "aria-pressed": "true", title: "show or hide this line", onclick: (event) => {
      const button = event.currentTarget, hidden = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!hidden));
      for (const line of picture.querySelectorAll(`[data-series="${i}"]`)) line.style.setProperty("display", hidden ? "none" : "inline");
    } }, sample, `${one.name} `, figures[i]);
  };
  const legend = el("div", { class: "legend" }, at, series.map(entry));
  const show = (place) => {
    at.textContent = `step ${steps[place]}`;
    series.forEach((one, i) => figures[i].replaceChildren(num(one.values[place], digits)));
    cursor.setAttribute("x1", x(steps[place]));
    cursor.setAttribute("x2", x(steps[place]));
  };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * WIDTH;
    let nearest = 0;
    steps.forEach((step, place) => {
      if (Math.abs(x(step) - at) < Math.abs(x(steps[nearest]) - at)) nearest = place;
    });
    show(nearest);
  });
  show(steps.length - 1);
  const numbers = el("details", {}, el("summary", {}, "Numbers"));
  numbers.addEventListener("toggle", () => {
    if (numbers.childElementCount > 1) return;
    const heads = ["step", ...series.map((one) => [one.name, "n"])];
    numbers.append(table(heads, steps.map((step, i) => [String(step), ...series.map((one) => num(one.values[i], digits))])));
  });
  return el("figure", { class: "chart", "aria-label": label }, el("figcaption", {}, label), picture, legend, numbers);
}

/** Points over steps: one per row, at (xs[i], ys[i]), with a cursor that `mark(step)` moves. `pick(step)` is called for a point. */
export function points(xs, ys, { label, low = 0, high = 1, pick }) {
  const height = 170, left = 48, bottom = 26, top = 10;
  const known = xs.map((_, i) => i).filter((i) => !Number.isNaN(ys[i]));
  const first = Math.min(...xs), last = Math.max(...xs), range = last - first || 1;
  const least = Math.min(low, ...known.map((i) => ys[i])), most = Math.max(high, ...known.map((i) => ys[i]));
  const x = (step) => left + ((step - first) / range) * (WIDTH - left - 12);
  const y = (value) => top + (1 - (value - least) / (most - least || 1)) * (height - top - bottom);
  const cursor = svg("line", { class: "cursor", y1: top, y2: height - bottom });
  const ticks = [least, (least + most) / 2, most].flatMap((value) => [line(left, y(value), WIDTH - 12, y(value), "tick"), text(left - 6, y(value) + 4, fixed(value, 2), "end")]);
  const picture = chart(height, label, [
    ...ticks,
    text(left, height - 8, String(first), "start"),
    text(WIDTH - 12, height - 8, `step ${last}`, "end"),
    cursor,
    ...known.map((i) => svg("circle", { cx: x(xs[i]), cy: y(ys[i]), r: 3.5, class: "dot" }, svg("title", {}, `step ${xs[i]}: ${fixed(ys[i])}`))),
  ]);
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * WIDTH;
    pick(xs.reduce((best, step) => (Math.abs(x(step) - at) < Math.abs(x(best) - at) ? step : best), xs[0]));
  });
  const mark = (step) => ["x1", "x2"].forEach((name) => cursor.setAttribute(name, x(step)));
  return { node: el("figure", { class: "chart" }, el("figcaption", {}, label), picture), mark };
}

/** A line without axes, for a table. */
export function sparkline(values) {
  const width = 120, height = 28;
  const x = (i) => 2 + (i / Math.max(values.length - 1, 1)) * (width - 4);
  const y = (value) => 2 + (1 - value) * (height - 4);
  const places = values.map((_, i) => i);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "sparkline", "aria-hidden": "true" },
    svg("path", { d: path(places, smoothed(values), x, y), class: "line", stroke: "var(--series-1)" }),
  );
}

/** A reliability diagram: observed frequency against probability, sizes by number of reads. */
export function reliabilityChart(bins, label) {
  const size = 300, edge = 36;
  const at = (value) => edge + value * (size - edge - 10), up = (value) => size - edge - value * (size - edge - 10);
  const most = Math.max(...bins.map((bin) => bin.count), 1);
  const known = bins.filter((bin) => bin.count);
  const points = known.map((bin) =>
    svg(
      "circle",
      { cx: at(bin.confidence), cy: up(bin.frequency), r: 3 + 6 * Math.sqrt(bin.count / most), class: "dot" },
      svg("title", {}, `${count(bin.count)} reads: probability ${fixed(bin.confidence)}, true ${fixed(bin.frequency)}`),
    ),
  );
  const d = known.map((bin, i) => `${i ? "L" : "M"}${at(bin.confidence)} ${up(bin.frequency)}`).join("");
  return svg(
    "svg",
    { viewBox: `0 0 ${size} ${size}`, class: "square", role: "img", "aria-label": label },
    ...[0, 0.5, 1].flatMap((v) => [
      line(at(0), up(v), at(1), up(v), "tick"),
      text(edge - 6, up(v) + 4, fixed(v, 1), "end"),
      text(at(v), size - edge + 16, fixed(v, 1), "middle"),
    ]),
    line(at(0), up(0), at(1), up(1), "diagonal"),
    svg("path", { d, class: "line", stroke: "var(--series-1)" }),
    ...points,
    text(at(0.5), size - 4, "probability", "middle"),
    svg("text", { x: 10, y: up(0.5), class: "axis", "text-anchor": "middle", transform: `rotate(-90 10 ${up(0.5)})` }, "share that is true"),
  );
}

/** Many points on a canvas, from low to high on both axes. `pick` is called with the index of the point that was clicked. */
export function scatter(xs, ys, { label, xLabel, yLabel, x = [0, 1], y = [0, 1], diagonal = false, pick = null }) {
  const size = 360, edge = 40;
  const canvas = el("canvas", { class: "square", role: "img", "aria-label": label, width: size * 2, height: size * 2 });
  const at = (v) => edge + ((v - x[0]) / (x[1] - x[0])) * (size - edge - 10);
  const up = (v) => size - edge - ((v - y[0]) / (y[1] - y[0])) * (size - edge - 10);
  const draw = () => {
    const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.clearRect(0, 0, size, size);
    context.strokeStyle = color("--line");
    context.strokeRect(at(x[0]), up(y[1]), at(x[1]) - at(x[0]), up(y[0]) - up(y[1]));
    if (diagonal) {
      context.beginPath();
      context.moveTo(at(x[0]), up(y[0]));
      context.lineTo(at(x[1]), up(y[1]));
      context.stroke();
    }
    context.fillStyle = color("--series-1");
    context.globalAlpha = Math.max(0.08, Math.min(0.7, 300 / xs.length));
    for (let i = 0; i < xs.length; i++) {
      if (Number.isNaN(xs[i]) || Number.isNaN(ys[i])) continue;
      context.beginPath();
      context.arc(at(xs[i]), up(ys[i]), 3, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
    context.fillStyle = color("--muted");
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    context.fillText(xLabel, at((x[0] + x[1]) / 2), size - 8);
    for (const v of [x[0], (x[0] + x[1]) / 2, x[1]]) context.fillText(fixed(v, 1), at(v), size - edge + 16);
    context.textAlign = "end";
    for (const v of [y[0], (y[0] + y[1]) / 2, y[1]]) context.fillText(fixed(v, 1), edge - 5, up(v) + 4);
    context.save();
    context.translate(12, up((y[0] + y[1]) / 2));
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(yLabel, 0, 0);
    context.restore();
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  if (pick)
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const px = ((event.clientX - box.left) / box.width) * size, py = ((event.clientY - box.top) / box.height) * size;
      let nearest = -1, least = 144;
      for (let i = 0; i < xs.length; i++) {
        const away = (at(xs[i]) - px) ** 2 + (up(ys[i]) - py) ** 2;
        if (away < least) [nearest, least] = [i, away];
      }
      if (nearest >= 0) pick(nearest);
    });
  return canvas;
}

function chart(height, label, children) {
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "plot", role: "img", "aria-label": label }, ...children);
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
