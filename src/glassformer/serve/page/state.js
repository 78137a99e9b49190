// The view and its settings live in the address: #flow?text=...&stage=...

const listeners = new Set();

export function read() {
  const [view, query = ""] = location.hash.slice(1).split("?");
  return { view, ...Object.fromEntries(new URLSearchParams(query)) };
}

// A whole number in the address, from 0 to below size; otherwise the fallback.
export function readIndex(name, size = Infinity, fallback = 0) {
  const value = Number(read()[name] ?? Number.NaN);
  return Number.isInteger(value) && value >= 0 && value < size ? value : fallback;
}

export function address(changes) {
  const { view, ...settings } = { ...read(), ...changes };
  const query = new URLSearchParams(
    Object.entries(settings).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  );
  return `#${view}${query.size ? `?${query}` : ""}`;
}

export function write(changes, { replace = true } = {}) {
  const hash = address(changes);
  if (hash === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
}

// Fires for the back button, and for addresses that are typed.
addEventListener("popstate", () => listeners.forEach((listener) => listener()));

export function go(changes) {
  write(changes, { replace: false });
  for (const listener of listeners) listener();
}

export function onNavigate(listener) {
  listeners.add(listener);
}

// What the model reads, as the server expects it.
export function readInput(kind) {
  const state = read();
  if (kind === "class") return { label: state.label, seed: readIndex("seed") };
  if (kind === "image") return pictures.has(state.picture) ? { image: pictures.get(state.picture) } : {};
  if (kind === "user") return { user: state.user, item: state.item };
  return { text: state.text ?? "", target: state.target };
}

// Pictures are too long for an address; a reload forgets them.
export const pictures = new Map();
