"use strict";
// Draws what the page holds as data: stages, passes, layouts, accesses. One state: kernel, target, line.

const $ = (query, root = document) => root.querySelector(query);
const $$ = (query, root = document) => [...root.querySelectorAll(query)];
const state = { kernel: 0, target: 0, line: 0, shown: {}, mode: "", access: "program" };
let data = null;

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

async function unpack() {
  const bytes = Uint8Array.from(atob($("#data").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Buttons of which one is chosen; arrow keys go from one to the next. */
function choice(box, names, chosen, pick) {
  box.replaceChildren();
  names.forEach((name, index) => {
    const button = make("button", { type: "button", role: "radio", "aria-checked": String(name === chosen), tabindex: name === chosen ? 0 : -1 }, name);
    button.addEventListener("click", () => { choice(box, names, name, pick); pick(name, index); });
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = (index + step + names.length) % names.length;
      box.children[next].click();
      box.children[next].focus();
    });
    box.append(button);
  });
}

// --- colours -----------------------------------------------------------------------------------------

const dark = () => {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const HUES = [212, 28, 172, 46, 262, 100, 338, 192];

/** The colour of number i of n: neighbours share one of a few quiet hues where there are more numbers than hues. */
function colour(i, n) {
  if (i < 0) return token("--wash");
  const each = Math.max(1, Math.ceil(n / 8)), hue = HUES[Math.floor(i / each) % 8], band = (18 * (i % each)) / each;
  return dark() ? `hsl(${hue} 32% ${32 + band}%)` : `hsl(${hue} 48% ${82 - band}%)`;
}

/** As above, neighbours told apart by their hues: for programs. */
function distinct(i, n) {
  const band = (26 * Math.floor(i / 8)) / Math.max(1, Math.ceil(n / 8));
  return dark() ? `hsl(${HUES[i % 8]} 32% ${32 + band}%)` : `hsl(${HUES[i % 8]} 48% ${80 - band}%)`;
}

/** From few to many. */
function heat(share) {
  return dark() ? `hsl(${30 - 6 * share} ${30 + 40 * share}% ${22 + 42 * share}%)` : `hsl(${36 - 18 * share} ${70 + 5 * share}% ${93 - 48 * share}%)`;
}

// --- grids -------------------------------------------------------------------------------------------

/** A grid of cells on a canvas; `paint(cell)` gives [colour, label], `says(cell)` what the pointer or the arrows are told. */
function grid(canvas, rows, columns, side, paint, says) {
  const scale = devicePixelRatio || 1, gap = side > 7 ? 1 : 0;
  canvas.width = columns * side * scale;
  canvas.height = rows * side * scale;
  canvas.style.width = `${columns * side}px`;
  canvas.dataset.rows = rows;
  canvas.dataset.columns = columns;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.font = `${Math.min(11, side * 0.42)}px ${token("--mono")}`;
  for (let cell = 0; cell < rows * columns; cell++) {
    const x = (cell % columns) * side, y = Math.floor(cell / columns) * side;
    const [fill, label] = paint(cell);
    if (!fill) continue;
    pen.fillStyle = fill;
    pen.fillRect(x, y, side - gap, side - gap);
    if (label !== undefined && side >= 15) {
      pen.fillStyle = token("--ink");
      pen.fillText(label, x + side / 2, y + side / 2);
    }
  }
  let at = 0;
  canvas.onmousemove = (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    if (column >= 0 && row >= 0 && column < columns && row < rows) says((at = row * columns + column));
  };
  canvas.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (!step) return;
    event.preventDefault();
    at = Math.max(0, Math.min(rows * columns - 1, at + step));
    says(at);
  };
}

// --- stages ------------------------------------------------------------------------------------------

const build = () => data.kernels[state.kernel].builds[state.target];

function pane(name, lines, numbers) {
  const list = make("div", { class: "lines", tabindex: 0, "aria-label": name });
  const mapped = numbers.filter((n) => n).length;
  lines.forEach((line, index) => list.append(make("div", { "data-line": numbers[index] }, line || " ")));
  return make("section", { class: "pane", "data-stage": name }, make("h3", {}, name, make("span", {}, `${lines.length} lines, ${mapped} mapped`)), list);
}

function drawStages() {
  const stages = build().stages, names = stages.map((s) => s.name);
  const usual = names.filter((n) => ["ttir", "tgir", "loops", "ptx", "asm"].includes(n));
  const shown = (state.shown[names] ??= new Set(usual));
  const box = $("#stage-names");
  box.replaceChildren();
  const group = make("span", { class: "choice" });
  for (const name of names) {
    const button = make("button", { type: "button", "aria-pressed": shown.has(name) }, name);
    button.addEventListener("click", () => {
      if (!shown.delete(name)) shown.add(name);
      drawStages();
      $$("button", box).find((b) => b.textContent === name).focus();
    });
    group.append(button);
  }
  if (names.length) box.append(group);
  const rows = $$(".row", $(`[data-build="${state.kernel}-${state.target}"]`));
  const panes = [];
  if (rows.length) panes.push(pane("source", rows.map((r) => $("pre", r).textContent), rows.map((r) => Number(r.dataset.line))));
  for (const stage of stages) if (shown.has(stage.name)) panes.push(pane(stage.name, stage.lines, stage.source));
  $("#panes").replaceChildren(...panes);
  if (state.line) mark(state.line);
}

/** Mark the lines that belong to a line of the source, everywhere. */
function mark(line, from = null) {
  state.line = line;
  for (const node of $$(".row.on, .pane .on")) node.classList.remove("on");
  for (const node of $$(`.row[data-line="${line}"]`)) node.classList.add("on");
  for (const list of $$(".pane .lines")) {
    const found = $$(`div[data-line="${line}"]`, list);
    for (const node of found) node.classList.add("on");
    if (found.length && list !== from) list.scrollTop = found[0].offsetTop - list.offsetTop - list.clientHeight / 3;
  }
}

/** The line before or behind the marked one that some stage has something of. */
function nextLine(step) {
  const lines = $$(`[data-build="${state.kernel}-${state.target}"] .row`).map((r) => Number(r.dataset.line));
  const known = new Set(build().stages.flatMap((s) => s.source));
  let at = Math.max(0, lines.indexOf(state.line));
  do at += step; while (at >= 0 && at < lines.length && !known.has(lines[at]));
  if (at >= 0 && at < lines.length) mark(lines[at]);
}

function drawPasses() {
  const passes = build().passes, slider = $("#pass");
  $("#passes").hidden = !passes.length;
  if (!passes.length) return;
  slider.max = passes.length - 1;
  slider.value = 0;
  drawPass();
}

function drawPass() {
  const passes = build().passes, number = Number($("#pass").value), pass = passes[number];
  $("#pass-name").textContent = `${number + 1} of ${passes.length}: ${pass.name}${pass.changed || !number ? "" : ", changes nothing"}`;
  const kinds = { "+": "add", "-": "del", "…": "gap" };
  const lines = pass.lines.map((line) => make("div", { class: kinds[line[0]] || "same" }, line || " "));
  $("#diff").replaceChildren(...(lines.length ? lines : [make("div", { class: "gap" }, "as before")]));
}

// --- layouts -----------------------------------------------------------------------------------------

function drawLayout(part, layout) {
  const held = layout.held, names = Object.keys(held).filter((n) => layout.shared || layout.inputs[n] > 1);
  const order = layout.shared ? ["bank", "offset"] : ["warp", "lane", "register"];
  const modes = [...order.filter((n) => names.includes(n)), ...names.filter((n) => !order.includes(n) && n !== "block")];
  if (!modes.includes(state.mode)) state.mode = modes[0];
  const says = $("[data-role=says]", part), count = (n) => (n === "bank" ? 32 : layout.inputs[n]);
  const draw = () => {
    const mode = state.mode, width = Math.min(900, part.clientWidth - 300);
    const side = Math.max(5, Math.min(34, Math.floor(width / layout.columns), Math.floor(600 / layout.rows)));
    const label = (cell) => (layout.shared ? held[mode][cell] : `${held.lane ? held.lane[cell] : 0}:${held.register ? held.register[cell] : 0}`);
    const paint = (cell) => [colour(held[mode][cell], count(mode)), side >= 26 || layout.shared ? label(cell) : undefined];
    $("[data-role=canvas]", part).dataset.mode = mode;
    grid($("[data-role=canvas]", part), layout.rows, layout.columns, side, paint, (cell) => {
      const place = layout.tile.length > 1 ? `[${Math.floor(cell / layout.columns)}, ${cell % layout.columns}]` : `[${cell}]`;
      const who = Object.keys(held).filter((n) => layout.inputs[n] > 1 || n === "bank").map((n) => `${n} ${held[n][cell]}`).join(", ");
      says.textContent = `${place} is held by ${who}${layout.copies > 1 ? `, and ${layout.copies - 1} more` : ""}`;
    });
  };
  choice($("[data-role=modes]", part), modes, state.mode, (mode) => { state.mode = mode; draw(); });
  says.textContent = `${layout.tile.join(" × ")} elements of ${layout.bits} bits${layout.cut ? ", the first shown" : ""}${layout.copies > 1 ? `; each held ${layout.copies} times` : ""}`;
  $("[data-role=bases]", part).textContent = layout.text;
  draw();
  part.redraw = draw;
}

function drawLayouts() {
  const builds = data.kernels[state.kernel].builds, has = (b) => b.layouts.grids?.length;
  const mine = has(build()) ? build() : builds.find(has);
  const part = $("#layouts"), found = mine?.layouts.grids || [], chips = $("[data-role=grids]", part);
  $("#whose-layouts").textContent = mine === build() ? "" : mine ? `for ${mine.target}: a CPU has no layouts` : "Layouts belong to GPUs, and no kernel was compiled for one.";
  $(".layout", part).hidden = $("#shared-accesses").hidden = !found.length;
  part.redraw = null;
  if (!found.length) return;
  const pick = (name) => {
    for (const chip of chips.children) chip.setAttribute("aria-selected", chip.dataset.name === name);
    drawLayout(part, found.find((g) => g.name === name));
  };
  chips.replaceChildren(...found.map((g) => {
    const values = g.values.slice(0, 3).join(" "), lines = g.lines.length ? ` · line ${g.lines.slice(0, 4).join(", ")}` : "";
    const chip = make("button", { type: "button", role: "option", "data-name": g.name }, make("b", {}, `${g.name} ${g.shared ? "shared" : ""}`), make("span", {}, g.shapes.slice(0, 2).join(", ")), make("span", {}, values + lines));
    chip.addEventListener("click", () => pick(g.name));
    return chip;
  }));
  $("#shared-accesses tbody").replaceChildren(...mine.layouts.accesses.map((a) => {
    const conflict = a.wavefronts ? (a.conflicts ? make("span", { class: "bad" }, `${a.conflicts} more wavefronts`) : make("span", { class: "good" }, "none")) : "–";
    const cells = [a.line || "–", a.operation, `${a.from} → ${a.to}`, a.kind, a.count, a.instructions || "–", a.vector || "–", a.wavefronts || "–", conflict];
    const row = make("tr", { tabindex: 0 }, ...cells.map((c, i) => make("td", [0, 4, 5, 6, 7].includes(i) ? { class: "n" } : {}, c instanceof Node ? c : String(c))));
    const [from, to] = [a.from, a.to].map((name) => found.find((g) => g.name === name));
    row.addEventListener("click", () => { if (a.line) mark(a.line); if (to) pick(a.to); drawConversion(a, from, to, 0); });
    return row;
  }));
  pick(found[0].name);
  drawConversion(null);
}

/** A conversion as arrows: which lanes of a warp give elements, and who holds them afterwards. */
function drawConversion(row, from, to, warp) {
  const figure = $("#conversion"), svg = $("svg", figure), at = (lane) => 30 + lane * 26, moves = {};
  figure.hidden = !(from && to && !from.shared && !to.shared && from.held.lane?.length === to.held.lane?.length);
  if (figure.hidden) return;
  const whose = (layout, cell) => layout.held.warp?.[cell] ?? 0;
  from.held.lane.forEach((lane, cell) => {
    const key = [lane, whose(to, cell) === warp ? to.held.lane[cell] : 32];
    if (lane >= 0 && whose(from, cell) === warp) moves[key] = (moves[key] || 0) + 1;
  });
  const paths = Object.entries(moves).map(([key, count]) => {
    const [give, take] = key.split(",").map(Number);
    return `<path data-lane="${give}" class="${give === take ? "stays" : "moves"}" d="M${at(give)} 34 C${at(give)} 95 ${at(take)} 95 ${at(take)} 150"><title>lane ${give} → ${take < 32 ? `lane ${take}` : "other warps"}: ${count} elements</title></path>`;
  });
  const lanes = Array.from({ length: 33 }, (_, lane) => (lane < 32 ? `<text x="${at(lane)}" y="22" tabindex="0">${lane}</text>` : "") + `<text x="${at(lane)}" y="168">${lane < 32 ? lane : "others"}</text>`);
  svg.innerHTML = paths.join("") + lanes.join("");
  for (const node of $$("[tabindex]", svg)) for (const event of ["mouseenter", "focus"]) node.addEventListener(event, () => {
    for (const path of $$("path", svg)) path.classList.toggle("on", path.dataset.lane === node.textContent);
  });
  choice($("[data-role=warps]", figure), Array.from({ length: from.inputs.warp || 1 }, (_, n) => `warp ${n}`), `warp ${warp}`, (_, n) => drawConversion(row, from, to, n));
  $("figcaption", figure).textContent = `${from.name} → ${to.name}${row.line ? `, line ${row.line}` : ""}, by ${row.kind}: above the lanes of warp ${warp}, below who holds their elements afterwards${from.cut ? "; of the part that is shown" : ""}`;
}

// --- accesses ----------------------------------------------------------------------------------------

const spread = (runs, flags, value) => { for (let i = 0; i < runs.length; i += 2) flags.fill(value, runs[i], runs[i] + runs[i + 1]); };

function drawAccesses() {
  const kernel = data.kernels[state.kernel];
  for (const name of ["about", "pipelines"]) for (const node of $$(`[data-${name}]`)) node.hidden = Number(node.dataset[name]) !== state.kernel;
  $("#tensors").hidden = !kernel.tensors.length;
  if (!kernel.tensors.length) return;
  const slider = $("#program");
  slider.max = kernel.programs.length;
  slider.value = 0;
  choice($("#access-modes"), ["program", "reads"], state.access, (mode) => { state.access = mode; drawTensors(); });
  drawTensors();
}

function drawTensors() {
  const kernel = data.kernels[state.kernel], chosen = Number($("#program").value) - 1, says = $("#access-says");
  $("#program-name").textContent = chosen < 0 ? "all" : `(${kernel.programs[chosen]})`;
  $("#tensor-list").replaceChildren(...kernel.tensors.map((tensor) => {
    const cells = tensor.rows * tensor.columns, owner = new Int32Array(cells).fill(-1), kind = new Uint8Array(cells);
    kernel.programs.forEach((_, p) => {
      if (chosen >= 0 && p !== chosen) return;
      const mine = new Uint8Array(cells);
      spread(tensor.masked[p], mine, 1);
      spread(tensor.reads[p], mine, 2);
      spread(tensor.writes[p], mine, 3);
      for (let c = 0; c < cells; c++) if (mine[c] > kind[c]) { kind[c] = mine[c]; owner[c] = p; }
    });
    const most = Math.max(1, ...tensor.heat), canvas = make("canvas", { tabindex: 0, role: "img", "aria-label": `accesses to ${tensor.name}` });
    const paint = (c) => {
      if (state.access === "reads" && chosen < 0) return [tensor.heat[c] ? heat(tensor.heat[c] / most) : token("--wash")];
      return [kind[c] === 0 ? token("--wash") : kind[c] === 1 ? token("--soft") : distinct(owner[c], kernel.programs.length)];
    };
    const side = Math.max(5, Math.min(18, Math.floor(352 / Math.max(tensor.rows, tensor.columns))));
    grid(canvas, tensor.rows, tensor.columns, side, paint, (c) => {
      const row = Math.floor(c / tensor.columns) * tensor.cell[0], column = (c % tensor.columns) * tensor.cell[1], flat = row * tensor.width + column;
      const what = ["reached by none of these programs", "masked for", "read by", "written by"][kind[c]] + (kind[c] ? ` program (${kernel.programs[owner[c]]})` : "");
      const place = tensor.shape.length > 1 ? `[${row}, ${column}]` : `[${flat}]`;
      says.textContent = `${tensor.name}${place}${flat >= tensor.count ? ", past the end," : ""} ${what}; each element read ${tensor.heat[c]} times`;
    });
    const cell = tensor.cell[0] * tensor.cell[1];
    return make("div", {}, make("h3", {}, `${tensor.name} `, make("span", {}, `${tensor.shape.join(" × ")} ${tensor.dtype}${cell > 1 ? `, a cell is ${tensor.cell.join(" × ")}` : ""}`)), canvas);
  }));
}

// --- the page ----------------------------------------------------------------------------------------

function show() {
  for (const node of $$(".build")) node.hidden = node.dataset.build !== `${state.kernel}-${state.target}`;
  const article = $(`[data-build="${state.kernel}-${state.target}"]`);
  $("#facts").textContent = article.dataset.facts;
  $("#kernel").value = state.kernel;
  drawStages();
  drawPasses();
  drawLayouts();
}

function chooseKernel(number) {
  state.kernel = number;
  state.target = Math.min(state.target, data.kernels[number].builds.length - 1);
  state.line = 0;
  const names = data.kernels[number].builds.map((b) => b.target);
  choice($("#targets"), names, names[state.target], (_, index) => { state.target = index; show(); });
  show();
  drawAccesses();
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  const links = $$("nav a");
  if (event.key === "t") $("#theme").click();
  else if (links[Number(event.key) - 1]) links[Number(event.key) - 1].click();
  else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.closest(".pane")) {
    event.preventDefault();
    nextLine(event.key === "ArrowDown" ? 1 : -1);
  }
}

function listen() {
  for (const button of $$("[data-kernel]")) button.addEventListener("click", () => { chooseKernel(Number(button.dataset.kernel)); $("#source").scrollIntoView(); });
  $("#kernel").addEventListener("change", (event) => chooseKernel(Number(event.target.value)));
  $("#pass").addEventListener("input", drawPass);
  $("#program").addEventListener("input", drawTensors);
  $("#source").addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (row && !event.target.closest(".answers")) mark(Number(row.dataset.line));
    if (event.target.dataset.role === "unfold") for (const node of $$("details", event.target.closest(".build"))) node.open = true;
  });
  $("#panes").addEventListener("click", (event) => {
    const line = Number(event.target.closest("[data-line]")?.dataset.line);
    if (line) mark(line, event.target.closest(".lines"));
  });
  for (const row of $$("[data-goto]")) row.addEventListener("click", () => { mark(Number(row.dataset.goto)); $("#source .row.on:not([hidden])")?.scrollIntoView({ block: "center" }); });
  for (const row of $$("[data-point]")) row.addEventListener("click", () => {
    const on = !row.classList.contains("on"), dot = document.getElementById(`roof-${row.dataset.point}`);
    for (const node of $$("[data-point], [id^=roof-]")) node.classList.remove("on");
    for (const figure of $$("#roofline > figure")) figure.classList.toggle("picked", on && figure.contains(dot));
    if (on) for (const node of [row, dot]) node?.classList.add("on");
  });
  for (const event of $$(".event")) event.addEventListener("click", () => {
    for (const other of $$(".event.on")) other.classList.remove("on");
    event.classList.add("on");
    $("#trace-says").textContent = event.dataset.says;
  });
  $("#save-trace").addEventListener("click", () => {
    const link = make("a", { href: URL.createObjectURL(new Blob([data.trace], { type: "application/json" })), download: "trace.json" });
    link.click();
  });
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) for (const link of $$("nav a")) link.classList.toggle("here", link.hash === `#${entry.target.id}`);
  }, { rootMargin: "-15% 0px -75% 0px" });
  for (const part of $$(".part")) seen.observe(part);
}

async function start() {
  data = await unpack();
  $("#theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    for (const part of $$("#layouts")) part.redraw?.();
    if (data.kernels) drawTensors();
  });
  document.addEventListener("keydown", keys);
  document.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches("tr[tabindex]")) event.target.click(); });
  if (data.layout) drawLayout($("#layouts"), data.layout);
  else {
    listen();
    chooseKernel(0);
  }
  document.documentElement.dataset.ready = "1";
}

start();
