// Two color scales that color-blind readers can tell apart: light to dark blue, and orange to blue.

const SEQUENTIAL = {
  light: [[247, 250, 255], [198, 219, 239], [107, 174, 214], [33, 113, 181], [8, 48, 107]],
  dark: [[23, 27, 34], [21, 55, 94], [33, 104, 168], [107, 174, 214], [222, 238, 252]],
};
const DIVERGING = {
  light: [[153, 79, 0], [230, 150, 60], [248, 248, 248], [90, 150, 210], [0, 68, 136]],
  dark: [[253, 190, 110], [176, 96, 10], [30, 33, 40], [40, 105, 175], [150, 205, 255]],
};

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function mix(stops, position) {
  const scaled = Math.max(0, Math.min(1, position)) * (stops.length - 1);
  const index = Math.min(Math.floor(scaled), stops.length - 2);
  const part = scaled - index;
  return stops[index].map((low, i) => Math.round(low + (stops[index + 1][i] - low) * part));
}

function tabulate(stops) {
  return Array.from({ length: 256 }, (_, i) => mix(stops, i / 255));
}

// From a number to [r, g, b]: 0 to limit, or -limit to limit.
export function makeScale(limit, signed) {
  const table = tabulate((signed ? DIVERGING : SEQUENTIAL)[isDark() ? "dark" : "light"]);
  const size = limit || 1;
  return signed
    ? (value) => table[Math.round(Math.max(0, Math.min(1, (value / size + 1) / 2)) * 255)]
    : (value) => table[Math.round(Math.max(0, Math.min(1, value / size)) * 255)];
}

export function isDarkColor([r, g, b]) {
  return 0.299 * r + 0.587 * g + 0.114 * b < 140;
}

export const hidden = () => (isDark() ? [[52, 56, 64], [40, 44, 52]] : [[226, 228, 232], [240, 241, 244]]);
export const missing = () => (isDark() ? [60, 40, 60] : [240, 225, 240]);
