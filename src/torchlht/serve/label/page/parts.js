// Small parts of the page. Names reach it as text only, never as markup.

/** An element with text or other elements inside. */
export function make(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...inside);
  return element;
}

export const at = (id) => document.getElementById(id);
export const percent = (share) => `${(100 * share).toFixed(share > 0.995 || share < 0.095 ? 1 : 0)} %`;

/** A bar from 0 to 1 with text on it; the width is a class, as styles in elements are forbidden here. */
export function bar(share, ...inside) {
  return make("div", { class: `bar w${Math.round(share * 20) * 5}` }, make("span", {}, ...inside));
}

const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

/** Accuracy after each training: a line per level, coarse → fine. */
export function curve(trainings, levels) {
  const some = trainings.filter((one) => Object.keys(one.accuracy).length);
  if (!some.length) return [];
  const width = 420, height = 110, left = 34, right = 110, most = Math.max(...some.map((one) => one.answers), 1);
  const drawn = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "accuracy after each training" });
  for (const share of [0, 0.5, 1]) {
    const y = 8 + (1 - share) * (height - 30);
    drawn.append(shape("line", { x1: left, x2: width - right, y1: y, y2: y, class: "rule" }), shape("text", { x: left - 6, y: y + 4, class: "tick end" }, `${100 * share}`));
  }
  drawn.append(shape("text", { x: left, y: height - 6, class: "tick" }, `0 to ${most} answers`));
  const labels = [];
  levels.forEach((level, k) => {
    const points = some.filter((one) => level in one.accuracy).map((one) => [left + (one.answers / most) * (width - left - right), 8 + (1 - one.accuracy[level]) * (height - 30)]);
    if (!points.length) return;
    drawn.append(shape("polyline", { points: points.map((p) => p.join(",")).join(" "), class: `line line${k % 4}` }));
    for (const [x, y] of points) drawn.append(shape("circle", { cx: x, cy: y, r: 2.2, class: `dot line${k % 4}` }));
    labels.push([points.at(-1)[1] + 4, `${level} ${percent(some.at(-1).accuracy[level] ?? 0)}`]);
  });
  labels.sort((a, b) => a[0] - b[0]);
  labels.forEach((label, i) => { if (i) label[0] = Math.max(label[0], labels[i - 1][0] + 12); });
  for (const [y, text] of labels) drawn.append(shape("text", { x: width - right + 8, y, class: "tick" }, text));
  return [drawn, make("p", { class: "soft small" }, `accuracy on ${some.at(-1).checked} ${some.at(-1).source}`)];
}
