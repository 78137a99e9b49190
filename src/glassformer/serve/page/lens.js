// Lens: what the model would predict after each block; and the size of the residual stream.

import { ask } from "./api.js";
import { card, h, note, percent } from "./dom.js";
import { isDarkColor, makeScale } from "./colors.js";
import { heatMap } from "./heatmap.js";
import { visible } from "./prediction.js";
import { readInput } from "./state.js";
import { t } from "./text.js";

export async function lens(model) {
  const input = readInput(model.reads);
  const [pass, response] = await Promise.all([ask("pass", { input }), ask("lens", { input })]);
  const tokens = pass.names.tokens;
  const color = makeScale(1, false);
  const cell = (name, prob) => {
    const rgb = color(prob);
    const element = h("td", { title: percent(prob) }, visible(name), h("br"), h("small", {}, percent(prob)));
    element.style.background = `rgb(${rgb.join(",")})`;
    element.style.color = isDarkColor(rgb) ? "#fff" : "#111";
    return element;
  };
  const head = h("tr", {}, h("td"), tokens.map((token) => h("th", { scope: "col" }, visible(token))));
  const lines = response.blocks.map((block, i) =>
    h("tr", {}, h("th", { scope: "row" }, block), response.names[i].map((name, j) => cell(name, response.probs.data[i * tokens.length + j]))));
  return h(
    "div",
    { class: "stack" },
    card(t("What each block would predict"), note(t("The output of a block goes straight to the final norm and the output layer, past all later blocks. Each column is a position of the text; darker cells are more certain.")),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("What each block would predict") }, h("table", {}, head, lines))),
    card(t("Size of the residual stream"), note(t("The norm of each token's vector after each block.")),
      heatMap(response.norms, { rows: response.blocks, columns: tokens.map(visible), label: t("Size of the residual stream"), numbers: true })),
  );
}
