// All nodes, worst first. Only the rows in sight exist, so that 5,000 of them scroll like 50.
"use strict";

const EVERY = 5000, AHEAD = 8;
const narrow = matchMedia("(max-width: 640px)");
const rowHeight = () => (narrow.matches ? 68 : 26);
const rows = document.getElementById("rows"), room = document.getElementById("room");
const filter = document.getElementById("filter"), live = document.getElementById("live");
const nothing = document.getElementById("nothing"), stale = document.getElementById("stale");
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
  row.setAttribute("role", "listitem");
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
  row.style.top = position * rowHeight() + "px";
  if (link.textContent !== node.name) {
    link.textContent = node.name;
    link.href = "/node/" + encodeURIComponent(node.name);
  }
  bucket.textContent = node.bucket;
  level.textContent = node.level === undefined || node.level === null ? "–" : node.level.toFixed(2);
  const whose = (node.suspect ? ` by ${node.suspect}` : "") + (node.victim ? `, hurts ${node.victim}` : "");
  why.textContent = [...(node.hard || []), ...(node.triggered || [])].map((name) => titles[name] || name).join(", ") + whose;
  why.title = why.textContent;
  paint(canvas, node.heat);
}

function draw() {
  const height = rowHeight();
  room.style.height = matching.length * height + "px";
  nothing.hidden = matching.length > 0;
  nothing.textContent = nodes.length ? "No node has that in its name." : "No node has been heard of yet.";
  const first = Math.max(0, Math.floor(rows.scrollTop / height) - AHEAD);
  const last = Math.min(matching.length, Math.ceil((rows.scrollTop + rows.clientHeight) / height) + AHEAD);
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
    live.dataset.time = fleet.time.slice(11, 19) + " UTC";
    document.getElementById("count").textContent = `${nodes.length} nodes`;
    document.body.classList.remove("stale");
    stale.textContent = stale.className = "";
    choose();
  } catch (error) {
    live.textContent = "no answer from the analyzer";
    live.className = "live off";
    if (!stale.textContent) {
      document.body.classList.add("stale");
      stale.textContent = `No answer from the analyzer since ${live.dataset.time}: what is below may no longer hold.`;
      stale.className = "notice bad";
    }
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
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  for (const row of shown.values()) delete row.lastChild.dataset.heat;
  draw();
});
readColours();
refresh();
