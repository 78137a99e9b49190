// Attention: the pattern of every head, one of them large, as a heat map or as lines.

import { ask } from "./api.js";
import { bars, begin, button, card, failure, field, format, h, note, percent, svg } from "./dom.js";
import { heatMap } from "./heatmap.js";
import { pixels, tokenList, visible } from "./prediction.js";
import { read, readIndex, readInput, write } from "./state.js";
import { highest, part, row } from "./tensors.js";
import { label, t } from "./text.js";

const THUMBNAIL = 64;
const MAX_THUMBNAILS = 400;
const LINE_TOKENS = 60;

export async function attention(model) {
  const input = readInput(model.reads);
  const pass = await ask("pass", { input });
  if (!pass.layers.length) return card(null, note(t("This model has no attention layers.")));
  const large = h("div");
  const grid = h("div", { class: "grid-heads" });
  const roles = new Map();
  const choose = (layer, head) => {
    write({ layer: layer.value, head });
    for (const item of grid.querySelectorAll("button")) {
      item.setAttribute("aria-pressed", String(item.dataset.head === `${layer.value} ${head}`));
    }
    showHead(model, pass, input, layer, head, roles, large);
  };
  await fillGrid(pass, input, grid, choose);
  const state = read();
  const chosen = pass.layers.find((layer) => layer.value === state.layer) ?? pass.layers[0];
  choose(chosen, readIndex("head", chosen.heads));
  labelRoles(model, input, grid, roles, () => {
    const layer = pass.layers.find((item) => item.value === read().layer) ?? chosen;
    showRole(input, roles, layer, readIndex("head", layer.heads), large.querySelector(".role"));
  });
  return h(
    "div",
    { class: "stack" },
    card(null, tokenList(pass), note(t("Each small picture is one head: rows are queries, columns are keys, dark cells are large weights. Attention shows where information can flow, not why the model decides: use What if to test that."))),
    h("div", { class: "split" }, card(t("All heads"), grid), large),
    await reachCards(model, pass, input),
  );
}

async function fillGrid(pass, input, grid, choose) {
  let count = 0;
  for (const layer of pass.layers) {
    const { values } = await ask("values", { input, name: layer.value, index: [0], pool: THUMBNAIL });
    const heads = h("div", { class: "heads" });
    const limit = highest(values.data);
    for (let head = 0; head < layer.heads && count < MAX_THUMBNAILS; head++, count++) {
      heads.append(
        button(
          [heatMap(part(values, [head]), { thumbnail: true, limit, cell: THUMBNAIL / Math.max(...values.shape.slice(1)) }), h("small", {}, String(head))],
          () => choose(layer, head),
          { class: "thumbnail", "data-head": `${layer.value} ${head}`, "aria-label": t("{layer}, head {head}", { layer: layerTitle(layer), head }) },
        ),
      );
    }
    grid.append(h("div", { class: "layer-row" }, h("span", { class: "mono" }, layerTitle(layer)), heads));
  }
}

// The name of a layer; if a block is applied several times, with the number of the step.
function layerTitle(layer) {
  const step = layer.value.match(/#(\d+)$/)?.[1];
  const name = layer.name.replace(/\.attention$/, "");
  return step ? t("{name}, step {n}", { name, n: step }) : name;
}

async function showHead(model, pass, input, layer, head, roles, target) {
  const title = t("{layer}, head {head}", { layer: layerTitle(layer), head });
  const body = h("div", {}, note(t("Loading …")));
  target.replaceChildren(card(title, h("p", { class: "role note" }), body));
  if (roles.size) showRole(input, roles, layer, head, target.querySelector(".role"));
  try {
    const name = layer.value.replace(/pattern(#\d+)?$/, "scores$1");
    const [{ values }, scores] = await Promise.all([
      ask("values", { input, name: layer.value, index: [0, head] }),
      ask("values", { input, name, index: [0, head] }).catch(() => null),
    ]);
    body.replaceChildren(
      model.reads === "image" || model.reads === "class"
        ? imageAttention(pass, values)
        : textAttention(pass, layer, values, scores?.values, title),
    );
  } catch (error) {
    body.replaceChildren(failure(error));
  }
}

function tokenNames(pass, layer) {
  const fromSource = layer.name.startsWith("encoder") || layer.name.includes(".encoder.");
  const queries = fromSource && pass.names.source.length ? pass.names.source : pass.names.tokens;
  const keys = layer.is_cross && pass.names.source.length ? pass.names.source : queries;
  return [queries, keys].map((names, i) => (names.length === [layer.queries, layer.keys][i] ? names.map(visible) : null));
}

function textAttention(pass, layer, pattern, scores, title) {
  const [queries, keys] = tokenNames(pass, layer);
  const shown = { shape: pattern.shape, data: withMask(pattern, scores) };
  const chosen = h("div");
  const map = heatMap(shown, { rows: queries, columns: keys, limit: 1, label: title, numbers: true, square: true });
  const choose = (query) => {
    const weights = row(pattern, query);
    const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 8);
    chosen.replaceChildren(
      h("h3", {}, t("What {token} attends to", { token: queries?.[query] ?? query })),
      bars(order.map((key) => [keys?.[key] ?? String(key), weights[key]]), 1),
    );
  };
  map.addEventListener("choose", (event) => choose(event.detail.row));
  choose(pattern.shape[0] - 1);
  const masked = shown.data.some((value) => value === -Infinity);
  return h(
    "div",
    { class: "halves" },
    h("div", {}, map, masked ? note(t("Gray cells are masked: these keys are hidden from the query.")) : null, chosen),
    pattern.shape[0] <= LINE_TOKENS && pattern.shape[1] <= LINE_TOKENS && queries && keys ? lines(pattern, queries, keys) : null,
  );
}

// Weights, and -infinity where the scores are: the mask itself.
function withMask(pattern, scores) {
  const data = Float32Array.from(pattern.data);
  if (scores) scores.data.forEach((score, i) => { if (score === -Infinity) data[i] = -Infinity; });
  return data;
}

function lines(pattern, queries, keys) {
  const gap = 20;
  const height = Math.max(queries.length, keys.length) * gap + 30;
  const strokes = [];
  const y = (i) => 28 + i * gap;
  queries.forEach((_, i) => keys.forEach((__, j) => {
    const weight = pattern.data[i * keys.length + j];
    if (weight > 0.02) strokes.push(svg("line", { x1: 140, x2: 300, y1: y(i), y2: y(j), stroke: "#2b7bbb", "stroke-width": 2.5, opacity: Math.min(1, weight), "data-query": i }));
  }));
  const picture = svg("svg", { viewBox: `0 0 440 ${height}`, role: "img", "aria-label": t("lines from queries to keys") },
    svg("text", { x: 132, y: 10, "text-anchor": "end", opacity: 0.7 }, t("query")), svg("text", { x: 308, y: 10, opacity: 0.7 }, t("key")),
    strokes,
    queries.map((name, i) => svg("text", {
      x: 132, y: y(i) + 4, "text-anchor": "end",
      onmouseenter: () => strokes.forEach((line) => line.setAttribute("visibility", line.dataset.query === String(i) ? "visible" : "hidden")),
      onmouseleave: () => strokes.forEach((line) => line.setAttribute("visibility", "visible")),
    }, name.slice(0, 16))),
    keys.map((name, i) => svg("text", { x: 308, y: y(i) + 4 }, name.slice(0, 16))));
  return h("div", { class: "lines" }, picture);
}

// --- images: what one position attends to -----------------------------------------------------------

function imageAttention(pass, pattern) {
  const image = pass.image ?? pass.prediction.image;
  const [queries, keys] = pattern.shape;
  const [queryGrid, keyGrid] = [queries, keys].map((count) => gridOf(count, image));
  const width = 320;
  const scale = width / image.shape[1];
  const base = pixels(image, width);
  const overlay = h("div");
  const frame = h("span", { class: "chosen-position" });
  const mark = (position) => {
    const [height, cell] = [(width * image.shape[0]) / image.shape[1] / queryGrid[0], width / queryGrid[1]];
    frame.style.left = `${(position % queryGrid[1]) * cell}px`;
    frame.style.top = `${Math.floor(position / queryGrid[1]) * height}px`;
    frame.style.width = `${cell}px`;
    frame.style.height = `${height}px`;
  };
  const show = (position) => {
    const weights = { shape: keyGrid, data: row(pattern, position) };
    mark(position);
    overlay.replaceChildren(
      h("h3", {}, t("What position {n} attends to", { n: position })),
      heatMap(weights, { cell: width / keyGrid[1], cellHeight: width / keyGrid[1], label: t("attention weights over the image") }),
      note(t("largest weight: {value}", { value: format(Math.max(...weights.data)) })),
    );
  };
  base.addEventListener("click", (event) => {
    const box = base.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / scale / image.shape[1]) * queryGrid[1]);
    const line = Math.floor(((event.clientY - box.top) / scale / image.shape[0]) * queryGrid[0]);
    show(Math.max(0, Math.min(queries - 1, line * queryGrid[1] + column)));
  });
  const middle = Math.floor(queryGrid[0] / 2) * queryGrid[1] + Math.floor(queryGrid[1] / 2);
  show(middle);
  const slider = h("input", { type: "range", min: 0, max: queries - 1, value: middle, oninput: (event) => show(Number(event.target.value)) });
  return h("div", { class: "halves" }, h("div", {}, h("div", { class: "picture-frame" }, base, frame), note(t("Select a position in the image.")), field(t("position"), slider)), overlay);
}

function gridOf(count, image) {
  const rows = Math.round(Math.sqrt((count * image.shape[0]) / image.shape[1]));
  return [rows, Math.floor(count / rows)];
}

// --- roles of heads -----------------------------------------------------------------------------------

const ROLES = {
  previous: label("previous token"), first: label("first token"), self: label("own token"),
  duplicate: label("same token"), induction: label("induction"),
};
const CLEAR = 0.4; // mean weight from which a role is named

async function labelRoles(model, input, grid, roles, done) {
  if (model.reads !== "text" && model.reads !== "pair") return;
  const { heads } = await ask("heads", { input }).catch(() => ({ heads: [] }));
  for (const head of heads) roles.set(`${head.value} ${head.head}`, head);
  for (const item of grid.querySelectorAll("button")) {
    const [, head] = item.dataset.head.split(" ");
    const role = roleOf(roles.get(item.dataset.head));
    if (role) item.querySelector("small").textContent = `${head} ${t(ROLES[role])}`;
  }
  done();
}

function roleOf(stats) {
  if (!stats) return null;
  const [name, weight] = Object.keys(ROLES).map((key) => [key, stats[key] ?? 0]).sort((a, b) => b[1] - a[1])[0];
  return weight >= CLEAR ? name : null;
}

async function showRole(input, roles, layer, head, target) {
  const stats = roles.get(`${layer.value} ${head}`);
  const parts = Object.keys(ROLES).filter((key) => stats && stats[key] !== null).map((key) => `${t(ROLES[key])} ${percent(stats[key])}`);
  target.textContent = parts.join(" · ");
  const isLatest = begin(target);
  const response = await ask("ablation", { input, layer: layer.name, head }).catch(() => null);
  if (response && isLatest()) target.textContent = [...parts, t("effect of ablating it: {cost} nats", { cost: format(response.cost.data[0]) })].join(" · ");
}

// --- depth and memory -----------------------------------------------------------------------------------

async function reachCards(model, pass, input) {
  const hasReach = model.architecture.startsWith("universal") || model.traits.includes("segment_memory");
  if (!hasReach) return [];
  const { halting, memory } = await ask("reach", { input });
  return [
    ...halting.map(({ name, weights }) => card(t("Steps of each token ({name})", { name }),
      note(t("Rows are steps of the shared block; a cell is how much the step counts in the output of the token.")),
      heatMap(weights, { limit: 1, rows: Array.from({ length: weights.shape[0] }, (_, i) => String(i + 1)), columns: pass.names.tokens.length === weights.shape[1] ? pass.names.tokens : pass.names.source, label: name }))),
    ...memory.map(({ name, pattern, segment }) => card(t("Memory of earlier segments ({name})", { name }),
      note(t("The text is read in segments of {n} tokens; weights left of a segment are on its memory.", { n: segment })),
      heatMap(pattern, { rows: pass.names.tokens, columns: pass.names.tokens, limit: 1, label: name }))),
  ];
}
