// Training: the curves and samples of the run, live while it trains; another run for comparison.

import { ask, isExported } from "./api.js";
import { lineChart } from "./chart.js";
import { begin, card, failure, field, format, h, note, select } from "./dom.js";
import { read, write } from "./state.js";
import { t } from "./text.js";

const COLORS = ["#2b7bbb", "#d97706"];
const REFRESH_MS = 2000;
const LOG_LINES = 40;

export async function training(model) {
  const body = h("div", { class: "stack" });
  const state = read();
  const others = model.runs.filter((name) => name !== model.name);
  const chooser = others.length
    ? field(t("compare with"), select([["", "–"], ...others.map((name) => [name, name])], state.other ?? "", (name) => { write({ other: name }); refresh(); }))
    : null;
  let shown = "";
  let timer = null;
  const refresh = async () => {
    clearTimeout(timer);
    const isLatest = begin(body);
    let runs = [];
    try {
      const names = [model.name, read().other].filter(Boolean);
      runs = await Promise.all(names.map((run) => ask("training", { run }, { fresh: true })));
      if (!isLatest()) return;
      const latest = JSON.stringify(runs.map((run) => [run.name, run.metrics.length, run.log.length]));
      if (latest !== shown) body.replaceChildren(...showRuns(runs));
      shown = latest;
    } catch (error) {
      if (isLatest()) body.replaceChildren(failure(error));
      shown = "";
    }
    const isOver = runs.length && runs.every(isFinished);
    if (!isExported && !isOver && isLatest() && body.isConnected) timer = setTimeout(refresh, REFRESH_MS);
  };
  requestAnimationFrame(refresh);
  return h("div", { class: "stack" }, chooser ? card(null, h("div", { class: "row" }, chooser)) : null, body);
}

const isFinished = (run) => run.metrics.some((line) => line.kind === "final");

function showRuns(runs) {
  const curves = (kind, key) => runs.map((run, i) => ({
    label: runs.length > 1 ? run.name : kind === "train" ? t("training") : t("validation"), color: COLORS[i], dashed: false,
    points: run.metrics.filter((line) => line.kind === kind && Number.isFinite(line[key])).map((line) => [line.step, line[key]]),
  })).filter((curve) => curve.points.length > 1);
  const charts = [
    [t("Training loss"), curves("train", "loss")],
    [t("Validation loss"), curves("validation", "loss")],
    [t("Learning rate"), curves("train", "lr")],
    [t("Gradient norm"), curves("train", "grad_norm")],
  ].filter(([, lines]) => lines.length);
  return [
    h("div", { class: "halves" }, charts.map(([title, lines]) => card(title, lineChart(lines, { x: t("step"), y: title })))),
    card(t("Results"), results(runs)),
    card(t("Log"), note(t("The end of the log, with samples of what the model produced.")), h("pre", { tabindex: "0" }, runs[0].log.trimEnd().split("\n").slice(-LOG_LINES).join("\n"))),
  ];
}

function results(runs) {
  const finals = runs.map((run) => run.metrics.filter((line) => line.kind === "final" || line.kind === "validation").at(-1) ?? {});
  const keys = [...new Set(finals.flatMap(Object.keys))].filter((key) => finals.some((line) => typeof line[key] === "number"));
  const head = h("tr", {}, h("td"), runs.map((run) => h("th", { scope: "col" }, run.name)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("Results") }, h("table", {}, head, keys.map((key) =>
    h("tr", {}, h("th", { scope: "row", class: "left" }, key), finals.map((line) => h("td", {}, typeof line[key] === "number" ? format(line[key]) : "–"))))));
}
