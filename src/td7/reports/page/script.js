"use strict";
// Draws charts of the embedded data. The tables are part of the page and need no script.
const data = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const announcement = document.getElementById("announcement");
const SVG = "http://www.w3.org/2000/svg";
const SVG_NAMES = ["svg", "g", "path", "line", "circle", "text", "tspan", "rect", "title", "desc"];
const WIDTH = 360, HEIGHT = 230, LEFT = 62, RIGHT = 18, TOP = 8, BOTTOM = 34;

function element(name, attributes, ...children) {
  const node = SVG_NAMES.includes(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// The colour itself on a light page, a lighter one on a dark page; dark grey becomes almost white.
function ink(colour) {
  if (!dark.matches) return colour;
  const parts = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  const share = Math.max(...parts) < 80 ? 0.8 : 0.35;
  return `rgb(${parts.map((part) => Math.round(part + share * (255 - part))).join(",")})`;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
function numberText(value) {
  const size = Math.abs(value);
  if (size >= 1000) return whole.format(value);
  return size >= 10 ? tenth.format(value) : `${value && value.toPrecision(3)}`; // three digits of small values
}
// A value on an axis, by the largest value there: all values of an axis have the same unit.
function tickText(value, largest) {
  if (value === 0 || largest < 1e4) return `${+value.toPrecision(6)}`;
  return largest >= 1e6 ? `${+(value / 1e6).toPrecision(6)}M` : `${+(value / 1e3).toPrecision(6)}k`;
}

// Round numbers from low to high, about `count` of them.
function ticks(low, high, count) {
  const raw = (high - low) / count || 1, base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * base).find((size) => size >= raw);
  const values = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) values.push(value);
  return values;
}

function largestOf(values) { return Math.max(...values.map(Math.abs)); }

// The mean of every evaluation with those before it in the window.
function smooth(values, window) {
  let sum = 0;
  return values.map((value, i) => {
    sum += value - (i >= window ? values[i - window] : 0);
    return sum / Math.min(i + 1, window);
  });
}

// Mean and interval over seeds, as in the tables.
function summarise(seeds) {
  const count = seeds.length;
  const mean = seeds[0].map((_, i) => seeds.reduce((sum, seed) => sum + seed[i], 0) / count);
  const interval = mean.map((middle, i) => count < 2 ? 0
    : 1.96 / Math.sqrt(count) * Math.sqrt(seeds.reduce((sum, seed) => sum + (seed[i] - middle) ** 2, 0) / (count - 1)));
  return { mean, interval };
}

// -- learning curves and other lines ----------------------------------------------------------------

function path(xs, ys) { return xs.map((x, i) => `${i ? "L" : "M"}${x.toFixed(1)} ${ys[i].toFixed(1)}`).join(""); }

function dashArray(run) { return run.dashes.map((dash) => 1.6 * dash).join(" "); }

// A curve; a single point gets a marker, since a line would not show it.
function curve(xs, ys, style) {
  return xs.length > 1 ? element("path", { ...style, fill: "none", d: path(xs, ys) })
    : element("circle", { cx: xs[0], cy: ys[0], r: 3, fill: style.stroke, opacity: style.opacity ?? 1 });
}

// The steps that a panel shows: at most twice the shortest run's, so that no curve is squeezed.
function longestShown(runs) {
  return 2 * runs.reduce((shortest, run) => Math.min(shortest, run.length ?? Infinity), Infinity);
}

// A panel's note on the curves that it shows in part.
function continued(runs) {
  const rows = new Map();
  for (const run of runs) rows.set(run.counts.at(-1), [...rows.get(run.counts.at(-1)) ?? [], run.row]);
  return runs.length ? `Continued ${[...rows].map(([last, own]) => `to ${whole.format(last)}: ${own.join(", ")}`).join("; ")}.` : "";
}

class Panel {
  constructor(runs, place, host) {
    this.runs = runs.filter((run) => run.place === place);
    this.svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: "0", role: "img" });
    this.tip = element("div", { class: "tip", hidden: "" });
    this.place = place;
    this.quantity = this.runs[0].quantity;
    this.stepUnit = this.runs[0].step_unit;
    this.index = null; // of the step that the tip shows
    this.note = element("p", { class: "faint", hidden: "" });
    host.append(element("div", { class: "panel" }, element("h4", {}, this.runs[0].title), this.svg, this.tip, this.note));
    this.svg.addEventListener("pointermove", (event) => this.pointAtMouse(event));
    for (const leaving of ["pointerleave", "blur"]) this.svg.addEventListener(leaving, () => this.pointAt(null));
    this.svg.addEventListener("keydown", (event) => this.pointByKey(event));
  }

  x(step) { return LEFT + step / this.right * (WIDTH - LEFT - RIGHT); }
  y(value) { return TOP + (this.high - value) / (this.high - this.low) * (HEIGHT - TOP - BOTTOM); }

  draw(choice) {
    this.choice = choice;
    const selected = this.runs.filter((run) => choice.rows.has(run.row));
    const limit = choice.lengths === "all" ? Infinity : longestShown(selected);
    const cut = selected.filter((run) => run.counts.at(-1) > limit);
    this.shown = selected.filter((run) => run.counts[0] <= limit).map((run) => {
      const count = run.counts.filter((step) => step <= limit).length;
      const seeds = run.values.map((values) => smooth(values, run.raw ? 1 : choice.window).slice(0, count));
      return { ...run, steps: run.steps.slice(0, count), colour: choice.rows.get(run.row), seeds, ...summarise(seeds) };
    });
    this.setRange();
    this.note.textContent = continued(cut);
    this.note.hidden = !cut.length;
    const values = this.shown.map((run) => `${run.row} ${numberText(run.mean.at(-1))}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.quantity} on ${this.place} by ${this.stepUnit}: `
      + `${values || "no row is selected"}. ${this.note.textContent} Arrow keys read values.`);
    this.svg.replaceChildren();
    this.drawAxes();
    for (const run of this.shown) this.svg.append(...(choice.seeds === "all" ? this.seedCurves(run) : this.meanCurve(run)));
    this.cursor = element("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.svg.append(this.cursor);
    this.pointAt(null);
  }

  setRange() {
    this.steps = [...new Set(this.shown.flatMap((run) => run.steps))].sort((a, b) => a - b);
    this.right = this.runs[0].right ?? (this.steps.at(-1) || 1);
    const values = this.shown.flatMap((run) => this.choice.seeds === "all"
      ? run.seeds.flat() : run.mean.flatMap((mean, i) => [mean - run.interval[i], mean + run.interval[i]]));
    let low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!values.length) { low = 0; high = 1; }
    if (low === high) { low -= 1; high += 1; }
    this.low = this.runs[0].lowest ?? low;
    this.high = this.runs[0].highest ?? high;
  }

  drawAxes() {
    const values = ticks(this.low, this.high, 5), steps = ticks(0, this.right, 4);
    for (const value of values) {
      this.svg.append(
        element("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: this.y(value), y2: this.y(value) }),
        element("text", { x: LEFT - 5, y: this.y(value) + 4, "text-anchor": "end" },
          tickText(value, largestOf(values))));
    }
    for (const step of steps) {
      this.svg.append(element("text", { x: this.x(step), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" },
        tickText(step, largestOf(steps))));
    }
    const middle = (TOP + HEIGHT - BOTTOM) / 2;
    this.svg.append(
      element("text", { class: "title", x: (WIDTH + LEFT) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, this.stepUnit),
      element("text", { class: "title", transform: `translate(12 ${middle}) rotate(-90)`, "text-anchor": "middle" }, this.quantity));
  }

  seedCurves(run) {
    const style = { stroke: ink(run.colour), "stroke-dasharray": dashArray(run), "stroke-width": 1, opacity: 0.7 };
    const xs = run.steps.map((step) => this.x(step));
    return run.seeds.map((seed) => curve(xs, seed.map((value) => this.y(value)), style));
  }

  meanCurve(run) {
    const xs = run.steps.map((step) => this.x(step)), colour = ink(run.colour);
    const upper = run.mean.map((mean, i) => this.y(mean + run.interval[i]));
    const lower = run.mean.map((mean, i) => this.y(mean - run.interval[i]));
    const band = path(xs, upper) + path([...xs].reverse(), lower.reverse()).replace("M", "L") + "Z";
    const edge = xs.length > 1 ? {} : { stroke: colour, "stroke-width": 6 }; // the band of a single step has no width
    const style = { stroke: colour, "stroke-dasharray": dashArray(run), "stroke-width": 2 };
    return [element("path", { d: band, fill: colour, opacity: 0.16, ...edge }),
      curve(xs, run.mean.map((value) => this.y(value)), style)];
  }

  pointAtMouse(event) {
    if (!this.steps.length) return;
    const box = this.svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * WIDTH;
    const step = (x - LEFT) / (WIDTH - LEFT - RIGHT) * this.right;
    this.pointAt(this.steps.reduce((best, s, i) => Math.abs(s - step) < Math.abs(this.steps[best] - step) ? i : best, 0));
  }

  pointByKey(event) {
    const last = this.steps.length - 1, now = this.index ?? last;
    const moves = { ArrowLeft: now - 1, ArrowRight: this.index === null ? last : now + 1, Home: 0, End: last, Escape: null };
    if (!(event.key in moves) || !this.steps.length) return;
    event.preventDefault();
    const next = moves[event.key];
    this.pointAt(next === null ? null : Math.max(0, Math.min(last, next)), true);
  }

  // Show the values at a step, or none for null; `aloud` reads them to screen readers.
  pointAt(index, aloud = false) {
    this.index = index;
    this.tip.hidden = index === null;
    this.cursor.setAttribute("visibility", index === null ? "hidden" : "visible");
    if (index === null) return;
    const step = this.steps[index], x = this.x(step);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    const where = `${(Number.isInteger(step) ? whole : tenth).format(step)} ${this.stepUnit}`;
    const lines = [element("b", {}, where)], spoken = [`${this.place}, ${where}`];
    for (const run of this.shown) {
      const i = run.steps.findLastIndex((one) => one <= step);
      if (i < 0 || step > run.steps.at(-1)) continue;
      const text = `${run.row} ${this.valueText(run, i)}`;
      const mark = element("span", {}, "■ ");
      mark.style.color = ink(run.colour);
      lines.push(element("div", {}, mark, text));
      spoken.push(text);
    }
    this.tip.replaceChildren(...lines);
    this.placeTip(x);
    if (aloud) announcement.textContent = spoken.join("; ");
  }

  valueText(run, i) {
    if (this.choice.seeds === "all") return run.seeds.map((seed) => numberText(seed[i])).join(" · ");
    return numberText(run.mean[i]) + (run.seeds.length > 1 ? ` ± ${numberText(run.interval[i])}` : "");
  }

  placeTip(x) {
    const width = this.svg.clientWidth || WIDTH, left = x / WIDTH * width;
    this.tip.style.whiteSpace = this.tip.scrollWidth > width ? "normal" : "";
    this.tip.style.top = "2.2rem";
    this.tip.style.left = left < width / 2 ? `${left + 10}px` : "auto";
    this.tip.style.right = left < width / 2 ? "auto" : `${width - left + 10}px`;
  }
}

// -- controls -----------------------------------------------------------------------------------

function choose(name, kind, value, label, checked) {
  const box = element("input", { type: kind, name, value });
  box.checked = checked;
  return element("label", {}, box, label);
}

// Show or hide a row: it gets its own colour, or a free one if a row that is shown has that.
function select(choice, run, checked) {
  choice.rows.delete(run.row);
  const free = [run.colour, ...data.colours].find((colour) => ![...choice.rows.values()].includes(colour));
  if (checked) choice.rows.set(run.row, free);
}

function legendLine(run, colour) {
  const svg = element("svg", { viewBox: "0 0 30 8", "aria-hidden": "true" });
  svg.append(element("path", { d: "M0 4L30 4", stroke: ink(colour), "stroke-width": 2, "stroke-dasharray": dashArray(run) }));
  return element("li", {}, svg, run.row);
}

// The charts that a study's controls apply to. `counts` are steps, also where the axis has minutes.
const CHARTS = {
  "Learning curves": (study) => study.curves,
  "Learning curves over minutes": (study) => study.curves.filter((run) => study.timed && run.minutes_per_step).map((run) =>
    ({ ...run, step_unit: "minutes, all seeds together", counts: run.steps, steps: run.steps.map((step) => step * run.minutes_per_step) })),
  "Value estimates": (study) => study.estimates,
  "Drops": (study) => study.drops,
};

// Panels of one kind below their legend, which stays in the window with them.
class Charts {
  constructor(title, given, host) {
    const runs = given.map((run) => ({ counts: run.steps, ...run }));
    this.runs = [...new Map(runs.map((run) => [run.row, run])).values()]; // one per row
    this.legend = element("ul", { class: "legend" });
    const grid = element("div", { class: "panels" });
    host.append(element("div", { class: "charts" }, element("h3", {}, title), this.legend, grid));
    this.panels = [...new Set(runs.map((run) => run.place))].map((place) => new Panel(runs, place, grid));
  }

  draw(choice) {
    const shown = this.runs.filter((run) => choice.rows.has(run.row));
    this.legend.replaceChildren(...shown.map((run) => legendLine(run, choice.rows.get(run.row))));
    this.panels.forEach((panel) => panel.draw(choice));
  }
}

function seedControl(study) {
  return element("fieldset", {}, element("legend", {}, "Seeds"),
    choose(`${study.name}-seeds`, "radio", "mean", "mean ± interval", true),
    choose(`${study.name}-seeds`, "radio", "all", "every seed", false));
}

// How much of curves is shown that are much longer than others; null where there are none.
function lengthControl(study) {
  const isLonger = (run) => run.steps.at(-1) > longestShown(study.curves.filter((one) => one.place === run.place));
  return !study.curves.some(isLonger) ? null : element("fieldset", {}, element("legend", {}, "Longer rows"),
    choose(`${study.name}-lengths`, "radio", "cut", "cut at twice the shortest", true),
    choose(`${study.name}-lengths`, "radio", "all", "whole", false));
}

function windowSelect(study) {
  const sizes = [...new Set([1, 5, 10, 20, study.window])].sort((a, b) => a - b);
  return element("select", {}, ...sizes.map((size) =>
    element("option", { value: size, ...(size === study.window ? { selected: "" } : {}) },
      size === 1 ? "none" : `${size} evaluations`)));
}

function rowControl(study, runs) {
  const most = data.most_lines, many = runs.length > most;
  const list = element("div", { class: "rows" });
  list.append(...runs.map((run, i) => choose(`${study.name}-row`, "checkbox", run.row, run.row, i < most)));
  const [all, none, next] = [many ? `first ${most}` : "all", "none", `next ${most}`].map(
    (text) => element("button", { type: "button" }, text));
  const title = many ? `Rows (at most ${most} at a time)` : "Rows";
  const buttons = element("div", { class: "buttons" }, all, none, ...(many ? [next] : []));
  return { fieldset: element("fieldset", { class: "agents" }, element("legend", {}, title), list, buttons), list, all, none, next };
}

function drawStudy(study) {
  const host = document.querySelector(`[data-curves="${CSS.escape(study.name)}"]`);
  if (!host) return;
  const runs = [...new Map(study.curves.map((run) => [run.row, run])).values()]; // one per row
  const choice = { rows: new Map(), seeds: "mean", window: study.window, lengths: "cut" }; // rows: the colours of those shown
  const { fieldset, list, all, none, next } = rowControl(study, runs), boxes = [...list.querySelectorAll("input")];
  const seeds = seedControl(study), windows = windowSelect(study), lengths = lengthControl(study);
  const smoothing = element("fieldset", {}, element("legend", {}, "Smoothing"),
    element("label", {}, element("span", { class: "visually-hidden" }, "Smoothing of the curves, "), windows));
  host.replaceChildren(element("div", { class: "controls" }, fieldset, seeds, smoothing, ...(lengths ? [lengths] : [])));
  const charts = Object.entries(CHARTS).map(([title, runsOf]) => [title, runsOf(study)])
    .filter(([, own]) => own.length).map(([title, own]) => new Charts(title, own, host));
  const draw = () => {
    boxes.forEach((box) => { box.disabled = !box.checked && choice.rows.size >= data.most_lines; });
    charts.forEach((one) => one.draw(choice));
  };
  const selectSome = (first, count) => {
    boxes.forEach((box, i) => { box.checked = i >= first && i < first + count; });
    choice.rows.clear();
    runs.slice(first, first + count).forEach((run) => select(choice, run, true));
    draw();
  };
  all.addEventListener("click", () => selectSome(0, data.most_lines));
  none.addEventListener("click", () => selectSome(0, 0));
  next.addEventListener("click", () => {
    const after = boxes.findLastIndex((box) => box.checked) + 1;
    selectSome(after < boxes.length ? after : 0, data.most_lines);
  });
  list.addEventListener("change", (event) => {
    select(choice, runs[boxes.indexOf(event.target)], event.target.checked);
    draw();
  });
  seeds.addEventListener("change", (event) => { choice.seeds = event.target.value; draw(); });
  lengths?.addEventListener("change", (event) => { choice.lengths = event.target.value; draw(); });
  windows.addEventListener("change", () => { choice.window = Number(windows.value); draw(); });
  selectSome(0, data.most_lines);
}

// -- bars ---------------------------------------------------------------------------------------

// What the bars of a kind of table show, as [value, interval]: ours, and below it the paper's.
const BARS = {
  losses(records) {
    const step = Math.max(...records.map((record) => record.step));
    const shown = records.filter((record) => record.step === step);
    const paperSteps = new Set(shown.map((record) => record.paper_step));
    paperSteps.delete(null);
    paperSteps.delete(step);
    const hasSuites = new Set(shown.map((record) => record.suite)).size > 1;
    const paper = ["paper", ...[...paperSteps].map((other) => `${whole.format(other)} steps`)].join(", ");
    return {
      title: `Mean percent loss at ${whole.format(step)} steps`, unit: "%",
      legends: [`here, ${whole.format(step)} steps`, paper],
      groups: shown.map((r) => ({
        name: hasSuites ? `${r.row}, ${r.suite}` : r.row,
        here: [r.percent_loss, r.interval],
        there: [r.paper_percent_loss, r.paper_interval],
      })),
    };
  },
  speed(records) {
    return {
      title: `Minutes for 1M ${records[0].step_unit}, all seeds together`, unit: "", legends: ["here", "paper, one seed"],
      groups: records.map((r) => ({
        name: new Set(records.map((record) => record.place)).size > 1 ? `${r.row}, ${r.place}` : r.row,
        here: [r.minutes_per_million_steps, null],
        there: [r.paper_minutes, null],
      })),
    };
  },
};
const FILLS = ["var(--here)", "var(--there)"];

const LINE = 14; // the height of a line of text
const VALUE = 52; // right of the bars, for the value of the longest
const ruler = document.createElement("canvas").getContext("2d");
ruler.font = "12px system-ui, sans-serif"; // as in style.css

function textWidth(text) { return ruler.measureText(text).width; }

// Lines of at most this width, broken between words or after hyphens where possible.
function wrapped(text, width) {
  const lines = [""];
  const words = text.split(/(?<=\s)/).flatMap((word) => textWidth(word.trim()) > width ? word.split(/(?<=-)/) : [word]);
  for (const part of words) {
    if (textWidth(lines.at(-1) + part.trimEnd()) <= width) lines.push(lines.pop() + part);
    else lines.push(part);
    while (textWidth(lines.at(-1).trimEnd()) > width && lines.at(-1).length > 1) {
      const rest = lines.pop();
      let count = 1;
      while (textWidth(rest.slice(0, count + 1)) <= width) count += 1;
      lines.push(rest.slice(0, count), rest.slice(count));
    }
  }
  return lines.map((line) => line.trim()).filter(Boolean);
}

// Where the bars are: as wide as the host, so that letters are not scaled.
function barLayout(groups, hostWidth) {
  const width = hostWidth || 620, name = Math.min(16 + Math.max(...groups.map((group) => textWidth(group.name))), 0.45 * width);
  const names = groups.map((group) => wrapped(group.name, name - 12));
  const tops = [6];
  names.forEach((lines, i) => tops.push(tops[i] + Math.max(34, LINE * lines.length + 8)));
  const ends = groups.flatMap(({ here, there }) => [here, there].flatMap(([value, interval]) =>
    value === null ? [] : [value - (interval ?? 0), value + (interval ?? 0)]));
  const low = Math.min(0, ...ends), high = Math.max(1, ...ends);
  const x = (value) => name + (value - low) / (high - low) * (width - name - VALUE);
  return { width, name, names, tops, bottom: tops.at(-1), low, high, x };
}

function barGroup(group, i, { name, names, tops, x }, valueText) {
  const middle = (tops[i] + tops[i + 1]) / 2, first = middle + 4 - LINE * (names[i].length - 1) / 2;
  const nodes = [element("text", { class: "name", "text-anchor": "end" },
    ...names[i].map((text, line) => element("tspan", { x: name - 8, y: first + LINE * line }, text)))];
  const above = group.there[0] === null ? 5 : 12; // a bar without the paper's is in the middle
  for (const [[value, interval], y, fill] of [[group.here, middle - above, FILLS[0]], [group.there, middle + 1, FILLS[1]]]) {
    if (value === null) continue;
    const title = `${group.name}: ${valueText(value)}${interval === null ? "" : ` ± ${tenth.format(interval)}`}`;
    nodes.push(element("rect", { x: Math.min(x(0), x(value)), y, height: 10, width: Math.abs(x(value) - x(0)), style: `fill:${fill}` },
      element("title", {}, title)));
    const end = x(Math.max(0, value + (interval ?? 0))) + 4;
    nodes.push(element("text", { class: "value", x: end, y: y + 9 }, valueText(value)));
    if (interval !== null) {
      nodes.push(element("line", { x1: x(value - interval), x2: x(value + interval), y1: y + 5, y2: y + 5, style: "stroke:var(--ink)" }));
    }
  }
  return nodes;
}

function drawBars(table) {
  const host = document.querySelector(`[data-bars="${CSS.escape(table.name)}"]`);
  if (!host) return;
  const { title, unit, legends, groups } = BARS[table.kind](table.records);
  const valueText = (value) => `${tenth.format(value)}${unit}`;
  const layout = barLayout(groups, host.clientWidth), { width, name, bottom, low, high, x } = layout;
  const half = textWidth(title) / 2 + 2, middle = Math.max(half, Math.min((name + width - VALUE) / 2, width - half));
  const label = groups.map((group) => `${group.name} ${valueText(group.here[0])}`
    + (group.there[0] === null ? "" : `, paper ${valueText(group.there[0])}`)).join("; ");
  const svg = element("svg", { viewBox: `0 0 ${width} ${bottom + 24 + LINE}`, role: "img", "aria-label": `${title}: ${label}` });
  const values = ticks(low, high, Math.min(5, (width - name) / 90));
  for (const value of values) {
    svg.append(element("line", { class: "axis", x1: x(value), x2: x(value), y1: 4, y2: bottom }),
      element("text", { x: x(value), y: bottom + 14, "text-anchor": "middle" }, `${tickText(value, largestOf(values))}${unit}`));
  }
  groups.forEach((group, i) => svg.append(...barGroup(group, i, layout, valueText)));
  svg.append(element("text", { class: "title", x: middle, y: bottom + 18 + LINE, "text-anchor": "middle" }, title));
  const shown = legends.slice(0, groups.some((group) => group.there[0] !== null) ? 2 : 1);
  const legend = element("ul", { class: "legend" }, ...shown.map((text, i) => {
    const mark = element("span", { "aria-hidden": "true" });
    mark.style.background = FILLS[i];
    return element("li", {}, mark, text);
  }));
  host.replaceChildren(legend, svg);
}

// -- the page -----------------------------------------------------------------------------------

function drawAllBars() { data.tables.filter((table) => table.kind in BARS).forEach(drawBars); }
function drawAll() {
  data.studies.forEach(drawStudy);
  drawAllBars();
}
// What sticks below the navigation needs its height; tables with hidden columns fade at their edge.
function measure() {
  const height = document.querySelector("nav").offsetHeight;
  document.documentElement.style.setProperty("--nav", `${height}px`);
  tables.forEach(markHidden);
}
// The navigation scrolls as well in a narrow window.
const tables = [...document.querySelectorAll(".scroll"), document.querySelector("nav")];
function markHidden(table) {
  table.classList.toggle("moved", table.scrollLeft > 0);
  table.classList.toggle("more", table.scrollLeft + table.clientWidth < table.scrollWidth - 1);
}
drawAll();
measure();
for (const table of tables) table.addEventListener("scroll", () => markHidden(table), { passive: true });
document.querySelectorAll("details").forEach((one) => one.addEventListener("toggle", measure));
addEventListener("resize", () => { drawAllBars(); measure(); });
dark.addEventListener("change", drawAll);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
