// What if: switch off heads, layers, positions or the mask, and see how the prediction changes.

import { ask, isExported } from "./api.js";
import { bars, begin, button, card, failure, format, h, legend, note, replaceContent } from "./dom.js";
import { predictionCard, tokenList, visible } from "./prediction.js";
import { read, readInput, write } from "./state.js";
import { highest } from "./tensors.js";
import { t } from "./text.js";

// In the address: off=blocks.0.attention.head_outputs:2;blocks.1.feedforward, without=mask
function readEdits(state) {
  return (state.off ?? "").split(";").filter(Boolean).map((entry) => {
    const [name, head] = entry.split(":");
    return head === undefined ? { name, kind: "zero" } : { name, kind: "zero", head: Number.parseInt(head, 10) };
  });
}

export async function edit(model) {
  if (isExported) return card(null, note(t("What if needs a running model: it is not part of an exported file.")));
  const input = readInput(model.reads);
  const pass = await ask("pass", { input });
  const result = h("div", { class: "stack" });
  const controls = h("div");
  const off = new Set((read().off ?? "").split(";").filter(Boolean));
  const without = new Set((read().without ?? "").split(",").filter(Boolean));
  const update = () => {
    write({ off: [...off].join(";"), without: [...without].join(",") });
    replaceContent(controls, switches(pass, off, without, update));
    compare(model, input, pass, off, without, result);
  };
  const change = h("input", { class: "wide", value: read().changed ?? "", "aria-label": t("another text"), placeholder: t("another text to compare with"), onchange: (event) => { write({ changed: event.target.value }); update(); } });
  update();
  return h(
    "div",
    { class: "stack" },
    card(null, tokenList(pass), h("p", { class: "warning" }, t("Attention weights alone do not explain a prediction; switch a part off to measure its effect."))),
    h("div", { class: "halves" },
      card(t("Switch off"), controls, model.reads === "text" ? h("div", { class: "row" }, change) : null),
      result),
  );
}

function switches(pass, off, without, update) {
  const toggle = (set, key, label) => button(label, () => { set.has(key) ? set.delete(key) : set.add(key); update(); }, { "aria-pressed": String(set.has(key)), class: set.has(key) ? "off" : null, "data-focus": key });
  const names = new Set(pass.stages.map((stage) => stage.name.replace(/#\d+$/, "")));
  const rows = pass.layers.map((layer) => {
    const outputs = `${layer.name}.head_outputs`;
    const feedforward = `${layer.name.replace(/\.(attention|cross)$/, "")}.feedforward`;
    const heads = names.has(outputs) ? Array.from({ length: layer.heads }, (_, head) => toggle(off, `${outputs}:${head}`, String(head))) : [];
    return h("div", {},
      h("h3", { class: "mono" }, layer.name),
      h("div", { class: "row" }, heads.length ? h("span", { class: "note" }, t("heads")) : null, heads, names.has(layer.name) ? toggle(off, layer.name, t("whole layer")) : null,
        names.has(feedforward) && !layer.is_cross ? toggle(off, feedforward, t("feed-forward")) : null));
  });
  return [
    h("div", { class: "row" }, pass.removable.map((part) => toggle(without, part, part === "mask" ? t("mask") : t("positions"))),
      button(t("Reset"), () => { off.clear(); without.clear(); update(); }, { "data-focus": "reset" })),
    ...rows,
  ];
}

async function compare(model, input, pass, off, without, target) {
  const isLatest = begin(target);
  target.replaceChildren(card(t("Before and after"), note(t("Loading …"))));
  const { changed } = read();
  const request = { input: changed ? { ...input, text: changed } : input, edits: readEdits(read()), without: [...without] };
  try {
    if (pass.prediction.kind === "outcomes") {
      const response = await ask("change", { input, other: request });
      if (isLatest()) target.replaceChildren(beforeAndAfter(response), changeCard(pass, response));
    } else {
      const after = await ask("pass", request);
      if (isLatest()) target.replaceChildren(predictionCard(pass, t("original")), predictionCard(after, t("changed")));
    }
  } catch (error) {
    if (isLatest()) target.replaceChildren(card(t("Before and after"), failure(error)));
  }
}

function beforeAndAfter({ names, before, after }) {
  const rows = names.flatMap((name, i) => [[visible(name), before.data[i], "counts"], ["", after.data[i], ""]]);
  const limit = Math.max(highest(before.data), highest(after.data), 1e-9);
  return card(t("Before and after"), legend([["#d97706", t("original")], ["#3b82c4", t("changed")]]), bars(rows, limit));
}

function changeCard(pass, { divergence, largest }) {
  const total = divergence.data.reduce((a, b) => a + b, 0);
  const names = pass.names.tokens.length === divergence.data.length ? pass.names.tokens : [...divergence.data.keys()].map(String);
  const rows = [...divergence.data].map((value, i) => [visible(names[i]), value]);
  return card(
    t("Change at each position"),
    note(t("Kullback-Leibler divergence of the new prediction from the original one, in nats: {mean} on average. The largest change of any logit is {logit}.", { mean: format(total / rows.length), logit: format(largest.data[0]) })),
    bars(rows.slice(0, 80), Math.max(highest(divergence.data), 1e-9), format),
  );
}
