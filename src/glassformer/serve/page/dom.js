// Elements: h("p", {class: "note"}, "text", child) and what views share to build them.

const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "open", "hidden"]);

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

const rounds = new WeakMap();

// Whether nothing newer has begun for the same element: const isLatest = begin(target)
export function begin(target) {
  const round = (rounds.get(target) ?? 0) + 1;
  rounds.set(target, round);
  return () => rounds.get(target) === round;
}

// New content; the focus stays on the control with the same data-focus.
export function replaceContent(target, ...children) {
  const key = target.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  target.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  const control = key && target.querySelector(`[data-focus="${CSS.escape(key)}"]`);
  if (control && !control.disabled) control.focus();
}

// Squares of color with what they stand for.
export function legend(entries) {
  return h("p", { class: "note" }, entries.map(([color, label]) => {
    const key = h("span", { class: "key" });
    key.style.background = color;
    return [key, `${label}  `];
  }));
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity));
  return element;
}

// Only for MathML from the server, which builds it from escaped parts.
export function math(markup) {
  const element = h("span", { class: "math" });
  element.innerHTML = markup;
  return element;
}

// A number with four significant digits, as it is shown everywhere.
export function format(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text =
    size >= 1e6 || size < 1e-4 ? value.toExponential(3) : String(Number(value.toPrecision(4)));
  return text.replace("-", "−");
}

export function percent(value) {
  if (value >= 0.9995 && value < 1) return ">99.9%";
  if (value > 0 && value < 0.0005) return "<0.1%";
  return `${(100 * value).toFixed(1)}%`;
}

export function integer(value) {
  return value.toLocaleString("en-US");
}

export function button(label, onclick, attributes = {}) {
  return h("button", { type: "button", onclick, ...attributes }, label);
}

export function field(label, control) {
  return h("label", { class: "field" }, h("span", {}, label), control);
}

export function select(options, chosen, onchange, attributes = {}) {
  return h(
    "select",
    { onchange: (event) => onchange(event.target.value), ...attributes },
    options.map(([value, label]) =>
      h("option", { value, selected: String(value) === String(chosen) }, label),
    ),
  );
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", {}, title) : null, ...children);
}

export function note(text) {
  return h("p", { class: "note" }, text);
}

export function failure(error) {
  return h("p", { class: "failure", role: "alert" }, error.message ?? String(error));
}

// Horizontal bars: rows of [label, value, extra class]; the longest is `limit`.
export function bars(rows, limit, shown = percent) {
  return h(
    "ol",
    { class: "bars" },
    rows.map(([label, value, kind]) => {
      const fill = h("span", { class: `fill ${kind ?? ""}` });
      fill.style.width = `${Math.max(0, Math.min(1, value / limit)) * 100}%`;
      return h(
        "li",
        {},
        h("span", { class: "label" }, label),
        h("span", { class: "track" }, fill),
        h("span", { class: "number" }, shown(value)),
      );
    }),
  );
}
