// The page: one picture or a grid of them, a class by a few letters, and what is known about each.
//
//   letters        find a class                    0–9, A–Z    choose one of those found
//   Enter          label                           ↑ ↓         move among results, or up and down the suggestion
//   .              label, and not deeper           ?           cannot tell
//   !              not in the tree                 #           wrong picture
//   +              a new class                     ← →         the sample before, the next
//   Ctrl+Z, Ctrl+Y undo, redo                      Ctrl+G      grid or single picture

import { get, post } from "/page/asking.js";
import { at, bar, curve, make, percent } from "/page/parts.js";
import { Names, SHOWN } from "/page/search.js";

const KEYS = "1234567890ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const WORDS = { only: "not deeper", cant_tell: "can't tell", not_in_tree: "not in the tree", wrong_picture: "wrong picture" };
const MARKS = { "?": "cant_tell", "!": "not_in_tree", "#": "wrong_picture" };
const MANY = 60;
const MEANWHILE = "somebody else has answered this one meanwhile";

const tree = { names: [], levels: [], parents: [], often: [], search: new Names() };
let about = {}; // what the server told at the start, and its progress since
let list = []; // samples of the queue that were fetched
let total = 0, here = 0; // samples in the queue; the one that is shown
let detail = null; // everything about the one on the screen; answers are about this, at this version
let sending = -1; // number of the sample whose answer is on its way
let requests = 0, loading = false; // how often another queue or sample was asked for; whether the latest is still to come
let found = [], chosen = 0; // classes that match the letters; the one that Enter takes
let level = -1; // place in the suggested path that Enter takes; -1 for none
let grid = false;
let since = performance.now(); // when this sample was first seen
let busy = Promise.resolve(); // answers are sent one after the other
let fresh = false; // whether the model has learned, or asks for others, since the queue was read
const marked = new Set(); // numbers of samples selected in the grid
let cursor = 0, anchor = 0;

// ---- the tree ---------------------------------------------------------------------------------------------------------

async function readTree() {
  const said = await get(`/api/tree?since=${tree.names.length}`);
  for (const name of said.names) tree.search.add(name);
  tree.names.push(...said.names);
  tree.levels.push(...said.levels);
  tree.parents.push(...said.parents);
  tree.often.push(...said.often);
  for (const [node, name] of said.synonyms) tree.search.add(name, node);
  for (const node of said.hidden) tree.search.hidden.add(node);
  tree.gone = new Set(said.gone);
  for (const node of said.gone) tree.search.hidden.add(node);
  for (let node = said.since; node < tree.names.length; node++) if (!said.hidden.includes(node)) tree.search.hidden.delete(node);
}

function pathOf(node) {
  const path = [];
  for (let one = node; one >= 0; one = tree.parents[one]) path.unshift(one);
  return path;
}

const nameOf = (node) => (node < 0 ? "–" : tree.names[node]);
const pathText = (node) => (node < 0 ? "no label" : pathOf(node).map(nameOf).filter(Boolean).join(" › "));
const levelOf = (node) => about.levels[tree.levels[node]];

/** How a class ranks among equal matches: by what the model thinks of this picture, then by how often it is a label. */
function weight(node) {
  const think = detail && !grid ? detail.thinks.flat().find((one) => one[0] === node) : undefined;
  return (think ? 1e6 * think[1] : 0) + (tree.often[node] || 0);
}

// ---- queues -----------------------------------------------------------------------------------------------------------

function queueAddress(start) {
  const name = at("queue").value, wanted = at("wanted").value;
  const takes = about.queues.find((one) => one.name === name).takes;
  const more = new URLSearchParams({ name, at: start, count: MANY });
  if (takes === "text") more.set("text", wanted);
  if (takes === "node") more.set("node", tree.search.find(wanted, weight)[0] ?? -1);
  return `/api/queue?${more}`;
}

/** What the server answers, or nothing if something else was asked for meanwhile. Until then the page is busy. */
async function latest(ask) {
  const mine = ++requests;
  document.body.setAttribute("aria-busy", loading = true);
  try {
    const said = await ask();
    return mine === requests ? said : undefined;
  } finally {
    if (mine === requests) document.body.setAttribute("aria-busy", loading = false);
  }
}

/** The queue from its beginning. `again` says that nobody asked for it: see `show`. */
async function readQueue(again = false) {
  const name = at("queue").value, takes = about.queues.find((one) => one.name === name).takes;
  at("wanted").hidden = !takes;
  at("wanted").placeholder = takes === "node" ? "letters of a class" : "part of a name or folder";
  if (takes && !at("wanted").value) { list = []; total = 0; return show(); }
  const said = await latest(() => get(queueAddress(0)));
  if (!said) return;
  [list, total, here, cursor] = [said.samples, said.total, 0, 0];
  marked.clear();
  await show(again);
}

async function readMore() {
  const said = await get(queueAddress(list.length));
  const known = new Set(list.map((one) => one.i));
  list.push(...said.samples.filter((one) => !known.has(one.i)));
  total = Math.max(said.total, list.length);
}

const step = (by) => guard(async () => {
  if (here + by < 0) return;
  if (here + by >= list.length) {
    const before = list.length;
    const said = await get(queueAddress(0)); // what was answered has left the queue
    const known = new Set(list.map((one) => one.i));
    list.push(...said.samples.filter((one) => !known.has(one.i)));
    if (list.length === before && list.length < total) await readMore();
    if (list.length === before) { tell("the end of this queue; choose another"); return; }
  }
  here += by;
  await show();
});

// ---- showing ----------------------------------------------------------------------------------------------------------

/** The grid, or the one at `here`. Shown `again` because the model learned, it keeps the version that its reader has seen, so that answers of others meet the conflict. */
async function show(again = false) {
  at("single").hidden = grid;
  at("grid").hidden = !grid;
  at("view").textContent = grid ? "single" : "grid";
  clear();
  if (grid) return showGrid();
  if (!list.length) { await latest(async () => detail = null); at("place").textContent = "nothing in this queue"; return showEmpty(); }
  const said = await latest(() => get(`/api/sample/${list[here].i}`));
  if (!said || grid) return;
  const seen = again && detail?.i === said.i ? detail.version : said.version;
  if (seen !== said.version) tell(MEANWHILE);
  detail = { ...said, version: seen };
  list[here] = { ...list[here], ...detail };
  since = performance.now();
  showSingle();
  for (const next of list.slice(here + 1, here + 3)) if (about.pictures) new Image().src = `/picture/${next.i}?size=large`;
}

function showEmpty() {
  for (const id of ["now", "asked", "suggestion", "results", "thinks", "examples", "history", "key"]) at(id).replaceChildren();
  at("picture").removeAttribute("src");
}

function showSingle() {
  at("place").textContent = `${here + 1} of ${total}`;
  const picture = at("picture");
  picture.hidden = !about.pictures;
  if (about.pictures) picture.src = `/picture/${detail.i}?size=large`;
  picture.alt = detail.key;
  at("key").textContent = about.pictures ? detail.key : `row ${detail.key}: the data holds features, no pictures`;
  const said = detail.what && WORDS[detail.what] ? ` (${WORDS[detail.what]})` : "";
  at("now").replaceChildren(make("span", { class: "soft" }, "label "), make("strong", {}, pathText(detail.node) + said));
  if (detail.doubt) at("now").append(make("p", { class: "wrong" }, `doubted: ${detail.doubt.reason}`, detail.doubt.node >= 0 ? ` – perhaps ${nameOf(detail.doubt.node)} (${percent(detail.doubt.share)})` : ""));
  level = detail.suggested ? detail.path.findIndex((one) => one[0] === detail.suggested[0]) : -1;
  if (detail.asked) level = Math.min(level, detail.path.findLastIndex((one) => tree.levels[one[0]] <= detail.asked[0])); // deeper is not asked
  showAsked();
  showSuggestion();
  at("keys").replaceChildren(...actions());
  showThinks();
  showExamples();
  showHistory();
}

/** What the question is: down to which level an answer is enough, and why this sample. */
function showAsked() {
  const [deep, why] = detail.asked ?? [];
  at("asked").hidden = deep === undefined;
  if (deep === undefined) return;
  const last = deep === about.levels.length - 1;
  at("asked").title = why;
  at("asked").replaceChildren(make("strong", {}, `${about.levels[deep]}?`), make("span", { class: "soft" }, last ? "" : ` Down to the ${about.levels[deep]} is enough.`));
}

function showSuggestion() {
  const box = at("suggestion");
  if (detail.blind) return box.replaceChildren(make("p", { class: "soft" }, "Asked without a suggestion, to measure how often people agree with it."));
  if (!detail.path.length) return box.replaceChildren(make("p", { class: "soft" }, about.learning.model ? "no suggestion" : "no suggestion yet: label some, then train"));
  const chips = detail.path.map(([node, share], k) => make("button", { class: k === level ? "chip on" : "chip", onclick: () => { level = k; showSuggestion(); at("search").focus(); } }, nameOf(node), " ", make("small", {}, percent(share))));
  box.replaceChildren(make("span", { class: "soft" }, "suggested "), ...chips, make("span", { class: "soft small" }, level >= 0 ? "  Enter accepts, ↑ goes up" : "  not sure enough: ↓ takes it"));
}

function actions() {
  const one = (key, text, act) => make("button", { class: "action", onclick: act }, make("kbd", {}, key), ` ${text}`);
  return [
    one("Enter", "label", () => accept("label")), one(".", "not deeper", () => accept("only")), one("?", "can't tell", () => accept("cant_tell")),
    one("!", "not in the tree", () => accept("not_in_tree")), one("#", "wrong picture", () => accept("wrong_picture")), one("+", "new class", addClass), one("→", "skip", () => step(1)),
  ];
}

function showThinks() {
  const columns = detail.thinks.map((level, k) => make("div", {}, make("h3", {}, about.levels[k]), ...level.map(([node, share]) => {
    const line = bar(share, nameOf(node), " ", make("small", {}, percent(share)));
    line.addEventListener("click", () => send("label", node));
    return line;
  })));
  at("thinks").replaceChildren(...columns, columns.length && !detail.calibrated ? make("p", { class: "soft small" }, "not calibrated yet: too few labels were set aside") : "");
}

function thumb(i, alt) {
  return about.pictures ? make("img", { src: `/picture/${i}?size=small`, alt, loading: "lazy" }) : make("span", { class: "row" }, `row ${alt}`);
}

function showExamples() {
  at("examples").replaceChildren(...detail.examples.map(([node, samples]) => make("div", { class: "example" }, make("button", { class: "link", onclick: () => send("label", node) }, nameOf(node)), make("div", { class: "row" }, ...samples.map((i) => thumb(i, nameOf(node)))))));
}

function showHistory() {
  const lines = detail.history.map((one) => make("li", { class: one.counts ? "" : "undone" }, `${one.by || "somebody"}, ${one.at.slice(0, 16).replace("T", " ")}: ${one.path.filter(Boolean).join(" › ")} ${WORDS[one.what] || ""}`));
  if (detail.given >= 0) lines.unshift(make("li", {}, `the data: ${pathText(detail.given)}`));
  at("history").replaceChildren(lines.length ? make("h3", {}, "what was said") : "", make("ul", {}, ...lines));
}

function showProgress(said) {
  if (said) about = { ...about, ...said, samples: about.samples }; // answers tell which samples they are about, not how many there are
  const all = about.samples, names = ["no label", ...about.levels];
  at("depths").replaceChildren(...about.depths.map((count, k) => make("span", { class: "depth" }, bar(count / all, `${names[k]} ${count.toLocaleString("en")}`))));
  const paid = about.cost === null ? "" : `, cost ${about.cost.toLocaleString("en")}`;
  const cost = paid + (about.median === null ? "" : `, ${(about.seconds / 60).toFixed(1)} min, ${about.median} s each`);
  const agree = ([right, of]) => (of ? `${right} of ${of}` : "–");
  const marks = Object.entries(WORDS).filter(([what]) => about.marks[what]).map(([what, word]) => `${about.marks[what]} ${word}`);
  const blind = about.agreement.shown[1] + about.agreement.blind[1] ? `agree with the suggestion: ${agree(about.agreement.shown)} who saw it, ${agree(about.agreement.blind)} who did not` : "";
  at("told").textContent = [`${about.answers} answers${cost}`, ...marks, blind, learningText()].filter(Boolean).join(" · ");
  at("curve").replaceChildren(...curve(about.trainings, about.levels));
  at("train").disabled = !about.learning.ready || about.learning.training;
  at("train").textContent = about.learning.training ? "training…" : about.learning.since ? `train (+${about.learning.since})` : "train";
}

function learningText() {
  const now = about.learning;
  if (now.features) return `features ${now.features[0].toLocaleString("en")} of ${now.features[1].toLocaleString("en")}; you can label meanwhile`;
  if (now.fault) return `learning: ${now.fault}`;
  return now.ready ? "" : "learning starts";
}

// ---- the grid ---------------------------------------------------------------------------------------------------------

function showGrid() {
  at("place").textContent = `${list.length} of ${total}`;
  at("cells").replaceChildren(...list.map((one, k) => cell(one, k)));
  at("more").hidden = list.length >= total;
  showBulk();
}

function cell(one, k) {
  const said = one.what && WORDS[one.what] ? WORDS[one.what] : one.node >= 0 ? nameOf(one.node) : one.suggested ? `${nameOf(one.suggested[0])}? ${percent(one.suggested[1])}` : "–";
  const kind = one.node >= 0 || one.what ? "caption" : "caption soft";
  return make("li", { class: [marked.has(one.i) ? "on" : "", k === cursor ? "cursor" : ""].join(" "), onclick: (event) => pick(k, event.shiftKey), ondblclick: () => open(k) }, thumb(one.i, one.key), make("span", { class: kind }, said));
}

function showBulk() {
  const results = found.map((node, k) => make("button", { class: k === chosen ? "chip on" : "chip", onclick: () => { chosen = k; accept("label"); } }, make("kbd", {}, KEYS[k]), ` ${nameOf(node)}`));
  at("bulk").replaceChildren(make("strong", {}, `${marked.size} selected`), " ", make("span", { class: "soft" }, at("search").value ? `“${at("search").value}” ` : "Space or click selects, Shift to extend, Ctrl+A all; then type a class and Enter; ? ! # and . work, too. Double click opens one. "), ...results);
}

function pick(k, extend) {
  const range = extend ? [Math.min(anchor, k), Math.max(anchor, k)] : [k, k];
  for (let one = range[0]; one <= range[1]; one++) {
    const i = list[one].i;
    if (!extend && marked.has(i)) marked.delete(i); else marked.add(i);
  }
  cursor = anchor = k;
  showGrid();
}

function open(k) { here = k; grid = false; guard(show); }

function moveCursor(by, extend) {
  cursor = Math.max(0, Math.min(list.length - 1, cursor + by));
  if (extend) for (let one = Math.min(anchor, cursor); one <= Math.max(anchor, cursor); one++) marked.add(list[one].i); else anchor = cursor;
  showGrid();
  at("cells").children[cursor]?.scrollIntoView({ block: "nearest" });
}

function across() {
  const cells = [...at("cells").children];
  return Math.max(1, cells.filter((one) => one.offsetTop === cells[0]?.offsetTop).length);
}

// ---- answers ----------------------------------------------------------------------------------------------------------

/** What Enter takes: the class that is chosen among those found, or the place in the suggestion. */
function target() {
  if (at("search").value) return found[chosen] ?? null;
  return !grid && detail && level >= 0 ? detail.path[level][0] : null;
}

function accept(what) {
  if (what !== "label" && what !== "only") return send(what, null);
  const node = target();
  if (node === null) return tell(at("search").value ? "no class has these letters; + adds one" : "type a class first");
  return send(what, node);
}

function send(what, node) {
  if (!grid && detail?.i === sending) return;
  if (!grid && loading) return tell("the next one is still to come; then press it again"); // nobody has seen it
  const samples = grid ? list.filter((one) => marked.has(one.i)) : detail ? [detail] : [];
  if (!samples.length) return tell("select some first");
  const seconds = Math.min((performance.now() - since) / 1000, 1e5);
  const body = { samples: samples.map((one) => [one.i, one.version]), what, node, by: at("person").value, shown: grid || !!detail?.suggested, seconds };
  at("saved").textContent = "saving…";
  at("search").value = "";
  const was = { grid, i: samples[0].i };
  sending = grid ? -1 : was.i;
  busy = busy.then(() => guard(() => write(body, was)));
}

async function write(body, was) {
  let said;
  try {
    said = await post("/api/answer", body);
  } catch (refused) {
    at("saved").textContent = "not saved";
    sending = -1;
    if (refused.status !== 409) throw refused;
    return conflict(body, refused.said.conflict, was);
  }
  sending = -1;
  taken(said);
  if (body.node !== null) tree.often[body.node] = (tree.often[body.node] || 0) + body.samples.length;
  at("saved").textContent = `saved ${said.answers}`;
  marked.clear();
  if (was.grid) return showGrid(clear());
  if (list[here]?.i === was.i) await step(1);
}

function taken(said) {
  const now = new Map(said.samples.map((one) => [one.i, one]));
  list = list.map((one) => (now.has(one.i) ? { ...one, suggested: undefined, ...now.get(one.i) } : one));
  if (detail && now.has(detail.i)) detail.version = now.get(detail.i).version;
  showProgress(said);
}

function conflict(body, theirs, was) {
  at("both").replaceChildren(...theirs.slice(0, 5).map((one) => {
    const last = one.history.filter((each) => each.counts).at(-1);
    return make("p", {}, `${one.key}: ${last ? `${last.by || "somebody"} says ${last.path.filter(Boolean).join(" › ")} ${WORDS[last.what] || ""}` : "was undone"}; you say ${body.node === null ? "" : pathText(body.node)} ${WORDS[body.what] || ""}`);
  }));
  const dialog = at("conflict");
  dialog.addEventListener("close", () => guard(async () => {
    const versions = new Map(theirs.map((one) => [one.i, one.version]));
    list = list.map((one) => ({ ...one, ...theirs.find((each) => each.i === one.i) }));
    if (dialog.returnValue === "mine") return write({ ...body, samples: body.samples.map(([i, version]) => [i, versions.get(i) ?? version]) }, was);
    at("saved").textContent = "kept theirs";
    await show();
  }), { once: true });
  dialog.returnValue = "theirs";
  dialog.showModal();
}

const turn = (way) => { busy = busy.then(() => guard(async () => {
  const said = await post(`/api/${way}`, { by: at("person").value });
  taken(said);
  at("saved").textContent = way === "undo" ? "undone" : "redone";
  await readTree();
  const back = list.findIndex((one) => one.i === said.samples[0]?.i);
  if (said.samples.length && back < 0) { list.splice(here, 0, said.samples[0]); } else if (back >= 0) here = back;
  await show();
})); };

function addClass() {
  const parent = target() ?? -1;
  const under = parent >= 0 && tree.levels[parent] < about.levels.length - 1 ? parent : parent >= 0 ? tree.parents[parent] : -1;
  at("under").textContent = under >= 0 ? `under ${pathText(under)}` : `at the level ${about.levels[0]}`;
  at("new-name").value = "";
  const dialog = at("adding");
  dialog.addEventListener("close", () => guard(async () => {
    const name = at("new-name").value.trim();
    if (dialog.returnValue !== "add" || !name) return;
    const said = await post("/api/class", { parent: under, name, by: at("person").value });
    await readTree();
    showProgress(said);
    at("search").value = name;
    look();
    chosen = Math.max(found.indexOf(said.node), 0);
    showFound();
    at("search").focus();
  }), { once: true });
  dialog.returnValue = "no";
  dialog.showModal();
}

// ---- letters ----------------------------------------------------------------------------------------------------------

function look() {
  found = tree.search.find(at("search").value, weight, SHOWN);
  chosen = 0;
  showFound();
}

function showFound() {
  if (grid) return showBulk();
  at("results").replaceChildren(...found.map((node, k) => make("li", { class: k === chosen ? "on" : "", onclick: () => send("label", node) }, make("kbd", {}, KEYS[k]), ` ${nameOf(node)} `, make("small", { class: "soft" }, tree.parents[node] >= 0 ? nameOf(tree.parents[node]) : levelOf(node)))));
}

function clear() {
  at("search").value = "";
  found = [];
  at("results").replaceChildren();
  at("message").hidden = true;
}

function moveUp(by) {
  if (found.length) { chosen = (chosen + (by < 0 ? -1 : 1) + found.length) % found.length; return showFound(); }
  if (!detail?.path.length) return;
  level = Math.max(0, Math.min(detail.path.length - 1, level < 0 ? 0 : level + by));
  showSuggestion();
}

function key(event) {
  const typing = event.target.matches("input, select") && event.target !== at("search");
  if (typing || document.querySelector("dialog[open]") || event.isComposing) return;
  const control = event.ctrlKey || event.metaKey, pressed = event.key, box = at("search");
  const act = (what, ...how) => { event.preventDefault(); what(...how); };
  if (control) {
    if (pressed === "z") act(turn, event.shiftKey ? "redo" : "undo");
    else if (pressed === "y") act(turn, "redo");
    else if (pressed === "g") act(flip);
    else if (pressed === "a" && grid) act(() => { for (const one of list) marked.add(one.i); showGrid(); });
    return;
  }
  if (pressed === "Enter") return act(() => (grid && !box.value && !marked.size ? open(cursor) : accept("label")));
  if (pressed === "Escape") return act(() => { clear(); marked.clear(); if (grid) showGrid(); });
  if (pressed === "." && (box.value || !grid || marked.size)) return act(accept, "only");
  if (pressed in MARKS) return act(accept, MARKS[pressed]);
  if (pressed === "+") return act(addClass);
  if (pressed === "ArrowUp") return act(() => (grid && !found.length ? moveCursor(-across(), event.shiftKey) : moveUp(-1)));
  if (pressed === "ArrowDown") return act(() => (grid && !found.length ? moveCursor(across(), event.shiftKey) : moveUp(1)));
  if (!box.value && (pressed === "ArrowLeft" || pressed === "ArrowRight")) return act(() => { const by = pressed === "ArrowLeft" ? -1 : 1; grid ? moveCursor(by, event.shiftKey) : step(by); });
  if (grid && pressed === " " && !box.value) return act(() => list.length && pick(cursor, event.shiftKey));
  const place = pressed.length === 1 ? KEYS.indexOf(pressed) : -1;
  if (box.value && place >= 0 && place < found.length && (place > 9 || tree.search.chooses(box.value, pressed))) return act(() => { chosen = place; showFound(); });
  if (grid && (pressed === "Backspace" || pressed.length === 1)) return act(() => { box.value = pressed === "Backspace" ? box.value.slice(0, -1) : box.value + pressed; look(); });
  if (pressed.length === 1 && event.target !== box) { box.focus(); } // the letter lands in the box
}

// ---- beginning ----------------------------------------------------------------------------------------------------------

function tell(text) {
  at("message").textContent = text;
  at("message").hidden = false;
}

async function guard(work) {
  try { await work(); } catch (error) { tell(error.message); }
}

function flip() { grid = !grid; guard(async () => { if (grid) cursor = here; else if (list.length) here = cursor; await show(); }); }

async function follow() {
  await guard(async () => {
    const model = about.trainings.length, asked = about.learning.asked;
    const said = await get(`/api/changes?since=${about.number}`);
    const others = said.number !== about.number;
    if (said.classes) await readTree();
    showProgress(said);
    if (others) {
      const now = new Map(said.samples.map((one) => [one.i, one]));
      const selected = (i) => grid && marked.has(i); // answers to these, as to the one on the screen, must meet the conflict
      list = list.map((one) => (now.has(one.i) && !selected(one.i) ? { ...one, ...now.get(one.i) } : one));
      if (grid && said.samples.length) showGrid();
      const theirs = grid ? said.samples.some((one) => marked.has(one.i)) : detail && now.has(detail.i) && now.get(detail.i).version !== detail.version;
      if (theirs) tell(grid ? "somebody else has answered some of those selected meanwhile" : MEANWHILE);
    }
    fresh ||= about.trainings.length !== model || about.learning.asked !== asked;
    if (fresh && !loading && !at("search").value && !marked.size) { // suggestions and queues follow, but not in the place of what somebody asked for
      fresh = false;
      const now = list[here], queue = at("queue").value;
      if (queue === "next" || queue === "disagree") await readQueue(true); else if (now) await show(true);
    }
  });
  setTimeout(follow, about.learning.training || about.learning.features ? 700 : 2500);
}

async function begin() {
  about = await get("/api/start");
  document.title = `${about.data}: lht label`;
  at("data").textContent = about.data;
  at("queue").replaceChildren(...about.queues.map((one) => make("option", { value: one.name }, one.title)));
  if (about.queues.some((one) => one.name === "audit")) at("queue").value = "audit";
  at("person").value = localStorage.getItem("lht-label-person") ?? about.person;
  at("person").addEventListener("change", () => localStorage.setItem("lht-label-person", at("person").value));
  const theme = localStorage.getItem("lht-label-theme");
  if (theme) document.documentElement.dataset.theme = theme;
  at("theme").addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches, now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
    localStorage.setItem("lht-label-theme", document.documentElement.dataset.theme = now === "dark" ? "light" : "dark");
  });
  at("queue").addEventListener("change", () => { at("wanted").value = ""; guard(readQueue); at("queue").blur(); });
  at("wanted").addEventListener("change", () => { guard(readQueue); at("wanted").blur(); });
  at("search").addEventListener("input", look);
  at("undo").addEventListener("click", () => turn("undo"));
  at("redo").addEventListener("click", () => turn("redo"));
  at("view").addEventListener("click", () => { flip(); at("view").blur(); });
  at("more").addEventListener("click", () => guard(async () => { await readMore(); showGrid(); }));
  at("train").addEventListener("click", () => { at("train").blur(); guard(async () => showProgress(await post("/api/train", {}))); });
  document.addEventListener("keydown", key);
  await readTree();
  showProgress();
  await readQueue();
  if (about.strangers) tell(`${about.strangers} answers are about samples that the data does not have any more; they are kept`);
  document.documentElement.dataset.ready = "yes";
  setTimeout(follow, 1000);
}

guard(begin);
