// The page's behaviour: live updates, charts, sorting. The server renders every part; this file never makes text of its own
// except for numbers in chart legends.
"use strict";

(() => {
  const seed = document.getElementById("seed").dataset;
  const lines = JSON.parse(seed.lines);
  const thresholds = JSON.parse(seed.thresholds);
  const byId = (id) => document.getElementById(id);
  const live = byId("live");
  const stale = byId("stale");
  let incidents = [];
  let span = 900;
  let step = 1;
  let latest = 0;
  let hovered = null;
  let lastTick = performance.now();

  // ---- charts -------------------------------------------------------------------------------------------------
  const spansOf = () => incidents;
  const panels = [...document.querySelectorAll("[data-panel]")].map((figure) => {
    const names = figure.dataset.names.split(" ");
    const keys = new Map([...figure.querySelectorAll(".key")].map((key) => [key.dataset.name, key]));
    const chart = new Chart.LineChart({
      element: figure.querySelector(".chart"), names, unit: lines[names[0]].unit, thresholds, incidents: spansOf,
      onHover: (row) => hover(row),
    });
    return { figure, names, keys, chart, known: !figure.hidden };
  });
  const day = new Chart.LineChart({
    element: byId("day"), names: ["level"], unit: "number", thresholds: {}, incidents: spansOf, onHover: null,
  });
  day.range = () => [0, 1.05];
  let dayRows = [];

  // The whole range, or, while there is less history than that, what there is of it (two minutes at least).
  function windowOf(seconds, rows) {
    const from = latest - seconds * 1000;
    const first = rows.length ? rows[0][0].getTime() : from;
    return [Math.max(from, Math.min(first, latest - 120000)), latest];
  }

  // A day; while the history is younger than that, what there is of it (an hour at least), and since when.
  function dayWindow() {
    const first = day.rows.length ? day.rows[0][0].getTime() : latest;
    const young = latest - first < 23 * 3600000;
    byId("day-since").textContent = young ? `; the history begins at ${new Date(first).toISOString().slice(11, 16)} UTC` : "";
    return [Math.max(latest - 86400000, Math.min(first, latest - 3600000)), latest];
  }

  function legend(panel, row) {
    const values = row === null ? panel.chart.rows[panel.chart.rows.length - 1] : panel.chart.rows[row];
    if (!values) return;
    panel.names.forEach((name, index) => {
      const key = panel.keys.get(name);
      const value = values[index + 1];
      if (value !== null && key.hidden) key.hidden = false;
      key.querySelector("b").textContent = Chart.text(lines[name].unit, value);
    });
  }

  let hovering = false;
  function hover(row) {
    if (hovering) return;
    hovering = true;
    hovered = row;
    for (const panel of panels) {
      panel.chart.select(row);
      legend(panel, row);
    }
    hovering = false;
  }

  function show(panel) {
    const any = panel.chart.rows.some((row) => row.slice(1).some((value) => value !== null));
    panel.figure.hidden = !any;
  }

  function draw() {
    if (document.hidden) return;
    for (const panel of panels) {
      if (panel.figure.hidden) continue;
      panel.chart.draw(windowOf(span, panel.chart.rows));
      legend(panel, hovered);
    }
    day.draw(dayWindow());
  }

  function rowsOf(series, names) {
    const columns = names.map((name) => series.names.indexOf(name) + 1);
    const rows = [];
    let before = null;
    for (const point of series.points) {
      // A stretch without samples is a gap, not a line across it.
      if (before !== null && point[0] - before > series.step_s * 3500) rows.push([new Date(before + 1), ...names.map(() => null)]);
      rows.push([new Date(point[0]), ...columns.map((column) => (column ? point[column] : null))]);
      before = point[0];
    }
    return rows;
  }

  async function load(seconds) {
    const answer = await fetch(`/api/v1/history?seconds=${seconds}`);
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  }

  let loads = 0;
  async function loadCharts() {
    const mine = ++loads;
    let series;
    try { series = await load(span); } catch { series = { step_s: 1, names: [], points: [] }; }
    if (mine !== loads) return;
    step = series.step_s;
    if (series.points.length) latest = Math.max(latest, series.points[series.points.length - 1][0]);
    for (const panel of panels) {
      panel.chart.setRows(rowsOf(series, panel.names));
      if (panel.chart.rows.length) show(panel);
    }
    draw();
  }

  async function loadDay() {
    try {
      const series = await load(86400);
      dayRows = rowsOf(series, ["level"]);
    } catch { dayRows = []; }
    day.setRows(dayRows);
    draw();
  }

  function append(chart, time, values, seconds, every) {
    const rows = chart.rows;
    const last = rows.length ? rows[rows.length - 1][0].getTime() : 0;
    if (time <= last || time - last < every * 1000 * 0.7) return;
    if (last && time - last > every * 3500) rows.push([new Date(last + 1), ...chart.names.map(() => null)]);
    rows.push([new Date(time), ...chart.names.map((name) => (name in values ? values[name] : null))]);
    while (rows.length && rows[0][0].getTime() < time - seconds * 1000 * 1.05) rows.shift();
  }

  // ---- live ---------------------------------------------------------------------------------------------------
  function patch(html) {
    for (const [name, text] of Object.entries(html)) {
      const part = byId(`part-${name}`);
      if (!part) continue;
      const open = new Set([...part.querySelectorAll("details[open]")].map((item) => item.dataset.id));
      const active = part.contains(document.activeElement) ? document.activeElement : null;
      const focused = active?.closest("[data-id]")?.dataset.id;
      const link = active?.getAttribute("href");
      part.innerHTML = text;
      for (const item of part.querySelectorAll("details")) {
        if (open.has(item.dataset.id)) item.open = true;
        if (focused && item.dataset.id === focused) item.querySelector("summary").focus();
      }
      if (link) part.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus({ preventScroll: true });
      if (name === "groups") sortRows();
      if (name === "now") announce(part.querySelector("h1").textContent);
    }
  }

  let announced = document.querySelector("#part-now h1").textContent;
  function announce(headline) {
    if (headline === announced) return;
    announced = headline;
    byId("announcement").textContent = headline;
  }

  function tick(event) {
    const data = JSON.parse(event.data);
    lastTick = performance.now();
    latest = data.time_ms;
    incidents = data.incidents;
    for (const name of Object.keys(thresholds)) delete thresholds[name];
    Object.assign(thresholds, data.thresholds);
    patch(data.html);
    for (const panel of panels) {
      append(panel.chart, data.time_ms, data.values, span, step);
      if (panel.figure.hidden && panel.names.some((name) => name in data.values)) panel.figure.hidden = false;
    }
    append(day, data.time_ms, data.values, 86400, dayRows.length ? 60 : 1);
    draw();
    live.dataset.time = `${new Date(data.time_ms).toISOString().slice(11, 19)} UTC`;
    live.textContent = `live · ${live.dataset.time}`;
    live.className = "live on";
    document.body.classList.remove("stale");
    stale.textContent = stale.className = "";
  }

  function watch() {
    if (stale.textContent || performance.now() - lastTick < Math.max(6, 3 * live.dataset.period) * 1000) return;
    live.textContent = "no new sample";
    live.className = "live off";
    document.body.classList.add("stale");
    stale.textContent = `No new sample since ${live.dataset.time}: what is below may no longer hold.`;
    stale.className = "notice bad";
  }

  // ---- table --------------------------------------------------------------------------------------------------
  const sorting = { key: "cpu", down: true };
  function sortRows() {
    const body = byId("part-groups");
    const wanted = byId("filter").value.toLowerCase();
    const rows = [...body.querySelectorAll("tr[data-name]")];
    const text = sorting.key === "name" || sorting.key === "class";
    rows.sort((a, b) => {
      const [x, y] = [a.dataset[sorting.key], b.dataset[sorting.key]];
      const order = text ? x.localeCompare(y) : Number(x) - Number(y);
      return sorting.down ? -order : order;
    });
    const rest = body.querySelector("tr.rest");
    for (const row of rows) {
      row.hidden = wanted !== "" && !row.dataset.name.toLowerCase().includes(wanted);
      body.insertBefore(row, rest);
    }
  }

  for (const button of document.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => {
      const key = button.dataset.sort;
      sorting.down = sorting.key === key ? !sorting.down : key !== "name" && key !== "class";
      sorting.key = key;
      for (const head of document.querySelectorAll("th[aria-sort]")) head.removeAttribute("aria-sort");
      button.closest("th").setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
      sortRows();
    });
  }
  byId("filter").addEventListener("input", sortRows);

  // ---- ranges, colours, rules ---------------------------------------------------------------------------------
  for (const button of document.querySelectorAll("[data-seconds]")) {
    button.addEventListener("click", () => {
      for (const other of document.querySelectorAll("[data-seconds]")) other.removeAttribute("aria-pressed");
      button.setAttribute("aria-pressed", "true");
      span = Number(button.dataset.seconds);
      loadCharts();
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const panel of panels) panel.chart.recolour();
    day.recolour();
    draw();
  });
  document.addEventListener("visibilitychange", draw);

  // A form with a token, a button and an answer; what is done needs a session, which the token opens.
  function change(form, token, path, said) {
    byId(form)?.addEventListener("submit", async (event) => {
      event.preventDefault();
      const output = byId(`${form}-answer`);
      const headers = { Authorization: `Bearer ${byId(token).value.trim()}` };
      const session = await fetch("/api/v1/session", { method: "POST", headers });
      byId(token).value = "";
      if (!session.ok) { output.textContent = (await session.json()).error; return; }
      const answer = await fetch(path, { method: "POST", body: "{}" });
      const result = await answer.json();
      output.textContent = answer.ok ? said(result) : result.error;
    });
  }
  change("rollback", "token", "/api/v1/rules/rollback", (result) => `revision ${result.revision} is in force`);
  change("restore", "restore-token", "/api/v1/restore", (result) =>
    [`${result.restored} files put back`, ...result.left.map((text) => `left: ${text}`)].join("; "));

  // ---- start --------------------------------------------------------------------------------------------------
  sortRows();
  Promise.all([loadCharts(), loadDay()]).then(() => {
    new EventSource("/api/v1/stream").addEventListener("tick", tick);
    setInterval(watch, 2000);
  });
})();
