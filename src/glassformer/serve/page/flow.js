// Flow: every value of a forward pass, from the tokens to the prediction, and where numbers came from.

import { ask, isExported } from "./api.js";
import { begin, button, card, failure, field, format, h, integer, math, note, replaceContent, select } from "./dom.js";
import { heatMap } from "./heatmap.js";
import { predictionCard, tokenList, visible } from "./prediction.js";
import { read, readIndex, readInput, write } from "./state.js";
import { asMatrix, isSigned } from "./tensors.js";
import { t } from "./text.js";

const WINDOW = 14; // rows and columns of the table of numbers
const TERMS = 24;

export async function flow(model) {
  const input = readInput(model.reads);
  const pass = await ask("pass", { input });
  const detail = h("div", { class: "stack" });
  const list = h("div", { class: "card flow-list" });
  const open = (name, changes = {}) => {
    write({ stage: name, head: null, cell: null, entry: null, ...changes });
    mark(list, name);
    showStage(model, pass, input, name, detail, open);
  };
  list.append(stageTree(pass.stages, open));
  const names = pass.stages.map((stage) => stage.name);
  const first = names.includes(read().stage) ? read().stage : names[0];
  mark(list, first);
  showStage(model, pass, input, first, detail, open);
  return h(
    "div",
    { class: "stack" },
    card(null, tokenList(pass), note(t("Every value between the text and the prediction. Select one on the left; select a number to see where it came from."))),
    h("div", { class: "columns" }, list, detail),
    predictionCard(pass),
  );
}

function mark(list, name) {
  for (const item of list.querySelectorAll("button[data-name]")) {
    if (item.dataset.name === name) {
      item.setAttribute("aria-current", "true");
      for (let up = item.closest("details"); up; up = up.parentElement.closest("details")) up.open = true;
    } else item.removeAttribute("aria-current");
  }
}

// Stages before, in and after the blocks; inside a block, those of one layer belong together.
function stageTree(stages, open) {
  const root = h("div");
  let block = null;
  let layer = null;
  for (const stage of stages) {
    const inside = stage.block ? stage.name.slice(stage.block.length + 1) : "";
    if (!stage.block) block = null;
    else if (block?.name !== stage.block) {
      const body = h("div");
      block = { name: stage.block, body };
      root.append(h("details", {}, h("summary", {}, stage.block), body));
      layer = null;
    }
    const part = inside.split(/[.#]/)[0];
    if (block && inside.includes(".")) {
      if (layer?.name !== part || layer.block !== block) {
        layer = { name: part, block, body: h("div") };
        block.body.append(h("details", {}, h("summary", {}, part), layer.body));
      }
      layer.body.append(stageButton(stage, inside, open));
    } else (block ? block.body : root).append(stageButton(stage, inside || stage.name, open));
  }
  return root;
}

function stageButton(stage, shortName, open) {
  return button(
    [
      h("span", {}, stage.title || shortName),
      h("span", { class: "shape" }, stage.shape.slice(stage.has_batch ? 1 : 0).join(" × ")),
      h("span", { class: "name" }, shortName),
    ],
    () => open(stage.name),
    { "data-name": stage.name, class: "stage" },
  );
}

async function showStage(model, pass, input, name, target, open) {
  const stage = pass.stages.find((candidate) => candidate.name === name);
  const body = h("div", {}, note(t("Loading …")));
  const why = h("div");
  const place = pass.stages.indexOf(stage);
  const move = (label, other, key) => button(label, () => open(other.name), { disabled: !other, "data-focus": key });
  const isLatest = begin(target);
  replaceContent(target,
    h(
      "section",
      { class: "card" },
      h("div", { class: "row" }, move(t("← Previous"), pass.stages[place - 1], "previous"), move(t("Next →"), pass.stages[place + 1], "next"),
        h("span", { class: "note" }, t("stage {n} of {total}", { n: place + 1, total: pass.stages.length }))),
      h("h2", {}, stage.title || stage.name),
      facts(stage),
      stage.formula ? math(stage.formula) : null,
      stage.text ? h("p", {}, stage.text) : null,
      body,
    ),
    why,
    ...(stage.source ? [sourceCard(stage.source)] : []),
  );
  try {
    await showNumbers(model, pass, input, stage, body, why, open, isLatest);
  } catch (error) {
    if (isLatest()) body.replaceChildren(failure(error));
  }
}

function facts(stage) {
  const { stats } = stage;
  const rows = [[t("name"), stage.name], [t("shape"), stage.shape.join(" × ")], [t("axes"), stage.axes]];
  const names = { mean: t("mean"), std: t("standard deviation"), min: t("min"), max: t("max") };
  for (const key of Object.keys(names)) rows.push([names[key], format(stats[key])]);
  return h(
    "div",
    { class: "facts-line" },
    rows.filter(([, value]) => value).map(([label, value]) => h("span", {}, `${label} `, h("b", {}, value))),
  );
}

// Axes before the last two are chosen by number; a batch has one text.
async function showNumbers(model, pass, input, stage, body, why, open, isLatest) {
  const batch = stage.has_batch ? [0] : [];
  const leading = stage.shape.slice(batch.length, Math.max(stage.shape.length - 2, batch.length));
  const state = read();
  const chosen = leading.map((size, i) => (i === leading.length - 1 ? readIndex("head", size) : 0));
  const index = [...batch, ...chosen];
  const response = await ask("values", { input, name: stage.name, index });
  const matrix = asMatrix(response.values);
  const [rows, columns] = matrix.shape;
  const rowNames = stage.rows && pass.names[stage.rows].length === rows ? pass.names[stage.rows].map(visible) : null;
  const columnNames = (await findColumns(stage, pass))?.map(visible);
  const cell = (state.cell ?? "").split(",").map(Number);
  const isInside = cell.length === 2 && [rows, columns].every((size, i) => Number.isInteger(cell[i]) && cell[i] >= 0 && cell[i] < size);
  const start = isInside ? cell : null;
  if (!isLatest()) return;

  const table = h("div");
  const map = heatMap(matrix, {
    rows: rowNames, columns: columnNames?.length <= 60 ? columnNames : null, signed: isSigned(matrix.data),
    label: stage.title || stage.name, chosen: start, cellHeight: 26,
  });
  const choose = (row, column) => {
    write({ cell: `${row},${column}` });
    map.options && Object.assign(map.options, { chosen: [row, column] }) && map.draw();
    replaceContent(table, numberTable(matrix, rowNames, columnNames, [row, column], choose));
    const inner = stage.shape.length - index.length > 1 ? [row, column] : [column];
    const entry = `${stage.name}[${[...index, ...inner].join(",")}]`;
    explain(model, input, [{ entry, path: [], label: entry }], why);
  };
  map.addEventListener("choose", (event) => choose(event.detail.row, event.detail.column));
  table.append(numberTable(matrix, rowNames, columnNames, start, choose));
  const heads = leading.at(-1) > 1
    ? field(stage.axes.split(" ")[1] === "h" || stage.axes.split(" ")[1] === "g" ? t("head") : t("part"),
        select(Array.from({ length: leading.at(-1) }, (_, i) => [i, String(i)]), chosen.at(-1), (value) =>
          open(stage.name, { head: value })))
    : null;
  body.replaceChildren(h("div", { class: "row" }, heads), map, table);
  if (state.entry) explain(model, input, [{ entry: state.entry, path: [], label: state.entry }], why);
  else if (start) choose(...start);
}

async function findColumns(stage, pass) {
  if (stage.columns === "outcomes") {
    const { names } = await ask("outcomes").catch(() => ({ names: null }));
    return names;
  }
  return stage.columns ? pass.names[stage.columns] : null;
}

function numberTable(matrix, rowNames, columnNames, chosen, choose) {
  const [rows, columns] = matrix.shape;
  const [row, column] = chosen ?? [0, 0];
  const firstRow = Math.max(0, Math.min(row - WINDOW / 2, rows - WINDOW));
  const firstColumn = Math.max(0, Math.min(column - WINDOW / 2, columns - WINDOW));
  const rowRange = Array.from({ length: Math.min(WINDOW, rows) }, (_, i) => firstRow + i);
  const columnRange = Array.from({ length: Math.min(WINDOW, columns) }, (_, i) => firstColumn + i);
  const shown = t("rows {a} to {b} of {rows}, columns {c} to {d} of {columns}", {
    a: firstRow + 1, b: rowRange.at(-1) + 1, rows, c: firstColumn + 1, d: columnRange.at(-1) + 1, columns,
  });
  const head = h("tr", {}, h("td"), columnRange.map((j) => h("th", { scope: "col" }, columnNames?.[j] ?? String(j))));
  const lines = rowRange.map((i) =>
    h("tr", {}, h("th", { scope: "row" }, rowNames?.[i] ?? String(i)),
      columnRange.map((j) =>
        h("td", { class: chosen && i === row && j === column ? "chosen" : null },
          button(format(matrix.data[i * columns + j]), () => choose(i, j), { class: "number", "data-focus": `${i},${j}` })))));
  return h("div", {}, note(shown), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("numbers") }, h("table", {}, head, lines)));
}

// --- where a number came from ----------------------------------------------------------------------

// `steps` is the way here: requests of {entry, path}, the last one to show.
async function explain(model, input, steps, target) {
  const title = t("Where this number came from");
  const { entry, path } = steps.at(-1);
  write({ entry: path.length ? null : entry });
  const isLatest = begin(target);
  target.replaceChildren(card(title, note(t("Loading …"))));
  let response;
  try {
    response = await ask("why", { input, entry, path });
  } catch (error) {
    if (isLatest()) target.replaceChildren(card(title, isExported ? note(t("This number is not explained in the exported file.")) : failure(error)));
    return;
  }
  if (!isLatest()) return;
  const follow = (next) => explain(model, input, next, target);
  const [value, recomputed] = response.value.data;
  const back = steps.slice(0, -1).map((step, i) => button(`← ${step.label}`, () => follow(steps.slice(0, i + 1)), { class: "mono" }));
  const computed = response.terms.length && !response.has_probabilities;
  target.replaceChildren(card(
    title,
    h("p", {}, h("span", { class: "mono" }, `${steps.at(-1).label} = `), h("b", {}, format(value)), "  ", response.position),
    back.length ? h("div", { class: "row" }, back) : null,
    response.is_source
      ? note(t("It is a weight or an input: it was not computed in this pass."))
      : h("p", {}, t("computed as: {operation}", { operation: response.operations.join(", ") })),
    response.terms.length ? termTable(response, steps, follow) : null,
    computed ? note(t("Recomputed from all {n} terms: {value}", { n: integer(response.total), value: format(recomputed) })) : null,
  ));
}

function termTable(response, steps, follow) {
  const width = response.values.shape[1];
  const factors = width - 1;
  const shown = response.terms.slice(0, TERMS);
  const columns = factors > 1
    ? [...Array.from({ length: factors }, (_, i) => t("factor {n}", { n: i + 1 })), t("product")]
    : response.has_probabilities ? [t("value"), t("probability")] : [t("value")];
  const factor = (name, i, j) => {
    const next = name ? { entry: name, path: [], label: name } : { entry: steps.at(-1).entry, path: [...response.path, [i, j]], label: t("(unnamed)") };
    if (!name && !response.can_follow[i][j]) return t("(constant)");
    return button(next.label, () => follow([...steps, next]), { class: "number mono" });
  };
  const head = h("tr", {}, h("th", { class: "left" }, t("term")), columns.map((name) => h("th", { scope: "col" }, name)));
  const lines = shown.map((names, i) => {
    const numbers = [...response.values.data.subarray(i * width, (i + 1) * width)];
    return h("tr", {},
      h("td", { class: "left" }, names.map((name, j) => [j ? " × " : "", factor(name, i, j)])),
      (columns.length > 1 ? numbers : numbers.slice(0, 1)).map((number) => h("td", {}, format(number))));
  });
  const rest = response.total - shown.length;
  return h("div", {},
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("terms") }, h("table", {}, head, lines)),
    rest > 0 ? note(t("and {n} smaller terms", { n: integer(rest) })) : null);
}

function sourceCard(source) {
  const lines = source.code.replace(/\n$/, "").split("\n");
  return card(
    t("The line that computes it"),
    h("p", { class: "mono" }, `glassformer/${source.file}:${source.line}`),
    h("pre", { tabindex: "0" }, lines.map((line, i) =>
      h("span", { class: source.first + i === source.line ? "here" : null }, `${source.first + i}  ${line}\n`))),
  );
}
