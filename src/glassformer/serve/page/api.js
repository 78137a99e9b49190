// Requests to the server, or to the responses inside an exported page.

import { language, t } from "./text.js";

const store = document.getElementById("responses");
const exported = store ? JSON.parse(store.textContent) : null;
const recent = new Map();
const KEPT = 60;

export const isExported = exported !== null;
export const omitted = exported?.omitted ?? [];

// Equal requests have equal text, in whatever order their keys were set.
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const names = Object.keys(value).filter((name) => value[name] !== undefined).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

export async function ask(handler, request = {}, { fresh = false } = {}) {
  const key = `${handler} ${canonical(request)}`;
  const full = `${language()} ${key}`;
  if (!fresh && recent.has(full)) return recent.get(full);
  const response = exported ? readExported(handler, request) : fetchResponse(handler, request);
  recent.set(full, response);
  response.catch(() => recent.delete(full));
  if (recent.size > KEPT) recent.delete(recent.keys().next().value);
  return response;
}

async function readExported(handler, request) {
  const key = `${handler} ${canonical({ ...request, lang: language() })}`;
  const packed = exported.responses[key] ?? exported.responses[`${handler} ${canonical(request)}`];
  if (packed === undefined) throw new Error(t("This part is not in the exported file."));
  return unpack(Uint8Array.from(atob(packed), (char) => char.charCodeAt(0)).buffer);
}

async function fetchResponse(handler, request) {
  let response;
  try {
    response = await fetch(`api/${handler}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...request, lang: language() }),
    });
  } catch {
    throw new Error(t("The server does not answer: it was stopped. Start glass look again."));
  }
  if (response.ok) return unpack(await response.arrayBuffer());
  const { error } = await response.json().catch(() => ({ error: response.statusText }));
  throw new Error(error);
}

// serve/envelope.py describes the format. A tensor becomes {shape, data}.
function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const end = 4 + length;
  const text = new TextDecoder().decode(new Uint8Array(buffer, 4, length));
  return revive(JSON.parse(text), buffer, end);
}

function revive(value, buffer, start) {
  if (Array.isArray(value)) return value.map((item) => revive(item, buffer, start));
  if (value === null || typeof value !== "object") return value;
  if ("$tensor" in value) {
    const size = value.shape.reduce((a, b) => a * b, 1);
    return { shape: value.shape, data: new Float32Array(buffer, start + 4 * value.$tensor, size) };
  }
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [name, revive(item, buffer, start)]),
  );
}
