// Parts and summaries of tensors {shape, data}.

// The part at the first indices: part(x, [0, 2]) is x[0, 2].
export function part(tensor, index) {
  const rest = tensor.shape.slice(index.length);
  const size = rest.reduce((a, b) => a * b, 1);
  let start = 0;
  index.forEach((i, axis) => {
    start = (start + i) * (axis + 1 < index.length ? tensor.shape[axis + 1] : 1);
  });
  return { shape: rest, data: tensor.data.subarray(start * size, (start + 1) * size) };
}

// As a matrix: a vector becomes one row, further axes become rows.
export function asMatrix(tensor) {
  const columns = tensor.shape.at(-1) ?? 1;
  return { shape: [tensor.data.length / columns, columns], data: tensor.data };
}

export function row(matrix, index) {
  const columns = matrix.shape[1];
  return matrix.data.subarray(index * columns, (index + 1) * columns);
}

export function isSigned(data) {
  for (const value of data) if (value < 0 && Number.isFinite(value)) return true;
  return false;
}

export function highest(data) {
  let best = -Infinity;
  for (const value of data) if (value > best) best = value;
  return best;
}

export function softmax(logits, temperature = 1) {
  const best = highest(logits);
  const weights = Float64Array.from(logits, (value) => Math.exp((value - best) / temperature));
  let total = 0;
  for (const weight of weights) total += weight;
  return weights.map((weight) => weight / total);
}

// The indices of the largest numbers, the largest first.
export function largest(data, count) {
  return Array.from(data.keys())
    .sort((a, b) => data[b] - data[a])
    .slice(0, count);
}
