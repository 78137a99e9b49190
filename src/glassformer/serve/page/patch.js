// Patch: which activations account for the difference between two texts.

import { ask } from "./api.js";
import { begin, card, failure, h, note, percent } from "./dom.js";
import { heatMap } from "./heatmap.js";
import { visible } from "./prediction.js";
import { read, readInput, write } from "./state.js";
import { t } from "./text.js";

export async function patch(model) {
  const { text } = readInput(model.reads);
  const other = h("input", { value: read().corrupt ?? model.other_text, placeholder: t("the same text with one word changed") });
  const result = h("div", { class: "stack" });
  const run = async () => {
    write({ corrupt: other.value });
    const isLatest = begin(result);
    result.replaceChildren(card(null, note(t("Loading …"))));
    try {
      const response = await ask("patch", { clean: text, corrupt: other.value });
      if (isLatest()) show(response, result);
    } catch (error) {
      if (isLatest()) result.replaceChildren(card(null, failure(error)));
    }
  };
  if (other.value) run();
  return h(
    "div",
    { class: "stack" },
    card(t("Compare two texts"),
      note(t("The model reads the second text, and one value at a time is replaced by its value from the first. A number is the fraction of the difference in the prediction that this brings back. Both texts need the same number of tokens.")),
      h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); run(); } },
        h("label", { class: "field wide" }, h("span", {}, t("first text")), h("input", { value: text, disabled: true })),
        h("label", { class: "field wide" }, h("span", {}, t("second text")), other),
        h("button", { class: "primary", type: "submit" }, t("Compare")))),
    result,
  );
}

function show(response, target) {
  const [a, b] = response.answers.map((name) => `“${visible(name)}”`);
  const p = response.probs.data;
  const tokens = response.tokens.map(visible);
  target.replaceChildren(
    card(null, h("p", {}, t("From the first to the second text, the probability of {a} goes from {p0} to {p2}, that of {b} from {p1} to {p3}.", { a, b, p0: percent(p[0]), p1: percent(p[1]), p2: percent(p[2]), p3: percent(p[3]) })),
      response.gap.data[0] < 0.1 ? h("p", { class: "warning" }, t("The difference is so small that the fractions are mostly noise.")) : null),
    card(t("Each value at each token"), heatMap(response.positions, { rows: response.names, columns: tokens, signed: true, limit: 1, numbers: true, label: t("Each value at each token") })),
    ...(response.heads.length ? [card(t("Each head"), ...response.heads.map(({ name, values }) =>
      h("div", { class: "layer-row" }, h("span", { class: "mono" }, name.replace(".head_outputs", "")),
        heatMap({ shape: [1, values.shape[0]], data: values.data }, { columns: [...values.data.keys()].map(String), signed: true, limit: 1, numbers: true, label: name }))))] : []),
  );
}
