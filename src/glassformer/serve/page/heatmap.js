// <heat-map>: a matrix on a canvas. A cell is chosen with the mouse or the arrow keys.
//
// map.show({shape: [rows, columns], data}, {rows, columns, signed, limit, label, cell, chosen})
// sends the events "choose" and "hover" with {row, column, value}. Numbers of -infinity, which
// stand for masked cells, are gray squares.

import { hidden, isDarkColor, makeScale, missing } from "./colors.js";
import { format } from "./dom.js";

const MAX_PIXELS = 2048; // per side of the canvas
const LABEL_SIZE = 12;

class HeatMap extends HTMLElement {
  connectedCallback() {
    if (this.canvas) return;
    this.canvas = document.createElement("canvas");
    this.append(this.canvas);
    this.addEventListener("click", (event) => this.chooseAt(event, "choose"));
    this.addEventListener("mousemove", (event) => this.chooseAt(event, "hover"));
    this.addEventListener("keydown", (event) => this.moveWithKeys(event));
  }

  show(matrix, options = {}) {
    this.connectedCallback();
    this.matrix = matrix;
    this.options = options;
    const label = options.label ?? "";
    if (options.thumbnail) this.setAttribute("aria-hidden", "true");
    else {
      this.setAttribute("role", "img");
      this.setAttribute("aria-label", `${label} ${matrix.shape.join(" × ")}`.trim());
      this.tabIndex = 0;
    }
    this.observer ??= new ResizeObserver(() => { if (!this.fits()) this.redraw(); });
    if (matrix.data.length) this.draw(); // a value may have no numbers, as for a text of one token
  }

  fits() {
    return !this.size || Math.abs(this.measureRoom() - this.room) < 2;
  }

  redraw() {
    if (this.isConnected && this.matrix?.data.length) this.draw();
  }

  get limit() {
    if (this.options.limit) return this.options.limit;
    let limit = 0;
    for (const value of this.matrix.data) {
      if (Number.isFinite(value)) limit = Math.max(limit, Math.abs(value));
    }
    return limit;
  }

  measure() {
    const [rows, columns] = this.matrix.shape;
    const { rows: rowNames, columns: columnNames, thumbnail } = this.options;
    const room = this.measureRoom() - 4;
    const longest = (names) => Math.max(0, ...(names ?? []).map((name) => [...name].length));
    const left = rowNames && !thumbnail ? Math.min(longest(rowNames), 14) * 7.5 + 10 : 0;
    const top = columnNames && !thumbnail ? Math.min(longest(columnNames), 14) * 6.5 + 12 : 0;
    const most = this.options.cell ?? 34;
    const least = thumbnail || columns > MAX_PIXELS ? 0 : 1; // more columns than pixels share them
    const width = Math.max(least, Math.min(most, (room - left) / columns));
    const tall = Math.max(least, Math.min(most, Math.max(width, rowNames ? 16 : 4), this.options.cellHeight ?? most));
    const height = thumbnail || this.options.square ? width : tall;
    return { rows, columns, left, top, width, height };
  }

  measureRoom() {
    const parent = this.parentElement;
    if (!parent?.clientWidth) return 600;
    const style = getComputedStyle(parent);
    return parent.clientWidth - Number.parseFloat(style.paddingLeft) - Number.parseFloat(style.paddingRight);
  }

  draw() {
    const size = (this.size = this.measure());
    this.room = this.measureRoom();
    if (this.parentElement && !this.options.thumbnail) this.observer.observe(this.parentElement);
    const { rows, columns, left, top } = size;
    const full = [left + size.width * columns, top + size.height * rows];
    const ratios = full.map((side) => Math.min(devicePixelRatio || 1, MAX_PIXELS / side));
    this.canvas.width = Math.ceil(full[0] * ratios[0]);
    this.canvas.height = Math.ceil(full[1] * ratios[1]);
    this.canvas.style.width = `${full[0]}px`;
    this.canvas.style.height = `${full[1]}px`;
    const context = this.canvas.getContext("2d");
    context.scale(...ratios);
    this.drawCells(context);
    if (!this.options.thumbnail) this.drawLabels(context);
  }

  drawCells(context) {
    const { rows, columns, left, top, width, height } = this.size;
    const color = makeScale(this.limit, this.options.signed);
    const image = new ImageData(columns, rows);
    const { data } = this.matrix;
    const [stripe, ground] = hidden();
    const nothing = missing();
    for (let i = 0; i < rows * columns; i++) {
      const value = data[i];
      let rgb;
      if (value === -Infinity) rgb = ((i % columns) + Math.floor(i / columns)) % 2 ? stripe : ground;
      else rgb = Number.isFinite(value) ? color(value) : nothing;
      image.data.set([...rgb, 255], 4 * i);
    }
    const small = new OffscreenCanvas(columns, rows);
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, left, top, width * columns, height * rows);
    if (this.options.numbers && width >= 30 && height >= 16) this.drawNumbers(context, color);
    const { chosen } = this.options;
    if (chosen) {
      context.strokeStyle = "#d97706";
      context.lineWidth = 2;
      context.strokeRect(
        left + chosen[1] * width + 1, top + chosen[0] * height + 1,
        Math.max(width - 2, 3), Math.max(height - 2, 3),
      );
    }
  }

  drawNumbers(context, color) {
    const { rows, columns, left, top, width, height } = this.size;
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const value = this.matrix.data[row * columns + column];
        if (!Number.isFinite(value)) continue;
        context.fillStyle = isDarkColor(color(value)) ? "#fff" : "#111";
        const text = Math.abs(value) < 0.005 ? "0" : value.toFixed(Math.abs(value) < 10 ? 2 : 0);
        context.fillText(text, left + (column + 0.5) * width, top + (row + 0.5) * height);
      }
    }
  }

  drawLabels(context) {
    const { left, top, width, height } = this.size;
    const { rows, columns } = this.options;
    context.fillStyle = getComputedStyle(this).color;
    context.font = `${LABEL_SIZE}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const shorten = (name) => ([...name].length > 14 ? `${[...name].slice(0, 13).join("")}…` : name);
    if (rows) {
      const step = Math.ceil(LABEL_SIZE / height);
      context.textAlign = "right";
      rows.forEach((name, i) => {
        if (i % step === 0) context.fillText(shorten(name), left - 6, top + (i + 0.5) * height);
      });
    }
    if (columns) {
      const step = Math.ceil(LABEL_SIZE / width);
      context.textAlign = "left";
      columns.forEach((name, i) => {
        if (i % step) return;
        context.save();
        context.translate(left + (i + 0.5) * width, top - 6);
        context.rotate(-Math.PI / 3);
        context.fillText(shorten(name), 0, 0);
        context.restore();
      });
    }
  }

  locate(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.size.left) / this.size.width);
    const row = Math.floor((event.clientY - box.top - this.size.top) / this.size.height);
    const isInside = row >= 0 && column >= 0 && row < this.size.rows && column < this.size.columns;
    return isInside ? [row, column] : null;
  }

  chooseAt(event, kind) {
    const cell = this.matrix && this.locate(event);
    if (!cell) return;
    if (kind === "hover") this.title = this.describe(cell);
    this.send(kind, cell);
  }

  describe([row, column]) {
    const { rows, columns } = this.options;
    const value = this.matrix.data[row * this.size.columns + column];
    return `${rows?.[row] ?? row}, ${columns?.[column] ?? column}: ${format(value)}`;
  }

  send(kind, [row, column]) {
    const value = this.matrix.data[row * this.size.columns + column];
    this.dispatchEvent(new CustomEvent(kind, { detail: { row, column, value } }));
  }

  moveWithKeys(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (!move || !this.matrix || this.options.thumbnail) return;
    event.preventDefault();
    const [row, column] = this.options.chosen ?? [0, -move[1]];
    const next = [
      Math.max(0, Math.min(this.size.rows - 1, row + move[0])),
      Math.max(0, Math.min(this.size.columns - 1, column + move[1])),
    ];
    this.options.chosen = next;
    this.draw();
    this.send("choose", next);
  }
}

customElements.define("heat-map", HeatMap);

export function heatMap(matrix, options) {
  const map = document.createElement("heat-map");
  requestAnimationFrame(() => map.show(matrix, options));
  return map;
}
