"use strict";
// Charts of the embedded data. The tables are in the page already and need none of this.
const data = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const announcement = document.getElementById("announcement");
const WIDTH = 360, HEIGHT = 230, LEFT = 50, RIGHT = 18, TOP = 8, BOTTOM = 34;

function element(name, attributes, ...children) {
  const space = "http://www.w3.org/2000/svg";
  const drawn = ["svg", "g", "path", "line", "circle", "text", "tspan", "rect", "title", "desc"].includes(name);
  const made = drawn ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Lighter on a dark page; the darkest colour almost white.
function ink(colour) {
  if (!dark.matches) return colour;
  const parts = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  const share = Math.max(...parts) < 80 ? 0.8 : 0.35;
  return `rgb(${parts.map((part) => Math.round(part + share * (255 - part))).join(",")})`;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
function words(value) { return Math.abs(value) >= 1000 ? whole.format(value) : tenth.format(value); }
function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toFixed(2)}M`;
  return size >= 1e4 ? `${+(value / 1e3).toFixed(1)}k` : `${+value.toPrecision(6)}`;
}

// About so many round numbers from low to high.
function ticks(low, high, count) {
  const raw = (high - low) / count || 1, base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * base).find((size) => size >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}

// Every evaluation's mean with those before it, as many as the window has.
function smooth(values, size) {
  let sum = 0;
  return values.map((value, i) => {
    sum += value - (i >= size ? values[i - size] : 0);
    return sum / Math.min(i + 1, size);
  });
}

// Mean and interval over seeds, as the tables have them.
function summarise(seeds) {
  const count = seeds.length;
  const mean = seeds[0].map((_, i) => seeds.reduce((sum, seed) => sum + seed[i], 0) / count);
  const wide = mean.map((middle, i) => count < 2 ? 0
    : 1.96 / Math.sqrt(count) * Math.sqrt(seeds.reduce((sum, seed) => sum + (seed[i] - middle) ** 2, 0) / (count - 1)));
  return { mean, wide };
}

function path(xs, ys) { return xs.map((x, i) => `${i ? "L" : "M"}${x.toFixed(1)} ${ys[i].toFixed(1)}`).join(""); }

// A curve; of a single point a mark, since a line shows nothing of it.
function curve(xs, ys, look) {
  return xs.length > 1 ? element("path", { ...look, fill: "none", d: path(xs, ys) })
    : element("circle", { cx: xs[0], cy: ys[0], r: 3, fill: look.stroke, opacity: look.opacity ?? 1 });
}

class Panel {
  constructor(runs, place, host) {
    this.runs = runs.filter((run) => run.place === place);
    this.steps = [...new Set(this.runs.flatMap((run) => run.steps))].sort((a, b) => a - b);
    this.svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: "0", role: "img" });
    this.tip = element("div", { class: "tip", hidden: "" });
    this.place = place;
    this.quantity = this.runs[0].quantity;
    this.stepUnit = this.runs[0].step_unit;
    this.at = null;
    host.append(element("div", { class: "panel" }, element("h4", {}, this.runs[0].title), this.svg, this.tip));
    this.svg.addEventListener("pointermove", (event) => {
      const box = this.svg.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * WIDTH;
      const step = (x - LEFT) / (WIDTH - LEFT - RIGHT) * this.right;
      this.point(this.steps.reduce((best, s, i) => Math.abs(s - step) < Math.abs(this.steps[best] - step) ? i : best, 0));
    });
    for (const gone of ["pointerleave", "blur"]) this.svg.addEventListener(gone, () => this.point(null));
    this.svg.addEventListener("keydown", (event) => {
      const last = this.steps.length - 1, now = this.at ?? last;
      const moves = { ArrowLeft: now - 1, ArrowRight: this.at === null ? last : now + 1, Home: 0, End: last, Escape: null };
      if (!(event.key in moves)) return;
      event.preventDefault();
      const next = moves[event.key];
      this.point(next === null ? null : Math.max(0, Math.min(last, next)), true);
    });
  }

  draw(choice) {
    this.choice = choice;
    this.drawn = this.runs.filter((run) => choice.rows.has(run.row)).map((run) => {
      const seeds = run.values.map((values) => smooth(values, run.raw ? 1 : choice.window));
      return { ...run, seeds, ...summarise(seeds) };
    });
    const ends = this.drawn.flatMap((run) => choice.seeds === "all"
      ? run.seeds.flat() : run.mean.flatMap((mean, i) => [mean - run.wide[i], mean + run.wide[i]]));
    let low = ends.reduce((a, b) => Math.min(a, b), Infinity), high = ends.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!ends.length) { low = 0; high = 1; }
    if (low === high) { low -= 1; high += 1; }
    low = this.runs[0].lowest ?? low;
    high = this.runs[0].highest ?? high;
    this.right = this.steps.at(-1) || 1;
    this.x = (step) => LEFT + step / this.right * (WIDTH - LEFT - RIGHT);
    this.y = (value) => TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM);
    const label = `${this.quantity} on ${this.place} by ${this.stepUnit}: ` + (this.drawn.map((run) =>
      `${run.row} ${words(run.mean.at(-1))}`).join(", ") || "nothing is chosen") + ". Arrow keys read values.";
    this.svg.setAttribute("aria-label", label);
    this.svg.replaceChildren();
    for (const value of ticks(low, high, 5)) {
      this.svg.append(
        element("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: this.y(value), y2: this.y(value) }),
        element("text", { x: LEFT - 5, y: this.y(value) + 4, "text-anchor": "end" }, short(value)));
    }
    for (const step of ticks(0, this.right, 4)) {
      this.svg.append(element("text", { x: this.x(step), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, short(step)));
    }
    this.svg.append(element("text", { x: (WIDTH + LEFT) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, this.stepUnit));
    for (const run of this.drawn) {
      const xs = run.steps.map(this.x), colour = ink(run.colour);
      const line = { stroke: colour, "stroke-dasharray": run.dashes.map((dash) => 1.6 * dash).join(" ") };
      if (choice.seeds === "all") {
        for (const seed of run.seeds) {
          this.svg.append(curve(xs, seed.map(this.y), { ...line, "stroke-width": 1, opacity: 0.7 }));
        }
        continue;
      }
      const up = run.mean.map((mean, i) => this.y(mean + run.wide[i]));
      const down = run.mean.map((mean, i) => this.y(mean - run.wide[i]));
      const band = path(xs, up) + path([...xs].reverse(), down.reverse()).replace("M", "L") + "Z";
      const edge = xs.length > 1 ? {} : { stroke: colour, "stroke-width": 6 }; // of what has no width
      this.svg.append(
        element("path", { d: band, fill: colour, opacity: 0.16, ...edge }),
        curve(xs, run.mean.map(this.y), { ...line, "stroke-width": 2 }));
    }
    this.cursor = element("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.svg.append(this.cursor);
    this.point(null);
  }

  point(index, aloud = false) {
    this.at = index;
    this.tip.hidden = index === null;
    this.cursor.setAttribute("visibility", index === null ? "hidden" : "visible");
    if (index === null) return;
    const step = this.steps[index], x = this.x(step);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    const where = `${(Number.isInteger(step) ? whole : tenth).format(step)} ${this.stepUnit}`;
    const lines = [element("b", {}, where)], spoken = [`${this.place}, ${where}`];
    for (const run of this.drawn) {
      const i = run.steps.findLastIndex((one) => one <= step);
      if (i < 0 || step > run.steps.at(-1)) continue;
      const text = this.choice.seeds === "all"
        ? run.seeds.map((seed) => words(seed[i])).join(" · ")
        : words(run.mean[i]) + (run.seeds.length > 1 ? ` ± ${words(run.wide[i])}` : "");
      const mark = element("span", {}, "■ ");
      mark.style.color = ink(run.colour);
      const line = element("div", {}, mark, `${run.row} ${text}`);
      lines.push(line);
      spoken.push(`${run.row} ${text}`);
    }
    this.tip.replaceChildren(...lines);
    const width = this.svg.clientWidth || WIDTH, here = x / WIDTH * width;
    this.tip.style.whiteSpace = this.tip.scrollWidth > width ? "normal" : "";
    this.tip.style.top = "2.2rem";
    this.tip.style.left = here < width / 2 ? `${here + 10}px` : "auto";
    this.tip.style.right = here < width / 2 ? "auto" : `${width - here + 10}px`;
    if (aloud) announcement.textContent = spoken.join("; ");
  }
}

function choose(name, kind, value, label, checked, mark) {
  const box = element("input", { type: kind, name, value });
  box.checked = checked;
  return element("label", {}, box, ...(mark ? [mark] : []), label);
}

function sample(run) {
  const svg = element("svg", { viewBox: "0 0 30 8", "aria-hidden": "true" });
  svg.style.width = "30px";
  const dashes = run.dashes.map((dash) => 1.6 * dash).join(" ");
  svg.append(element("path", { d: "M0 4L30 4", stroke: ink(run.colour), "stroke-width": 2, "stroke-dasharray": dashes }));
  return svg;
}

// What a study's controls govern: its learning curves, and what else there is of the same runs.
const CHARTS = {
  "": (study) => study.curves,
  "Learning curves over minutes": (study) => study.curves.filter((run) => study.timed && run.minutes_per_step).map((run) =>
    ({ ...run, step_unit: "minutes, all seeds together", steps: run.steps.map((step) => step * run.minutes_per_step) })),
  "Value estimates": (study) => study.estimates,
  "Drops": (study) => study.drops,
};

function charts(study) {
  const host = document.querySelector(`[data-curves="${CSS.escape(study.name)}"]`);
  if (!host) return;
  const rows = [...new Set(study.curves.map((run) => run.row))];
  const most = 8, choice = { rows: new Set(rows.slice(0, most)), seeds: "mean", window: study.window };
  const agents = element("fieldset", { class: "agents" }, element("legend", {}, "Rows"));
  const list = element("div", { class: "rows" });
  for (const row of rows) {
    const run = study.curves.find((one) => one.row === row);
    list.append(choose(`${study.name}-row`, "checkbox", row, row, choice.rows.has(row), sample(run)));
  }
  const every = element("button", { type: "button" }, "all"), none = element("button", { type: "button" }, "none");
  agents.append(list, every, " ", none);
  const seeds = element("fieldset", {}, element("legend", {}, "Seeds"),
    choose(`${study.name}-seeds`, "radio", "mean", "mean ± interval", true),
    choose(`${study.name}-seeds`, "radio", "all", "every seed", false));
  const sizes = [...new Set([1, 5, 10, 20, study.window])].sort((a, b) => a - b);
  const windows = element("select", {}, ...sizes.map((size) =>
    element("option", { value: size, ...(size === study.window ? { selected: "" } : {}) },
      size === 1 ? "none" : `${size} evaluations`)));
  const smoothing = element("fieldset", {}, element("legend", {}, "Smoothing"),
    element("label", {}, element("span", { class: "unseen" }, "Smoothing of the curves, "), windows));
  host.replaceChildren(element("div", { class: "controls" }, agents, seeds, smoothing));
  const panels = Object.entries(CHARTS).flatMap(([title, of]) => {
    const runs = of(study), grid = element("div", { class: "panels" });
    if (!runs.length) return [];
    if (title) host.append(element("h3", {}, title));
    host.append(grid);
    return [...new Set(runs.map((run) => run.place))].map((place) => new Panel(runs, place, grid));
  });
  const draw = () => panels.forEach((panel) => panel.draw(choice));
  const boxes = [...list.querySelectorAll("input")];
  const pick = (which) => { boxes.forEach((box) => { box.checked = which; }); choice.rows = new Set(which ? rows : []); draw(); };
  every.addEventListener("click", () => pick(true));
  none.addEventListener("click", () => pick(false));
  list.addEventListener("change", () => {
    choice.rows = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    draw();
  });
  seeds.addEventListener("change", (event) => { choice.seeds = event.target.value; draw(); });
  windows.addEventListener("change", () => { choice.window = Number(windows.value); draw(); });
  draw();
}

// What the bars of a kind of table show: ours above the paper's.
const BARS = {
  losses(records) {
    const step = Math.max(...records.map((record) => record.step));
    const others = new Set(records.filter((r) => r.step === step).map((r) => r.paper_step));
    others.delete(null);
    others.delete(step);
    const suites = new Set(records.filter((r) => r.step === step).map((r) => r.suite));
    const paper = ["paper", ...[...others].map((other) => `${whole.format(other)} steps`)].join(", ");
    return {
      title: `Mean percent loss at ${whole.format(step)} steps`, unit: "%",
      legends: [`here, ${whole.format(step)} steps`, paper],
      groups: records.filter((record) => record.step === step).map((r) =>
        ({ name: suites.size > 1 ? `${r.row}, ${r.suite}` : r.row, here: [r.percent_loss, r.interval], there: [r.paper_percent_loss, r.paper_interval] })),
    };
  },
  speed(records) {
    return {
      title: "Minutes for 1M steps, all seeds together", unit: " min", legends: ["here", "paper, one seed"],
      groups: records.map((r) =>
        ({ name: `${r.row}, ${r.place}`, here: [r.minutes_a_million_steps, null], there: [r.paper_minutes, null] })),
    };
  },
};

const LETTER = 7.2, LINE = 14; // as wide and high as they get, about, in the fonts that systems have

// Lines of at most so many characters, broken between words where that can be.
function wrapped(text, most) {
  return text.match(new RegExp(`\\S.{0,${most - 1}}(?=\\s|$)|\\S{${most}}`, "g")) ?? [];
}

function bars(table) {
  const host = document.querySelector(`[data-bars="${CSS.escape(table.name)}"]`);
  if (!host) return;
  const { title, unit, legends, groups } = BARS[table.kind](table.records);
  const text_ = (value) => `${tenth.format(value)}${unit}`;
  const longest = (texts) => LETTER * Math.max(...texts.map((text) => text.length));
  // As wide as its box, so that letters are not scaled; names have less than half of it.
  const width = host.clientWidth || 620, name = Math.min(16 + longest(groups.map((group) => group.name)), 0.45 * width);
  const names = groups.map((group) => wrapped(group.name, Math.floor((name - 8) / LETTER)));
  const tops = [6];
  names.forEach((lines, i) => tops.push(tops[i] + Math.max(30, LINE * lines.length + 8)));
  const bottom = tops.at(-1), height = bottom + 24 + 2 * LINE;
  const ends = groups.flatMap(({ here, there }) => [here, there].flatMap(([value, wide]) =>
    value === null ? [] : [value - (wide ?? 0), value + (wide ?? 0)]));
  const low = Math.min(0, ...ends), high = Math.max(1, ...ends);
  const x = (value) => name + (value - low) / (high - low) * (width - name - 30);
  const label = groups.map((group) => `${group.name} ${said(group.here[0])}`
    + (group.there[0] === null ? "" : `, paper ${said(group.there[0])}`)).join("; ");
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${label}` });
  for (const value of ticks(low, high, Math.min(5, (width - name) / 90))) {
    svg.append(element("line", { class: "axis", x1: x(value), x2: x(value), y1: 4, y2: bottom }),
      element("text", { x: x(value), y: bottom + 14, "text-anchor": "middle" }, `${short(value)}${unit}`));
  }
  groups.forEach((group, i) => {
    const middle = (tops[i] + tops[i + 1]) / 2, first = middle + 4 - LINE * (names[i].length - 1) / 2;
    svg.append(element("text", { class: "name", "text-anchor": "end" },
      ...names[i].map((text, line) => element("tspan", { x: name - 8, y: first + LINE * line }, text))));
    const above = group.there[0] === null ? 5 : 11; // a bar without the paper's is in the middle
    for (const [[value, wide], y, fill] of [[group.here, middle - above, "var(--here)"], [group.there, middle, "var(--there)"]]) {
      if (value === null) continue;
      svg.append(element("rect", { x: Math.min(x(0), x(value)), y, height: 10, width: Math.abs(x(value) - x(0)), style: `fill:${fill}` },
        element("title", {}, `${group.name}: ${said(value)}${wide === null ? "" : ` ± ${tenth.format(wide)}`}`)));
      if (wide !== null) {
        svg.append(element("line", { x1: x(value - wide), x2: x(value + wide), y1: y + 5, y2: y + 5, style: "stroke:var(--ink)" }));
      }
    }
  });
  const start = Math.max(0, Math.min(name, width - 15 - longest(legends)));
  legends.slice(0, groups.some((group) => group.there[0] !== null) ? 2 : 1).forEach((text, i) => {
    const fill = ["var(--here)", "var(--there)"][i], y = bottom + 22 + LINE * i;
    svg.append(element("rect", { x: start, y, width: 10, height: 10, style: `fill:${fill}` }),
      element("text", { x: start + 15, y: y + 9 }, text));
  });
  host.replaceChildren(svg);
}

function allBars() { data.tables.filter((table) => table.kind in BARS).forEach(bars); }
function all() {
  data.studies.forEach(charts);
  allBars();
}
all();
addEventListener("resize", allBars);
dark.addEventListener("change", all);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
