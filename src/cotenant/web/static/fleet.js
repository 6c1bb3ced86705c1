// All nodes, worst first. Only the rows in sight exist, so that 5,000 of them scroll like 50.
"use strict";

const ROW = 26, EVERY = 5000, AHEAD = 8;
const rows = document.getElementById("rows"), room = document.getElementById("room");
const filter = document.getElementById("filter"), live = document.getElementById("live");
const shown = new Map();
const titles = JSON.parse(rows.dataset.titles);
let nodes = [], matching = [], colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const letter of "012345u") colours[letter] = style.getPropertyValue("--h" + letter);
  colours["."] = style.getPropertyValue("--hx");
}

function paint(canvas, heat) {
  if (canvas.dataset.heat === heat) return;
  canvas.dataset.heat = heat;
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, canvas.width, canvas.height);
  for (let slot = 0; slot < heat.length; slot++) {
    pen.fillStyle = colours[heat[slot]];
    pen.fillRect(slot * 6, 0, 5, 16);
  }
}

function make() {
  const row = document.createElement("div");
  row.className = "row";
  const link = document.createElement("a"), bucket = document.createElement("span");
  const level = document.createElement("span"), why = document.createElement("span");
  const canvas = document.createElement("canvas");
  why.className = "why";
  canvas.width = 360;
  canvas.height = 16;
  row.append(link, bucket, level, why, canvas);
  return row;
}

function fill(row, node, position) {
  const [link, bucket, level, why, canvas] = row.children;
  row.style.top = position * ROW + "px";
  if (link.textContent !== node.name) {
    link.textContent = node.name;
    link.href = "/node/" + encodeURIComponent(node.name);
  }
  bucket.textContent = node.bucket;
  level.textContent = node.level === undefined || node.level === null ? "–" : node.level.toFixed(2);
  why.textContent = [...(node.hard || []), ...(node.triggered || [])].map((name) => titles[name] || name).join(", ");
  paint(canvas, node.heat);
}

function draw() {
  room.style.height = matching.length * ROW + "px";
  const first = Math.max(0, Math.floor(rows.scrollTop / ROW) - AHEAD);
  const last = Math.min(matching.length, Math.ceil((rows.scrollTop + rows.clientHeight) / ROW) + AHEAD);
  const spare = [];
  for (const [position, row] of shown) {
    if (position < first || position >= last) {
      shown.delete(position);
      spare.push(row);
    }
  }
  for (let position = first; position < last; position++) {
    let row = shown.get(position);
    if (!row) {
      row = spare.pop();
      if (!row) {
        row = make();
        room.append(row);
      }
      shown.set(position, row);
    }
    fill(row, matching[position], position);
  }
  for (const row of spare) row.remove();
}

function choose() {
  const word = filter.value.trim().toLowerCase();
  matching = word ? nodes.filter((node) => node.name.toLowerCase().includes(word)) : nodes;
  draw();
}

async function refresh() {
  try {
    const answer = await fetch("/api/v1/fleet", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    const fleet = await answer.json();
    nodes = fleet.nodes;
    const headline = document.getElementById("headline");
    if (headline.textContent !== fleet.headline) {
      headline.textContent = fleet.headline;
      document.getElementById("announcement").textContent = fleet.headline;
    }
    document.getElementById("detail").textContent = fleet.detail;
    for (const [name, html] of Object.entries(fleet.parts)) {
      const part = document.getElementById("part-" + name);
      if (part && part.dataset.html !== html) {
        part.dataset.html = html;
        part.innerHTML = html;
      }
    }
    document.getElementById("hero").className = "hero " + fleet.state;
    live.textContent = "as of " + fleet.time.slice(11, 19) + " UTC";
    live.className = "live on";
    choose();
  } catch (error) {
    live.textContent = "no answer from the analyzer";
    live.className = "live off";
  }
  setTimeout(refresh, EVERY);
}

let waiting = false;
rows.addEventListener("scroll", () => {
  if (!waiting) {
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }
});
addEventListener("resize", draw);
filter.addEventListener("input", choose);
readColours();
refresh();
