// Next token: the probabilities after a text, with the settings of sampling to drag; for translators,
// the tree of beam search.

import { ask, isExported } from "./api.js";
import { bars, begin, button, card, failure, format, h, legend, note, replaceContent, svg } from "./dom.js";
import { heatMap } from "./heatmap.js";
import { visible } from "./prediction.js";
import { read, readIndex, readInput, write } from "./state.js";
import { highest, largest, softmax } from "./tensors.js";
import { t } from "./text.js";

const SHOWN = 16;
const RUN_TOKENS = 40;

export async function next(model) {
  const view = model.reads === "pair" ? await beam(model) : await sampling(model);
  return model.has_prior ? h("div", { class: "stack" }, view, await priorCard(model)) : view;
}

// The probability of every token of the text by the prior, by the network, and by both.
async function priorCard(model) {
  const input = readInput(model.reads);
  const [pass, { probs }] = await Promise.all([ask("pass", { input }), ask("prior", { input })]);
  return card(t("Each token of the text: what the prior and the network contribute"),
    note(t("The probability of each token, given those before it: by the counts or the translation table alone, by the network alone, and by both.")),
    heatMap(probs, { rows: [t("prior"), t("network"), t("both")], columns: pass.names.tokens.slice(1).map(visible), limit: 1, numbers: true, label: t("both") }));
}

async function sampling(model) {
  const input = readInput(model.reads);
  const [{ names }, { ids, text }] = await Promise.all([ask("outcomes"), ask("tokenize", { input })]);
  const state = read();
  const settings = { temperature: Number(state.temperature ?? 1), top_k: readIndex("top_k", 51), top_p: Number(state.top_p ?? 1) };
  let current = [...ids, ...(state.added ?? "").split(",").filter(Boolean).map(Number)];
  let response = null;
  let isPending = false;
  let isRunning = false;
  const shownText = h("div", { class: "text-out", "aria-live": "polite" });
  const list = h("div");
  const error = h("div");

  const show = () => {
    const whole = response?.text ?? text;
    const start = whole.startsWith(text) ? text.length : 0;
    shownText.replaceChildren(whole.slice(0, start), h("mark", {}, whole.slice(start)));
    write({ added: current.slice(ids.length).join(",") });
    replaceContent(list, response ? candidates(names, response, settings, (id) => go([...current, id])) : []);
  };
  // Only one request at a time: the next token depends on the response.
  const go = async (next) => {
    if (isPending) return;
    isPending = true;
    try {
      response = await ask("next", { input: { ids: next } });
      current = next;
      error.replaceChildren();
    } catch (problem) {
      isRunning = false;
      error.replaceChildren(failure(problem));
    }
    isPending = false;
    show();
  };
  const step = () => (response ? go([...current, draw(response, settings)]) : null);
  const back = () => {
    isRunning = false;
    if (current.length > ids.length) go(current.slice(0, -1));
  };
  const run = button(t("Run"), async () => {
    isRunning = !isRunning;
    run.textContent = isRunning ? t("Stop") : t("Run");
    for (let i = 0; i < RUN_TOKENS && isRunning && run.isConnected; i++) await step();
    isRunning = false;
    run.textContent = t("Run");
  });
  await go(current);
  return h(
    "div",
    { class: "halves" },
    card(t("The text so far"), shownText, h("div", { class: "row" }, button(t("Step"), step, { class: "primary" }), run, button(t("Back"), back)), error,
      sliders(settings, show),
      note(t("Step adds one token, drawn with these probabilities; temperature 0 takes the most likely one. You can also choose a token from the list to add it.")),
      isExported ? note(t("This file holds the first steps of the most likely continuation only.")) : null),
    card(t("The next token"), list),
  );
}

function sliders(settings, show) {
  return h("div", { class: "row" },
    slider(t("temperature"), 0, 2, 0.05, settings.temperature, (value) => change(settings, "temperature", value, show)),
    slider("top-k", 0, 50, 1, settings.top_k, (value) => change(settings, "top_k", value, show), (value) => value || t("all")),
    slider("top-p", 0.05, 1, 0.05, settings.top_p, (value) => change(settings, "top_p", value, show)));
}

function change(settings, name, value, show) {
  settings[name] = value;
  write({ [name]: value });
  show();
}

function slider(label, min, max, step, value, onchange, shown = format) {
  const output = h("b", {}, String(shown(value)));
  const input = h("input", { type: "range", min, max, step, value, "aria-label": label, oninput: (event) => {
    output.textContent = shown(Number(event.target.value));
    onchange(Number(event.target.value));
  } });
  return h("label", { class: "field" }, h("span", {}, label, " ", output), input);
}

// Probabilities after temperature, top-k and top-p; temperature 0 leaves only the most likely token.
export function sampledProbs(logits, { temperature, top_k, top_p }) {
  const greedy = temperature === 0;
  const probs = softmax(logits, greedy ? 1 : temperature);
  const order = largest(probs, probs.length);
  const kept = new Set();
  let total = 0;
  for (const id of order.slice(0, greedy ? 1 : top_k || probs.length)) {
    if (kept.size && total >= top_p) break;
    kept.add(id);
    total += probs[id];
  }
  return probs.map((prob, id) => (kept.has(id) ? prob / total : 0));
}

function draw({ logits }, settings) {
  const probs = sampledProbs(logits.data, settings);
  let rest = Math.random();
  for (const id of largest(probs, probs.length)) {
    rest -= probs[id];
    if (rest <= 0) return id;
  }
  return largest(probs, 1)[0];
}

function candidates(names, { logits, counts, network }, settings, choose) {
  const probs = sampledProbs(logits.data, settings);
  const plain = softmax(logits.data);
  const order = largest(plain, SHOWN);
  const rows = order.map((id) => [
    button(visible(names[id]), () => choose(id), { class: "number mono", "data-focus": `token ${id}` }), probs[id], probs[id] ? "" : "out",
  ]);
  const parts = [bars(rows, Math.max(highest(probs), 1e-9)), note(t("the {n} most likely of {total} tokens", { n: order.length, total: logits.data.length }))];
  if (counts && network) parts.push(...priorParts(names, plain, counts.data, network.data));
  return parts;
}

function priorParts(names, both, counts, network) {
  const [byCounts, byNetwork] = [softmax(counts), softmax(network)];
  const order = largest(both, 6);
  const rows = order.flatMap((id) => [
    [visible(names[id]), byCounts[id], "counts"], ["", byNetwork[id], ""], ["", both[id], "both"],
  ]);
  return [
    h("h3", {}, t("What the counts and the network contribute")),
    legend([["#d97706", t("n-gram counts alone")], ["#3b82c4", t("network alone")], ["#2f855a", t("both")]]),
    bars(rows, 1),
  ];
}

// --- beam search -----------------------------------------------------------------------------------------

async function beam(model) {
  const input = readInput(model.reads);
  const size = readIndex("beam", 9, 3) || 3;
  const target = h("div", { class: "stack" });
  const show = async (value) => {
    write({ beam: value });
    const isLatest = begin(target);
    try {
      const response = await ask("beam", { input: { text: input.text }, beam: value });
      if (!isLatest()) return;
      const scores = response.scores.data;
      target.replaceChildren(
        card(t("Finished translations"), h("ol", {}, response.texts.map((text, i) => h("li", {}, text || "–", "  ", h("span", { class: "tag" }, t("score {value}", { value: format(scores[i]) })))))),
        card(t("Beam search, token by token"), note(t("Each column is a step. Blue tokens stayed in the beam, green ones end a translation, gray ones were dropped. Numbers are total log-probabilities.")), tree(response)),
      );
    } catch (error) {
      if (isLatest()) target.replaceChildren(failure(error));
    }
  };
  await show(size);
  const chooser = slider(t("beam size"), 1, 8, 1, size, show);
  return h("div", { class: "stack" }, card(null, h("div", { class: "row" }, chooser)), target);
}

function tree({ nodes, log_probs }) {
  const steps = [];
  const place = nodes.map((node) => {
    const step = node.parent < 0 ? 0 : null;
    return { step, y: 0 };
  });
  nodes.forEach((node, i) => {
    place[i].step = node.parent < 0 ? 0 : place[node.parent].step + 1;
    const column = (steps[place[i].step] ??= []);
    place[i].y = column.length;
    column.push(i);
  });
  const [columnWidth, rowHeight] = [112, 30];
  const height = Math.max(...steps.map((column) => column.length)) * rowHeight + 12;
  const colors = { beam: "#2b7bbb", end: "#2f855a", dropped: "#9aa3af" };
  const x = (i) => 8 + place[i].step * columnWidth;
  const y = (i) => 20 + place[i].y * rowHeight;
  const shapes = nodes.flatMap((node, i) => [
    ...(node.parent >= 0 ? [svg("path", { d: `M${x(node.parent) + 82},${y(node.parent)} C${x(node.parent) + 100},${y(node.parent)} ${x(i) - 16},${y(i)} ${x(i)},${y(i)}`, fill: "none", stroke: colors[node.state], "stroke-width": node.state === "dropped" ? 0.7 : 1.8 })] : []),
    svg("rect", { x: x(i), y: y(i) - 11, width: 82, height: 22, rx: 6, fill: "none", stroke: colors[node.state], "stroke-width": node.state === "dropped" ? 0.7 : 1.8 }),
    svg("text", { x: x(i) + 6, y: y(i) + 4, opacity: node.state === "dropped" ? 0.65 : 1 }, visible(node.token).slice(0, 7)),
    svg("text", { x: x(i) + 78, y: y(i) + 4, "text-anchor": "end", opacity: 0.7, "font-size": 10 }, log_probs.data[i].toFixed(1)),
  ]);
  const width = steps.length * columnWidth + 8;
  return h("div", { class: "tree", tabindex: "0", role: "region", "aria-label": t("tree of beam search") }, svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": t("tree of beam search") }, shapes));
}
