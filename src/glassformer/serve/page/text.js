// Texts of the page in English or Chinese.

let chosen = "en";
let catalog = {};

export function language() {
  return chosen;
}

export async function setLanguage(name) {
  chosen = name;
  document.documentElement.lang = name === "zh" ? "zh-CN" : "en";
  if (name === "zh" && !Object.keys(catalog).length) catalog = await loadCatalog();
}

async function loadCatalog() {
  const embedded = document.getElementById("catalog");
  if (embedded) return JSON.parse(embedded.textContent);
  return (await fetch("zh.json")).json();
}

// Marks a text that is translated where it is shown: t(label("Flow")).
export const label = (text) => text;

// t("{n} parameters", {n: 3})
export function t(text, values = {}) {
  const template = chosen === "zh" ? (catalog[text] ?? text) : text;
  return template.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}
