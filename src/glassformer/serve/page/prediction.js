// The tokens that a model reads, and what it predicts.

import { bars, card, format, h, integer, note } from "./dom.js";
import { t } from "./text.js";

export function tokenList(pass) {
  const lists = [[t("source"), pass.source], [pass.source.length ? t("target") : t("tokens"), pass.tokens]];
  return h(
    "div",
    {},
    lists.filter(([, tokens]) => tokens.length).map(([label, tokens]) => [
      h("h3", {}, `${label}: ${integer(tokens.length)}`),
      h("ol", { class: "tokens" }, tokens.slice(0, 200).map(({ text, id }) =>
        h("li", { class: "token" }, text, h("small", {}, String(id))))),
      tokens.length > 200 ? note(t("and {n} more", { n: integer(tokens.length - 200) })) : null,
    ]),
    pass.unknown
      ? h("p", { class: "warning", role: "status" }, t("{n} of the tokens are not in the vocabulary of this model.", { n: pass.unknown }))
      : null,
    pass.image ? pixels(pass.image, 160) : null,
    !pass.tokens.length && pass.names.tokens.length ? h("p", {}, pass.names.tokens.slice(-12).join(" → ")) : null,
  );
}

export function predictionCard({ prediction }, title = null) {
  if (prediction.kind === "image") return card(title ?? t("The painted image"), pixels(prediction.image, 256));
  if (prediction.kind === "number") {
    return card(title ?? t("Prediction"), h("p", {}, h("b", {}, format(prediction.value.data[0]))));
  }
  const { names, probs, position } = prediction;
  const rows = names.map((name, i) => [visible(name), probs.data[i]]);
  return card(
    title ?? (position === null ? t("Prediction") : t("Prediction at position {n}", { n: position })),
    bars(rows, Math.max(...probs.data, 1e-9)),
  );
}

// Spaces and line ends as signs.
export function visible(name) {
  return name.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ +| +$/g, (spaces) => "·".repeat(spaces.length));
}

// An image {shape: [rows, columns, channels], data: 0 to 1} on a canvas of this width.
export function pixels(image, width) {
  const [rows, columns, channels] = image.shape;
  const canvas = h("canvas", { class: "picture", width: columns, height: rows, role: "img", "aria-label": t("image") });
  const data = new ImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    for (let c = 0; c < 3; c++) data.data[4 * i + c] = 255 * image.data[i * channels + Math.min(c, channels - 1)];
    data.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(data, 0, 0);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${(width * rows) / columns}px`;
  return canvas;
}
