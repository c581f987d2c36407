// Tables of figures, of eight rows or more, and long ones can be sorted and filtered; wide ones scroll by keyboard, too. Nothing is asked of the network: it works from file://.
"use strict";

const LEAST = 8; // rows a table needs
const LONG = 25; // rows from which a table of words is searched, too
const MOST = 80; // choices a menu may hold

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};
const said = (row, column) => row.cells[column]?.textContent.trim() ?? "";
const figure = (text) => {
  const found = text.replace(/,(?=\d{3})/g, "").replace("−", "-").match(/^[^\d\w]*?(-?\d+(\.\d+)?)/);
  return found ? Number(found[1]) : NaN;
};

// Figures by size and words by the alphabet; what is blank comes last.
function compare(a, b, sign) {
  if (!a || !b) return (a ? 0 : 1) - (b ? 0 : 1);
  const [x, y] = [figure(a), figure(b)];
  return sign * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y);
}

function sortable(head, body) {
  [...head.cells].forEach((cell, column) => {
    const button = element("button", { type: "button", className: "sort", title: "sort by this column" }, ...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const sign = cell.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      body.append(...[...body.rows].sort((a, b) => compare(said(a, column), said(b, column), sign)));
    });
  });
}

// A menu for each column whose words repeat: methods, masks, levels.
function menus(head, rows) {
  return [...head.cells].flatMap((cell, column) => {
    const values = [...new Set(rows.map((row) => said(row, column)))].sort((a, b) => compare(a, b, 1));
    const repeats = values.length > 1 && values.length <= MOST && values.length <= rows.length / 2;
    if (!repeats || values.some((value) => value.includes("±"))) return [];
    const title = cell.textContent.trim() || "first column";
    const menu = element("select", {}, element("option", { value: "", textContent: "all" }), ...values.filter(Boolean).map((value) => new Option(value, value)));
    menu.dataset.column = column;
    return [element("label", {}, `${title} `, menu)];
  });
}

// Whether figures are few: such a table is read, not searched.
const ofWords = (table) => table.querySelectorAll("td.number").length < (table.tBodies[0]?.rows.length ?? 0) / 2;

// On a phone, three columns of words are too narrow: rows stand one under the other (site.css), each cell with its heading.
function titled(table) {
  const head = table.tHead?.rows[0];
  if (!head || !ofWords(table)) return;
  table.classList.add(head.cells.length < 3 ? "pairs" : "words");
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, column) => (cell.dataset.title = said(head, column)));
}

function filtered(table) {
  const [head, body] = [table.tHead?.rows[0], table.tBodies[0]];
  if (!head || !body || body.rows.length < LEAST) return;
  const rows = [...body.rows];
  if (ofWords(table) && rows.length < LONG) return;
  const words = element("input", { type: "search", size: 12 });
  const count = element("output", { textContent: `${rows.length} rows` });
  const choices = menus(head, rows);
  const form = element("form", { className: "filters" }, ...choices, element("label", {}, "containing ", words), count);
  const show = () => {
    const wanted = words.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const chosen = choices.every((label) => !label.lastChild.value || said(row, label.lastChild.dataset.column) === label.lastChild.value);
      row.hidden = !(chosen && wanted.every((word) => row.textContent.toLowerCase().includes(word)));
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  };
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  (table.closest(".table-wrapper") ?? table).before(form);
  sortable(head, body);
}

// What scrolls sideways must be within reach of the Tab key.
function reachable(wrapper) {
  const wide = wrapper.scrollWidth > wrapper.clientWidth;
  const said = { tabindex: "0", role: "region", "aria-label": `table ${wrapper.dataset.number}, scrolls sideways` };
  for (const [name, value] of Object.entries(said)) wide ? wrapper.setAttribute(name, value) : wrapper.removeAttribute(name);
}

document.addEventListener("DOMContentLoaded", () => {
  for (const cell of document.querySelectorAll("article table.docutils td")) cell.classList.toggle("number", /^[\d(+−-].{0,18}$/.test(cell.textContent.trim()));
  document.querySelectorAll("article table.docutils").forEach(titled);
  document.querySelectorAll("article table.docutils").forEach(filtered);
  const seen = new ResizeObserver((changes) => changes.forEach((change) => reachable(change.target)));
  document.querySelectorAll("article .table-wrapper").forEach((wrapper, i) => {
    wrapper.dataset.number = i + 1;
    seen.observe(wrapper);
  });
});
