// Walk: worked examples by hand, as printed and as they should be, step by step, with exercises.

import { ask, isExported } from "./api.js";
import { begin, button, card, field, h, math, replaceContent, select } from "./dom.js";
import { read, readIndex, readInput, write } from "./state.js";
import { label, t } from "./text.js";

const BLANKS = 0.3;

export async function walk(model) {
  const { lessons } = await ask("lessons");
  const own = (model.reads === "text" || model.reads === "pair") && !isExported ? [["model", t("this model, on the text above")]] : [];
  const options = [...lessons.map(({ name, title }) => [name, title]), ...own];
  const state = read();
  const chosen = options.some(([name]) => name === state.lesson) ? state.lesson : options[0][0];
  const body = h("div", { class: "stack" });
  const show = async (name, step) => {
    write({ lesson: name, step });
    const isLatest = begin(body);
    const lesson = name === "model"
      ? await ask("worksheet", { input: { text: readInput(model.reads).text } })
      : await ask("lesson", { lesson: name });
    const shown = Math.max(0, Math.min(step, lesson.steps.length - 1));
    if (isLatest()) replaceContent(body, page(lesson, shown, (next) => show(name, next)));
  };
  await show(chosen, readIndex("step"));
  return h("div", { class: "stack" },
    card(null, h("div", { class: "row" }, field(t("worked example"), select(options, chosen, (name) => show(name, 0))),
      button(t("Exercise"), (event) => {
        const on = read().exercise === "1" ? "" : "1";
        write({ exercise: on });
        event.target.setAttribute("aria-pressed", String(Boolean(on)));
        show(read().lesson, readIndex("step"));
      }, { "aria-pressed": String(state.exercise === "1") }))),
    body);
}

function page(lesson, index, go) {
  const step = lesson.steps[index];
  const move = h("div", { class: "row" },
    button(t("← Previous"), () => go(index - 1), { disabled: index === 0, "data-focus": "previous" }),
    h("span", { class: "note" }, t("step {n} of {total}", { n: index + 1, total: lesson.steps.length })),
    button(t("Next →"), () => go(index + 1), { class: "primary", disabled: index === lesson.steps.length - 1, "data-focus": "next" }));
  const isExercise = read().exercise === "1";
  return [
    card(`${index + 1}. ${step.title}`, move, step.formula ? math(step.formula) : null, step.text ? h("p", {}, step.text) : null,
      h("div", { class: "halves" }, step.tables.map((table, i) => table.kind === "computed" || table.kind === "correct"
        ? numberTable(table, isExercise ? (row, column) => isBlank(index, i, row, column) : null)
        : numberTable(table, null))),
      step.note ? h("p", { class: "warning" }, step.note) : null),
    h("details", { class: "card" }, h("summary", {}, t("All steps")), h("ol", {}, lesson.steps.map(({ title }, i) => h("li", {}, button(title, () => go(i)))))),
  ];
}

// Whether a cell is left blank; the same cells each time.
function isBlank(...numbers) {
  let hash = 17;
  for (const number of numbers) hash = (((hash ^ (number + 1)) * 7919) % 1_000_003) + 13;
  return (hash % 1000) / 1000 < BLANKS;
}

const KINDS = { printed: label("as printed"), correct: label("as it should be"), given: label("given"), computed: label("computed") };

function numberTable(table, isHidden) {
  const head = table.columns.length ? h("tr", {}, table.rows.length ? h("td") : null, table.columns.map((name) => h("th", { scope: "col" }, name))) : null;
  const width = table.values.shape[1];
  const lines = table.cells.map((cells, i) => h("tr", {},
    table.rows.length ? h("th", { scope: "row" }, table.rows[i]) : null,
    cells.map((cell, j) => isHidden?.(i, j) && Number.isFinite(table.values.data[i * width + j])
      ? h("td", {}, exercise(table, i, j, table.values.data[i * width + j]))
      : h("td", { class: table.wrong[i][j] ? "wrong" : null }, cell))));
  return h("div", {},
    h("h3", {}, table.name, "  ", h("span", { class: `tag ${table.kind}` }, t(KINDS[table.kind]))),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.name }, h("table", {}, head, lines)));
}

// An input that says whether the number in it is right: as it is shown, or rounded from the value.
function exercise(table, row, column, value) {
  const shown = table.cells[row][column];
  const needed = Math.min((shown.split(".")[1] ?? "").length, 2);
  const name = t("row {row}, column {column}", { row: table.rows[row] ?? row + 1, column: table.columns[column] ?? column + 1 });
  return h("input", {
    class: "exercise", inputmode: "decimal", "aria-label": name,
    onchange: (event) => {
      const text = event.target.value.trim().replace(",", ".").replace("−", "-");
      const decimals = (text.split(".")[1] ?? "").length;
      const isRounded = decimals >= needed && Math.abs(Number(text) - value) <= 0.5 * 10 ** -decimals + 1e-6;
      const isRight = text !== "" && (Number(text) === Number(shown) || isRounded);
      event.target.parentElement.className = isRight ? "right" : "wrong";
      event.target.setAttribute("aria-invalid", String(!isRight));
    },
  });
}
