// The page: header with what the model reads, views as tabs, and the view in the URL.

import { ask, isExported, omitted } from "./api.js";
import { attention } from "./attention.js";
import { button, card, failure, h, integer, note, select } from "./dom.js";
import { edit } from "./edit.js";
import { flow } from "./flow.js";
import { lens } from "./lens.js";
import { next } from "./next.js";
import { patch } from "./patch.js";
import { address, go, onNavigate, pictures, read, readIndex, write } from "./state.js";
import { label, language, setLanguage, t } from "./text.js";
import { training } from "./training.js";
import { walk } from "./walk.js";

const VIEWS = {
  flow: [label("Flow"), flow], attention: [label("Attention"), attention], next: [label("Next token"), next],
  edit: [label("What if"), edit],
  lens: [label("Lens"), lens], patch: [label("Patch"), patch], training: [label("Training"), training], walk: [label("Walk"), walk],
};
// Settings that no longer fit when the model reads something else.
const FORGOTTEN = {
  stage: null, cell: null, entry: null, added: null, off: null, without: null, corrupt: null,
  changed: null, layer: null, head: null,
};

const main = document.getElementById("main");
const status = document.getElementById("status");
const MOVED = { stage: null, cell: null, entry: null, head: null }; // settings of a single view
let model = null;
let shown = 0;
let lastText;

function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // storage can be switched off; the choice then lasts until the page is closed
  }
}

function recall(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function header() {
  const facts = [model.architecture, t("{n} parameters", { n: integer(model.parameters) }), model.is_shipped ? t("the model that comes with Glassformer") : model.name];
  const theme = () => (document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  const themeButton = button(theme() === "dark" ? t("Dark") : t("Light"), () => {
    document.documentElement.dataset.theme = theme();
    remember("theme", document.documentElement.dataset.theme);
    start();
  });
  const languageButton = button(language() === "zh" ? "English" : "中文", async () => {
    const other = language() === "zh" ? "en" : "zh";
    write({ lang: other });
    await setLanguage(other);
    start();
  }, { lang: language() === "zh" ? "en" : "zh" });
  return [
    h("div", { class: "bar" }, h("h1", {}, icon(), "Glassformer"), h("span", { class: "facts" }, facts.join(" · ")), languageButton, themeButton),
    isExported ? exportNote() : reading(),
  ];
}

function icon() {
  const image = document.getElementById("icon");
  return h("img", { src: image ? image.dataset.src : "icon.svg", alt: "", width: 24, height: 24 });
}

function exportNote() {
  const left = omitted.length
    ? h("details", { class: "note" }, h("summary", {}, t("Left out to keep the file small: {n} parts", { n: omitted.length })), omitted.join(", "))
    : null;
  return h("div", { class: "reading" }, h("p", { class: "note" }, t("An exported page: “{text}”.", { text: model.text })), left);
}

// A form for what the model reads.
function reading() {
  const state = read();
  const submit = (changes) => go({ ...FORGOTTEN, ...changes });
  const forms = {
    text: () => [wide(t("text"), "text", state.text)],
    pair: () => [wide(t("source text"), "text", state.text), wide(t("translation (empty: the model's own)"), "target", state.target)],
    class: () => [
      h("label", { class: "field" }, h("span", {}, t("class")), select(model.labels.map((name) => [name, name]), state.label, () => {}, { name: "label" })),
      h("label", { class: "field" }, h("span", {}, t("seed")), h("input", { name: "seed", type: "number", min: 0, step: 1, value: String(readIndex("seed")) })),
    ],
    user: () => [wide(t("user"), "user", state.user ?? model.text), model.traits.includes("rater") ? wide(t("item"), "item", state.item) : null],
    image: () => [h("label", { class: "field" }, h("span", {}, t("image file")), h("input", { type: "file", accept: "image/png,image/jpeg", name: "file" }))],
  };
  return h("form", { class: "reading", onsubmit: async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.target));
    if (values.file) {
      if (!values.file.size) return;
      const picture = String(pictures.size + 1);
      pictures.set(picture, await readFile(values.file));
      submit({ picture });
    } else submit(values);
  } }, forms[model.reads](), h("button", { class: "primary", type: "submit" }, t("Look")));
}

function wide(label, name, value) {
  return h("label", { class: "field wide" }, h("span", {}, label), h("input", { name, value: value ?? "", autocomplete: "off" }));
}

async function readFile(file) {
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  return url.slice(url.indexOf(",") + 1);
}

function tabs() {
  const choose = (event, name) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab or window
    event.preventDefault();
    go({ view: name, ...MOVED });
  };
  return h("ul", {}, model.views.map((name) =>
    h("li", {}, h("a", { "data-view": name, onclick: (event) => choose(event, name) }, t(VIEWS[name][0])))));
}

// Marks the current view, and lets the links keep what the model reads.
function markTab(view) {
  const nav = document.getElementById("nav");
  for (const link of nav.querySelectorAll("a")) {
    link.href = address({ view: link.dataset.view, ...MOVED });
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const tab = nav.querySelector("[aria-current]");
  nav.firstChild.scrollLeft = tab.offsetLeft - nav.clientWidth / 2 + tab.offsetWidth / 2;
}

// The controls above the views; they stay while a view changes, so that a typed text is not lost.
function frame() {
  document.getElementById("header").replaceChildren(...header());
  const nav = document.getElementById("nav");
  nav.setAttribute("aria-label", t("Views"));
  nav.replaceChildren(tabs());
  document.getElementById("skip").textContent = t("Skip to content");
}

function fillHeader(state) {
  for (const control of document.querySelectorAll("header [name]")) {
    if (control.type !== "file" && state[control.name] !== undefined && document.activeElement !== control) {
      control.value = state[control.name];
    }
  }
}

async function show() {
  const number = ++shown;
  const state = read();
  const view = model.views.includes(state.view) ? state.view : model.views[0];
  const settings = { view };
  if ((model.reads === "text" || model.reads === "pair") && state.text === undefined) settings.text = model.text;
  if (model.reads === "class" && state.label === undefined) settings.label = model.labels[0];
  if (model.reads === "image" && state.picture && !pictures.has(state.picture)) settings.picture = null;
  write(settings);
  if (read().text !== lastText) fillHeader(read());
  lastText = read().text;
  markTab(view);
  document.title = `${t(VIEWS[view][0])} – ${model.name} – Glassformer`;
  const waiting = setTimeout(() => { if (number === shown) status.textContent = t("Loading …"); }, 300);
  let content;
  try {
    content = await VIEWS[view][1](model);
  } catch (error) {
    content = card(null, failure(error));
  }
  clearTimeout(waiting);
  if (number !== shown) return;
  status.textContent = "";
  const hint = model.reads === "image" && !read().picture ? card(null, note(t("The model reads a gray image until you choose a file above."))) : null;
  main.replaceChildren(...[h("h2", { class: "sr-only" }, t(VIEWS[view][0])), hint, content].flat().filter(Boolean));
}

async function start() {
  const preferred = recall("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = preferred;
  const spoken = read().lang ?? recall("lang") ?? (navigator.language.startsWith("zh") ? "zh" : "en");
  remember("lang", spoken);
  await setLanguage(spoken);
  try {
    model = await ask("model");
  } catch (error) {
    main.replaceChildren(card(null, failure(error)));
    return;
  }
  frame();
  lastText = undefined;
  await show();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
onNavigate(() => model && show());
start();
