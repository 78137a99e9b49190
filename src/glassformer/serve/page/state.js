// The view and its settings live in the address: #flow?text=...&stage=...

const listeners = new Set();

export function read() {
  const [view, query = ""] = location.hash.slice(1).split("?");
  return { view, ...Object.fromEntries(new URLSearchParams(query)) };
}

export function write(changes, { replace = true } = {}) {
  const { view, ...settings } = { ...read(), ...changes };
  const query = new URLSearchParams(
    Object.entries(settings).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  );
  const hash = `#${view}${query.size ? `?${query}` : ""}`;
  if (hash === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
}

export function go(changes) {
  write(changes, { replace: false });
  for (const listener of listeners) listener();
}

export function onNavigate(listener) {
  listeners.add(listener);
  addEventListener("popstate", listener);
  addEventListener("hashchange", listener);
}

// What the model reads, as the server expects it.
export function readInput(kind) {
  const state = read();
  if (kind === "class") return { label: state.label, seed: Number(state.seed ?? 0) };
  if (kind === "image") return state.picture ? { image: pictures.get(state.picture) } : {};
  if (kind === "user") return { user: state.user, item: state.item };
  return { text: state.text ?? "", target: state.target };
}

// Pictures are too long for an address; a reload forgets them.
export const pictures = new Map();
