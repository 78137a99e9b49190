// <line-chart>: curves over steps. chart.show([{label, color, points: [[x, y]], dashed}], {x, y})

import { format, h, svg } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [640, 260, 76, 30];

class LineChart extends HTMLElement {
  show(curves, names) {
    const points = curves.flatMap((curve) => curve.points);
    if (!points.length) return;
    const range = (axis) => {
      const values = points.map((point) => point[axis]);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      return high > low ? [low, high] : [low - 0.5, high + 0.5];
    };
    const [[x0, x1], [y0, y1]] = [range(0), range(1)];
    const x = (value) => LEFT + ((value - x0) / (x1 - x0)) * (WIDTH - LEFT - 10);
    const y = (value) => 10 + ((y1 - value) / (y1 - y0)) * (HEIGHT - BOTTOM - 14);
    const ticks = (low, high) => [0, 0.25, 0.5, 0.75, 1].map((part) => low + part * (high - low));
    const grid = [
      ...ticks(y0, y1).map((value) => [svg("line", { x1: LEFT, x2: WIDTH - 10, y1: y(value), y2: y(value), stroke: "currentColor", opacity: 0.15 }), svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, format(Number(value.toPrecision(3))))]),
      ...ticks(x0, x1).map((value) => svg("text", { x: x(value), y: HEIGHT - 8, "text-anchor": "middle" }, Math.round(value).toLocaleString("en-US"))),
    ];
    const lines = curves.map(({ points: own, color, dashed }) =>
      svg("polyline", { points: own.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" "), fill: "none", stroke: color, "stroke-width": 2, "stroke-dasharray": dashed ? "6 4" : "none" }));
    const keys = curves.map(({ label, color }) => {
      const key = h("span", { class: "key" });
      key.style.background = color;
      return h("span", {}, key, label);
    });
    this.replaceChildren(
      h("div", { class: "facts-line" }, keys),
      svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${names.y} / ${names.x}` }, grid, lines),
    );
  }
}

customElements.define("line-chart", LineChart);

export function lineChart(curves, names) {
  const chart = document.createElement("line-chart");
  chart.show(curves, names);
  return chart;
}
