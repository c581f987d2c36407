// The page: what people do with it, and what they see.

const $ = id => document.getElementById(id);
const percent = p => `${p < 1 && p > 0.995 ? "> 99" : p > 0 && p < 0.005 ? "< 1" : Math.round(100 * p)} %`;
const GRID = 7, THUMB = 96, LARGEST = 640;

/** An element with text or other elements in it. Names are always text, never markup. */
function made(tag, about = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(about)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...inside);
  return element;
}

const state = { about: null, tree: null, run: null, items: [], shown: null, waiting: [], busy: false, allowed: null, only: [], exclude: [], stop: false };

// ---- how to answer ---------------------------------------------------------------------------------------------------

function wanted() {
  const risk = $("promise").value, chosen = state.about.promises.find(one => String(one.risk) === risk);
  if (chosen && !state.allowed) return { threshold: chosen.threshold, promise: `risk ${chosen.risk}` };
  const threshold = Number($("threshold").value) / 100;
  return { threshold, promise: threshold > 0 ? `confidence ${threshold}` : null };
}

const answerOf = item => answered(item.name, item.outputs, state.about, state.tree, { ...wanted(), allowed: state.allowed, top: 5 });

/** Runs the network on a picture's bytes: the outputs for one sample. */
const look = bytes => state.run(standardised(bytes, state.about.preprocess));

// ---- pictures come in ------------------------------------------------------------------------------------------------

function take(files) {
  for (const file of files) {
    const item = { file, name: file.webkitRelativePath || file.name || "pasted picture", outputs: null, error: null, seconds: 0 };
    state.items.push(item);
    state.waiting.push(item);
  }
  drawTable();
  if (!state.busy && state.run) work();
}

const pause = () => new Promise(resolve => setTimeout(resolve));

async function work() {
  state.busy = true;
  state.stop = false;
  let before = performance.now();
  while (state.waiting.length && !state.stop) {
    const item = state.waiting.shift(), started = performance.now();
    try {
      const image = await decoded(item.file);
      item.bytes = seen(image, state.about.preprocess);
      item.size = [image.width, image.height];
      item.thumb = await smaller(image, THUMB);
      if (state.items.length === 1 || state.shown === null) item.preview = await smaller(image, LARGEST);
      item.outputs = await look(item.bytes);
      if (state.items.length > 20) item.bytes = null; // it is made again when it is needed
    } catch (error) {
      item.error = error.message;
    }
    item.seconds = (performance.now() - started) / 1000;
    if (state.shown === null || state.shown.error) show(item);
    drawRow(item);
    drawProgress();
    if (performance.now() - before > 50) {
      await pause();
      before = performance.now();
    }
  }
  if (state.stop) {
    state.items = state.items.filter(item => !state.waiting.includes(item));
    state.waiting = [];
    drawTable();
  }
  state.busy = false;
  drawProgress();
}

/** A picture as a small JPEG's address. */
async function smaller(image, side) {
  const scale = Math.min(1, side / Math.max(image.width, image.height));
  const canvas = document.createElement("canvas"), full = document.createElement("canvas");
  [full.width, full.height] = [image.width, image.height];
  full.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(image.data), image.width, image.height), 0, 0);
  [canvas.width, canvas.height] = [image.width, image.height].map(one => Math.max(1, Math.round(one * scale)));
  canvas.getContext("2d").drawImage(full, 0, 0, canvas.width, canvas.height);
  return URL.createObjectURL(await new Promise(resolve => canvas.toBlob(resolve, "image/jpeg", 0.85)));
}

// ---- one picture -----------------------------------------------------------------------------------------------------

async function show(item) {
  state.shown = item;
  clearHeat();
  for (const row of $("rows").children) row.classList.toggle("ours", row.item === item);
  $("result").hidden = false;
  drawAnswer();
  if (!item.preview && !item.error) {
    const image = await decoded(item.file);
    item.preview = await smaller(image, LARGEST);
    item.bytes ??= seen(image, state.about.preprocess);
  }
  if (state.shown === item) {
    $("picture").hidden = Boolean(item.error);
    if (!item.error) $("picture").src = item.preview;
    $("picture").alt = item.name;
  }
}

function bar(label, probability, about = {}) {
  const row = made("li", about, made("span", { class: "fill", "aria-hidden": "true" }), made("span", { class: "name" }, label), made("span", { class: "share" }, percent(probability)));
  row.firstChild.style.width = `${100 * Math.min(probability, 1)}%`;
  return row;
}

function drawAnswer() {
  const item = state.shown;
  if (!item) return;
  $("file").textContent = item.name;
  $("why").hidden = !item.outputs;
  if (item.error) {
    $("label").textContent = "Cannot be read";
    $("level").textContent = item.error;
    for (const id of ["path", "others"]) $(id).replaceChildren();
    for (const id of ["others-title", "unlike"]) $(id).hidden = true;
    return;
  }
  if (!item.outputs) return;
  const { answer, levels } = answerOf(item);
  $("label").textContent = answer.label ?? "Not sure enough";
  const ends = answer.ends ? " · its branch ends here" : "";
  $("level").textContent = answer.label ? `${answer.level} · ${percent(answer.probability)}${ends}` : `nothing reaches ${percent(answer.threshold)}`;
  $("unlike").hidden = !answer.unlike;
  $("unlike").textContent = answer.unlike ? `Careful: ${answer.unlike}.` : "";
  $("path").replaceChildren(...levels.filter(level => level.label !== null).map((level, i) => bar(
    made("span", {}, made("small", {}, level.level), level.label), level.probability, { class: i < answer.path.length ? "sure" : "unsure" },
  )));
  const others = answer.runners_up.filter(one => one.probability > 0);
  $("others-title").hidden = !others.length;
  $("others-title").textContent = answer.undecided && answer.label ? `Which ${answer.undecided}? It could be` : "It could also be";
  $("others").replaceChildren(...others.map(one => bar(candidateText(one), one.probability)));
}

// ---- which part mattered: cover one patch after the other, and see what the answer loses -------------------------------

function clearHeat() {
  state.covering = null;
  $("heat").hidden = true;
  $("why").textContent = "Which part mattered?";
  $("heat-note").textContent = "";
}

async function cover() {
  const item = state.shown, { about, tree } = state;
  if (!item || !item.outputs) return;
  if (state.covering) return clearHeat();
  const token = (state.covering = {});
  if (!item.bytes) item.bytes = seen(await decoded(item.file), about.preprocess);
  const whole = answerOf(item), level = whole.answer.level ?? whole.levels[0].level;
  const k = tree.names.indexOf(level), chosen = tree.classes[k].indexOf(whole.levels.find(one => one.level === level).label);
  const size = about.preprocess.size, patch = Math.ceil(size / GRID * 1.5), losses = [];
  const grey = about.preprocess.mean.map(m => Math.round(255 * m));
  $("why").textContent = "Stop";
  for (let cellAt = 0; cellAt < GRID * GRID; cellAt++) {
    const bytes = item.bytes.slice(), [row, column] = [Math.floor(cellAt / GRID), cellAt % GRID];
    const [top, left] = [row, column].map(at => Math.round((at + 0.5) * size / GRID - patch / 2));
    for (let y = Math.max(top, 0); y < Math.min(top + patch, size); y++) {
      for (let x = Math.max(left, 0); x < Math.min(left + patch, size); x++) for (let c = 0; c < 3; c++) bytes[(y * size + x) * 3 + c] = grey[c];
    }
    const outputs = await look(bytes);
    await pause();
    if (state.covering !== token) return;
    losses.push(item.outputs[k][chosen] - outputs[k][chosen]);
    drawHeat(item, losses);
    $("heat-note").textContent = `${Math.round(100 * losses.length / GRID ** 2)} %`;
  }
  $("why").textContent = "Hide";
  $("heat-note").textContent = `Bright: covering this part takes most from “${tree.classes[k][chosen]}”.`;
}

function drawHeat(item, losses) {
  const heat = $("heat"), most = Math.max(...losses, 1e-3), { size } = state.about.preprocess;
  heat.width = heat.height = GRID;
  const pixels = new ImageData(GRID, GRID);
  for (let i = 0; i < GRID * GRID; i++) {
    const share = i < losses.length ? Math.max(losses[i], 0) / most : 1;
    pixels.data.set([10, 12, 16, 255 * 0.7 * (1 - Math.sqrt(share))], 4 * i);
  }
  heat.getContext("2d").putImageData(pixels, 0, 0);
  const { target } = framing(...item.size, state.about.preprocess);
  heat.style.width = `${100 * size / target[0]}%`;
  heat.style.height = `${100 * size / target[1]}%`;
  heat.hidden = false;
}

// ---- many pictures ---------------------------------------------------------------------------------------------------

function cellsOf(item) {
  const found = item.outputs ? answerOf(item).answer : null;
  const thumb = item.thumb ? made("img", { src: item.thumb, alt: "", loading: "lazy" }) : "";
  const label = item.error ? made("span", { class: "wrong" }, item.error) : found ? (found.label ?? "not sure enough") : "waiting";
  return [
    made("td", {}, thumb), made("td", {}, made("button", { class: "link", onclick: () => { show(item); $("result").scrollIntoView({ block: "nearest", behavior: "smooth" }); } }, item.name)),
    made("td", {}, label, found?.unlike ? made("span", { title: found.unlike, class: "wrong" }, " (unlike)") : ""),
    made("td", {}, found?.level ?? ""), made("td", { class: "number" }, found?.label ? percent(found.probability) : ""),
  ];
}

function drawRow(item) {
  const row = [...$("rows").children].find(one => one.item === item);
  if (row) row.replaceChildren(...cellsOf(item));
}

function drawTable() {
  $("many").hidden = state.items.length < 2;
  $("rows").replaceChildren(...state.items.map(item => {
    const row = made("tr", item === state.shown ? { class: "ours" } : {}, ...cellsOf(item));
    row.item = item;
    return row;
  }));
  drawProgress();
}

function drawProgress() {
  const left = state.waiting.length, all = state.items.length, timed = state.items.filter(item => item.outputs);
  const each = timed.reduce((sum, item) => sum + item.seconds, 0) / Math.max(timed.length, 1);
  $("progress").textContent = state.busy && left ? `${all - left} of ${all} · ${Math.ceil(left * each)} s left` : `${all} pictures`;
  $("stop").hidden = !(state.busy && left);
  $("save").disabled = !timed.length;
}

function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  made("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function redraw() {
  const { promise } = wanted(), slider = $("threshold");
  const risk = promise?.startsWith("risk");
  slider.disabled = Boolean(risk);
  if (risk) slider.value = 100 * wanted().threshold;
  $("sure").textContent = wanted().threshold ? percent(wanted().threshold) : "any";
  $("promise").disabled = Boolean(state.allowed);
  drawAnswer();
  if (!state.drawing) {
    state.drawing = true; // once a frame, however fast the slider moves
    requestAnimationFrame(() => { state.drawing = false; drawTable(); });
  }
}

// ---- only some classes -----------------------------------------------------------------------------------------------

function restrict() {
  try {
    state.only = namesIn($("only").value, state.tree);
    state.exclude = namesIn($("exclude").value, state.tree);
    state.allowed = allowedBy(state.tree, state.only, state.exclude);
    const left = state.allowed?.filter(Boolean).length;
    $("restriction").textContent = state.allowed ? `${left} of ${state.tree.classes[0].length} possible` : "all are possible";
    $("restriction-fault").textContent = "";
    if (state.allowed) $("promise").value = "";
  } catch (error) {
    $("restriction-fault").textContent = `${error.message[0].toUpperCase()}${error.message.slice(1)}; the list before it still holds.`;
  }
  redraw();
}

// ---- camera ----------------------------------------------------------------------------------------------------------

async function camera() {
  if (matchMedia("(pointer: coarse)").matches || !navigator.mediaDevices?.getUserMedia) return $("photo").click(); // a phone's own
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1920 } } });
    $("viewfinder").srcObject = stream;
    $("camera-box").showModal();
  } catch {
    $("notice").textContent = "No camera, or no permission to use it.";
  }
}

function snap() {
  const video = $("viewfinder"), canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  canvas.getContext("2d").drawImage(video, 0, 0);
  canvas.toBlob(blob => take([new File([blob], `photo ${state.items.length + 1}.png`, { type: "image/png" })]), "image/png");
  $("camera-box").close();
}

// ---- start -----------------------------------------------------------------------------------------------------------

function listen() {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  $("theme").onclick = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
    root.dataset.theme = dark ? "light" : "dark";
  };
  $("choose").onclick = () => $("files").click();
  for (const id of ["files", "photo"]) $(id).onchange = event => { take(event.target.files); event.target.value = ""; };
  $("camera").onclick = camera;
  $("snap").onclick = snap;
  $("camera-box").onclose = () => { for (const track of $("viewfinder").srcObject.getTracks()) track.stop(); };
  $("camera-close").onclick = () => $("camera-box").close();
  addEventListener("dragover", event => { event.preventDefault(); $("drop").classList.add("over"); });
  addEventListener("dragleave", event => { if (!event.relatedTarget) $("drop").classList.remove("over"); });
  addEventListener("drop", event => { event.preventDefault(); $("drop").classList.remove("over"); take(event.dataTransfer.files); });
  addEventListener("paste", event => { if (event.clipboardData.files.length) { event.preventDefault(); take(event.clipboardData.files); } });
  $("threshold").oninput = () => { $("promise").value = ""; redraw(); };
  $("promise").onchange = redraw;
  for (const id of ["only", "exclude"]) $(id).onchange = restrict;
  $("list").onchange = async event => { $("only").value = await event.target.files[0].text(); event.target.value = ""; restrict(); };
  $("every").onclick = () => { $("only").value = $("exclude").value = ""; restrict(); };
  $("why").onclick = cover;
  $("stop").onclick = () => { state.stop = true; };
  $("clear").onclick = () => {
    state.waiting = [];
    for (const item of state.items) for (const address of [item.thumb, item.preview]) if (address) URL.revokeObjectURL(address);
    Object.assign(state, { items: [], shown: null });
    clearHeat();
    $("result").hidden = true;
    drawTable();
  };
  $("save").onclick = () => save("answers.csv", "text/csv", csvOf(state.items.filter(item => item.outputs).map(answerOf), state.tree));
  $("licences").ontoggle = async () => {
    if (document.getElementById("licence-text")) $("licence").textContent = await textOf("licence-text");
  };
}

/** For tests and other pages: the JSON of `lht predict` about a picture, at the page's threshold or another one. */
async function classify(blob, how = {}) {
  const outputs = await look(seen(await decoded(blob), state.about.preprocess));
  return answered(blob.name ?? "picture", outputs, state.about, state.tree, { ...wanted(), allowed: state.allowed, ...how });
}

async function start() {
  const began = performance.now();
  try {
    if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old: use one from 2023 or later");
    state.about = JSON.parse(await textOf("about"));
    state.tree = treeOf(state.about.hierarchy);
    for (const { risk } of state.about.promises) $("promise").append(made("option", { value: risk }, `at most ${+(100 * risk).toFixed(2)} % wrong answers`));
    const { value, promise } = state.about.threshold ?? { value: 0, promise: null };
    $("threshold").value = 100 * value;
    if (promise?.startsWith("risk")) $("promise").value = state.about.promises.find(one => one.threshold === value)?.risk ?? "";
    $("promise-box").hidden = !state.about.promises.length;
    for (const name of new Set(state.tree.classes.flat().filter(name => name !== null))) $("class-names").append(made("li", {}, name));
    $("only").value = state.about.only.join("\n");
    $("exclude").value = state.about.exclude.join("\n");
    listen();
    restrict();
    await pause();
    state.run = await opened(state.about);
    $("notice").textContent = "";
    document.documentElement.dataset.ready = ((performance.now() - began) / 1000).toFixed(3);
    if (state.waiting.length) work();
  } catch (error) {
    $("notice").textContent = `It does not start here: ${error.message}`;
    document.documentElement.dataset.failed = error.message;
  }
}

globalThis.torchlht = { classify, ready: start() };
