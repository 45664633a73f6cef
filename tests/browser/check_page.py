"""The report's page in a real browser: `make test-browser`. Not collected by `make test`."""

import csv
import json
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from fake_runs import write_run  # beside the other tests, found by the line above
from td7.reports.report import read_report
from td7.reports.write import write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
BEFORE = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
console.error = (...words) => errors.push(words.join(" "));
</script>"""
# What a person would do, and what the page then shows.
AFTER = """<script>
{
const outcome = {};
const host = document.querySelector('[data-curves="online"]');
// The panels of a study by the title above them.
const grids = (name) => {
  const found = {};
  for (const grid of document.querySelectorAll(`[data-curves="${name}"] .panels`)) {
    const title = grid.closest(".charts").querySelector("h3").textContent;
    found[title] = [...grid.querySelectorAll(".panel")];
  }
  return found;
};
const read = (panel, key) => {
  panel.querySelector("svg").dispatchEvent(new KeyboardEvent("keydown", { key }));
  return said();
};
const panel = () => host.querySelector(".panel svg");
const lines = () => panel().querySelectorAll("path").length;
const press = (key) => panel().dispatchEvent(new KeyboardEvent("keydown", { key }));
const change = (input) => input.dispatchEvent(new Event("change", { bubbles: true }));
const said = () => document.getElementById("announcement").textContent;
try {
  outcome.panels = Object.entries(grids("online")).map(([title, own]) => [title, own.length]);
  outcome.mean = lines();
  const all = host.querySelector('input[value="all"]');
  all.checked = true; change(all);
  outcome.all = lines();
  const mean = host.querySelector('input[value="mean"]');
  mean.checked = true; change(mean);
  const window_ = host.querySelector("select");
  outcome.window = window_.value;
  window_.value = "10"; change(window_);
  press("End"); outcome.smoothed = said();
  window_.value = "1"; change(window_);
  press("End"); outcome.last = said();
  press("ArrowLeft"); outcome.before = said();
  outcome.tip = host.querySelector(".tip").textContent;
  press("Escape"); outcome.hidden = host.querySelector(".tip").hidden;
  const box = host.querySelector('input[value="TD3"]');
  box.checked = false; change(box);
  outcome.without = lines();
  outcome.label = panel().getAttribute("aria-label");
  const [every, none] = host.querySelectorAll("button");
  none.click(); outcome.none = lines();
  every.click(); outcome.every = lines();
  const other = grids("extrapolation")["Value estimates"][0];
  outcome.estimate = read(other, "End");
  const each = document.querySelector('[data-curves="extrapolation"] input[value="all"]');
  each.checked = true; change(each);
  outcome.estimates = read(other, "End");
  outcome.minutes = read(grids("runtime")["Learning curves over minutes"][0], "End");
  const ends = (panel) => {
    const found = [...panel.querySelectorAll('text[text-anchor="end"]')].map(
      (one) => Number(one.textContent));
    return [Math.min(...found), Math.max(...found)];
  };
  const drops = grids("checkpoints")["Drops"];
  outcome.drops = read(drops[0], "Home");
  outcome.ends = drops.map(ends);
  // A single evaluation: a mark for the mean, and for each of two seeds.
  const once = document.querySelector('[data-curves="design"]');
  const dots = () => once.querySelectorAll(".panel circle").length;
  outcome.dots = [dots()];
  const apart = once.querySelector('input[value="all"]');
  apart.checked = true; change(apart);
  outcome.dots.push(dots());
  const losses = document.querySelector('[data-bars="ablation-losses"] svg');
  outcome.losses = losses.getAttribute("aria-label");
  outcome.bars = document.querySelectorAll('[data-bars="ablation-losses"] rect').length;
  const speed = document.querySelector('[data-bars="runtime-speed"] svg');
  outcome.speed = speed.getAttribute("aria-label");
  // Letters are as large as the style says, and every name is within its picture.
  outcome.scales = [...document.querySelectorAll("[data-bars] svg")].map(
    (one) => one.getBoundingClientRect().width / one.viewBox.baseVal.width);
  outcome.outside = [...document.querySelectorAll("[data-bars] text")].filter((one) => {
    const box = one.getBBox(), { width, height } = one.ownerSVGElement.viewBox.baseVal;
    return box.x < 0 || box.y < 0 || box.x + box.width > width || box.y + box.height > height;
  }).map((one) => one.textContent);
  outcome.names = [...document.querySelectorAll('[data-bars="runtime-speed"] .name')].map(
    (one) => [...one.children].map((line) => line.textContent));
  const times = document.getElementById("table-runtime-speed"), box_ = times.parentElement;
  outcome.times = times.offsetWidth - box_.clientWidth;
  box_.scrollLeft = 9999;
  outcome.reached = times.getBoundingClientRect().right <= box_.getBoundingClientRect().right + 1;
  outcome.images = [...document.querySelectorAll(".videos img")].map((one) => one.naturalWidth);
  outcome.wide = document.documentElement.scrollWidth <= innerWidth;
  outcome.first = document.querySelector("main table").id;
  // The first column of a table that is too wide stays, and covers the others.
  const wide = [...document.querySelectorAll(".scroll")].filter(
    (one) => one.scrollWidth > one.clientWidth);
  outcome.scrolling = wide.length;
  outcome.columns = wide.map((one) => {
    const name = one.querySelector("tbody th"), left = () => name.getBoundingClientRect().left;
    one.scrollLeft = 0;
    const before = left(), background = getComputedStyle(name).backgroundColor;
    one.scrollLeft = 40;
    const stays = left() === before && name.offsetWidth < 0.6 * innerWidth;
    return stays && background.startsWith("rgb(");
  });
  const navigation = document.querySelector("nav");
  outcome.navigation = [0, 1500].map((y) => {
    scrollTo({ top: y, behavior: "instant" });
    return navigation.getBoundingClientRect().top;
  });
  scrollTo({ top: 0, behavior: "instant" });
  const charts = [...document.querySelectorAll(".charts")];
  const svgs = [...document.querySelectorAll(".panel svg")];
  outcome.titles = svgs.map((one) => [...one.querySelectorAll(".title")].map(
    (title) => title.textContent).filter(Boolean).length);
  outcome.near = charts.map((one) => one.querySelector(".panels").getBoundingClientRect().top
    - one.querySelector(".legend").getBoundingClientRect().bottom);
  outcome.legends = charts.map((one) => one.querySelectorAll(".legend li").length);
  // Of eight rows: the lines, their colours, and the rows that cannot be chosen.
  const many = document.querySelector('[data-curves="many"]');
  const boxes = [...many.querySelectorAll(".rows input")];
  const count = () => {
    const lines = [...many.querySelectorAll(".panel path[fill=none]")];
    const inks = new Set(lines.map((one) => one.getAttribute("stroke")));
    return [lines.length, inks.size, boxes.filter((one) => one.disabled).length];
  };
  outcome.many = [count()];
  for (const number of [0, 7]) { boxes[number].click(); }
  outcome.many.push(count());
  many.querySelectorAll("button")[2].click(); // the next six, from the first one again
  outcome.next = [count(), boxes.map((one) => one.checked).lastIndexOf(true)];
  // A run that is five times as long, cut and whole.
  const longer = document.querySelector('[data-curves="lengths"]');
  const drawnTo = () => {
    const svg = longer.querySelector(".panel svg"), note = longer.querySelector(".panel p");
    svg.dispatchEvent(new KeyboardEvent("keydown", { key: "End" }));
    return [said(), note.hidden ? null : note.textContent, svg.getAttribute("aria-label")];
  };
  outcome.cut = [drawnTo()];
  const whole_ = longer.querySelector('input[value="all"][name="lengths-lengths"]');
  whole_.checked = true; change(whole_);
  outcome.cut.push(drawnTo());
  outcome.lengthControls = document.querySelectorAll('input[value="cut"]').length;
  outcome.level = [...document.querySelectorAll('[data-curves="titles"] .panel svg')].map(
    (one) => one.getBoundingClientRect().top);
  outcome.paper = getComputedStyle(document.body).backgroundColor;
  outcome.ink = getComputedStyle(document.body).color;
  outcome.unnamed = [...document.querySelectorAll("input, select, button")].filter(
    (one) => !(one.closest("label") || one).textContent.trim()).length;
} catch (error) { errors.push(String(error)); }
const film = document.querySelector("video");
const tell = () => {
  outcome.video = [film.videoWidth, film.videoHeight, film.duration];
  const pre = document.createElement("pre");
  pre.id = "outcome";
  pre.textContent = JSON.stringify({ ...outcome, errors });
  document.body.append(pre);
};
if (film.readyState) tell();
else for (const kind of ["loadedmetadata", "error"]) film.addEventListener(kind, tell);
}
</script>"""

LONG = "TD7, batch_size=16, random_steps=300, hidden_dim=8, exploration_noise=0.3, target_noise=0.4"
DARK = ("--blink-settings=preferredColorScheme=0",)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    for label, mean in (("TD3", 4000), ("TD7", 8000)):
        for env in ("Ant-v4", "Hopper-v4"):
            returns = {0: [0.0, mean / 2, mean - 100], 1: [0.0, mean / 2, mean + 100]}
            where = folder / "runs" / f"{label}-{env}"
            algorithm = label.lower()
            write_run(where, returns, variant=f"online/{label}", algorithm=algorithm, env=env)
            where = folder / "runs" / f"ablation-{label}-{env}"
            write_run(where, returns, variant=f"ablation/{label}", algorithm=algorithm, env=env)
        where = folder / "runs" / f"ablation-{label}-v5"
        write_run(where, returns, variant=f"ablation/{label}", algorithm=algorithm, env="Ant-v5")
    for file in ("policy.mp4", "policy.gif"):  # ten frames, half a second
        frames = np.linspace(0, 255, 10 * 48 * 64 * 3).reshape(10, 48, 64, 3).astype(np.uint8)
        options: dict[str, Any] = {"duration": 50}
        if file.endswith("mp4"):
            options = {"fps": 20, "macro_block_size": 1}
        imageio.mimwrite(folder / "runs" / "TD7-Ant-v4" / file, list(frames), **options)
    write_run(
        folder / "runs" / "extrapolation",
        {0: [0.0, 1.0, 2.0], 1: [0.0, 1.0, 2.0]},
        variant="extrapolation/No clipping, 1M",
        values={0: [0, 400, 900], 1: [0, 400, 1100]},
    )
    write_run(  # 300 s of 50,000 steps: 100 minutes for the 1M of the run
        folder / "runs" / "runtime",
        {0: [0.0, 1.0, 2.0]},
        variant="runtime/TD7",
        env="HalfCheetah-v4",
        learned=(300, 50_000),
    )
    write_run(
        folder / "runs" / "long",
        {0: [0.0, 1.0, 2.0]},
        variant=f"runtime/{LONG}",
        env="HalfCheetah-v4",
    )
    once = {0: [1.0], 1: [2.0]}
    write_run(folder / "runs" / "once", once, variant="design/zs'a'", steps=1_000_000)
    for number in range(8):  # as many rows as there are colours
        where = folder / "runs" / f"many-{number}"
        write_run(where, {0: [1.0, 2.0, number]}, variant=f"many/row {number}")
    for name, evaluations in (("long", 6), ("short", 2)):
        where, climbing = (
            folder / "runs" / f"length-{name}",
            [100.0 * i for i in range(evaluations)],
        )
        write_run(where, {0: climbing}, variant=f"lengths/row {name}", every=1_000_000)
    for env in ("Ant-v4", "ATaskWhoseNameNeedsAnotherLineInATitle-v0"):
        write_run(folder / "runs" / env, {0: [1.0, 2.0]}, variant="titles/row", env=env)
    late = [100.0, 40.0, 100.0, 100.0]  # one of three is followed by a lower one
    write_run(
        folder / "runs" / "checkpoints",
        {0: [100.0] * 17 + late},
        variant="checkpoints/TD7",
        env="Hopper-v4",
        every=250_000,
    )
    write_run(  # never a lower one
        folder / "runs" / "steady",
        {0: [100.0] * 21},
        variant="checkpoints/TD7",
        env="Ant-v4",
        every=250_000,
    )
    write(read_report([folder / "runs"]), folder / "out", with_figures=False)
    return folder / "out"


def opened(page: Path, *flags: str, width: int = 1200) -> dict[str, Any]:
    """What the page shows after the clicks above."""
    text = page.read_text().replace("<head>", f"<head>{BEFORE}", 1)
    instrumented = page.with_name(f"instrumented-{width}.html")
    instrumented.write_text(text.replace("</body>", f"{AFTER}</body>", 1))
    size = f"--window-size={width},900"
    words = [str(CHROMIUM), *FLAGS, *flags, size, "--virtual-time-budget=2000", "--dump-dom"]
    done = subprocess.run(
        [*words, instrumented.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r'<pre id="outcome">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stdout[-2000:]
    outcome: dict[str, Any] = json.loads(unescape(found[1]))
    return outcome


@pytest.mark.parametrize("width", [1200, 500, 390])
@pytest.mark.parametrize("flags", [(), DARK])
def test_the_page_works(written: Path, width: int, flags: tuple[str, ...]) -> None:
    outcome = opened(written / "report.html", *flags, width=width)
    assert outcome["errors"] == []
    assert outcome["panels"] == [["Learning curves", 2], ["Learning curves over minutes", 2]]
    assert outcome["mean"] == 4  # a band and a line, two agents
    assert outcome["all"] == 4  # two seeds, two agents
    assert (outcome["without"], outcome["none"], outcome["every"]) == (2, 0, 4)
    assert outcome["hidden"] is True
    assert outcome["video"] == [64, 48, 0.5]
    assert outcome["images"] == [64]
    assert outcome["bars"] == 3  # ours of v4 and v5, and the paper's
    assert re.findall(r"TD3, .. [\d.]+%", outcome["losses"]) == ["TD3, v4 50.0%", "TD3, v5 50.0%"]
    assert outcome["wide"] is True  # nothing but tables is wider than the window
    assert outcome["ends"] == [[0, 100]] * 2  # also where all are 0
    assert outcome["dots"] == [1, 2]
    assert outcome["scales"] == pytest.approx([1] * len(outcome["scales"]))
    assert outcome["outside"] == []
    names = [" ".join(lines) for lines in outcome["names"]]
    assert names == ["TD7", LONG]  # without the task, which is the same
    assert outcome["reached"] is True
    assert outcome["times"] <= 0 or width < 1200  # all columns are to be seen at once
    assert outcome["unnamed"] == 0
    assert outcome["first"] == "table-online-headline"
    assert outcome["scrolling"] > 0 or width == 1200
    assert all(outcome["columns"])
    begin, scrolled = outcome["navigation"]
    assert begin > scrolled == 0
    assert set(outcome["titles"]) == {2}  # of both axes
    assert 0 not in outcome["legends"]
    assert all(0 <= distance < 20 for distance in outcome["near"])  # right above the panels
    assert outcome["many"] == [[6, 6, 2]] * 2
    assert outcome["next"] == [[6, 6, 2], 5]
    (shown, note, label), (whole, no_note, _) = outcome["cut"]
    assert (note, no_note) == ("Continued to 5,000,000: row long.", None)
    assert note in label
    assert (shown, whole) == (
        "Ant-v4, 2,000,000 time steps; row long 200.0",
        "Ant-v4, 5,000,000 time steps; row long 500.0",
    )
    assert outcome["lengthControls"] == 1  # only where a row is longer
    if width == 1200:  # side by side, below titles of one line and of two
        assert len(set(outcome["level"])) == 1
    dark = ("rgb(21, 23, 27)", "rgb(231, 233, 236)")
    light = ("rgb(255, 255, 255)", "rgb(27, 29, 33)")
    assert (outcome["paper"], outcome["ink"]) == (dark if flags else light)
    assert "TD7 8,000" in outcome["label"]
    assert "TD3" not in outcome["label"]


def test_numbers_are_those_of_the_csv(written: Path) -> None:
    outcome = opened(written / "report.html")
    with (written / "tables" / "online-scores.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["place"] == "Hopper-v4"]
    said = [f"{r['row']} {float(r['mean']):,.0f} ± {float(r['interval']):.1f}" for r in rows]
    assert said == ["TD3 4,000 ± 196.0", "TD7 8,000 ± 196.0"]
    assert outcome["last"] == "; ".join(["Hopper-v4, 1,000,000 time steps", *said])
    assert outcome["before"] == "Hopper-v4, 500,000 time steps; TD3 2,000 ± 0; TD7 4,000 ± 0"
    assert outcome["tip"] == "500,000 time steps■ TD3 2,000 ± 0■ TD7 4,000 ± 0"
    assert outcome["minutes"].endswith(", 100 minutes, all seeds together; TD7 2.00")
    first = "Minutes for 1M steps, all seeds together: TD7 100.0, paper 110.0; "
    assert first in outcome["speed"]
    assert outcome["estimate"].endswith("1,000,000 time steps; No clipping, 1M 1,000 ± 196.0")
    assert outcome["estimates"].endswith("No clipping, 1M 900.0 · 1,100")
    assert outcome["drops"] == "Hopper-v4, within 1 evaluation, 0 % lower or more; TD7 33.3"
    assert outcome["window"] == "1"  # too few evaluations to smooth
    # Over all three: 0, 2000 and 3900 or 4100 of TD3, whose means are 1967 and 2033.
    assert outcome["smoothed"].startswith("Hopper-v4, 1,000,000 time steps; TD3 2,000 ± 65.3")
