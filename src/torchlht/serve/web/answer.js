// From log-probabilities to an answer in names: calibration, restriction, rule, roll-up, and what is unlike anything known.
// The same steps as `lht predict`; levels are fine first inside, coarse first in what is returned.

const LEAST = -1.7014117331926443e38, RUNNERS_UP = 3;

function logSumExp(values) {
  let most = -Infinity;
  for (const v of values) if (v > most) most = v;
  if (most === -Infinity) return most;
  let sum = 0;
  for (const v of values) sum += Math.exp(v - most);
  return most + Math.log(sum);
}

const logSoftmax = values => {
  const total = logSumExp(values);
  return values.map(v => v - total);
};

/** The tree: names, parents and children of every level, fine first. A class is null where it only stands in. */
function treeOf(hierarchy) {
  const levels = hierarchy.levels, ancestors = [levels[0].classes.map((_, i) => i)];
  for (const level of levels.slice(0, -1)) ancestors.push(ancestors.at(-1).map(c => level.parents[c]));
  return {
    names: levels.map(level => level.name),
    classes: levels.map(level => level.classes),
    parents: levels.slice(0, -1).map(level => level.parents),
    ancestors, // per level, the class above each finest class
    ends: endings(levels), // per level, at which classes a branch ends early, and what stands in for them further down
    real: lastReal(levels), // per level, [level, number] of each class, or of the class that it stands in for
    depth: levels.length,
  };
}

function endings(levels) {
  const found = [levels[0].classes.map(name => name === null)];
  for (let k = 1; k < levels.length; k++) {
    const ends = levels[k].classes.map(() => true), below = levels[k - 1];
    below.parents.forEach((parent, j) => { if (below.classes[j] !== null || !found[k - 1][j]) ends[parent] = false; });
    found.push(ends);
  }
  return found;
}

function lastReal(levels) {
  const found = levels.map(() => []);
  for (let k = levels.length - 1; k >= 0; k--) {
    found[k] = levels[k].classes.map((name, j) => (name === null ? found[k + 1][levels[k].parents[j]] : [k, j]));
  }
  return found;
}

// ---- calibration and restriction -------------------------------------------------------------------------------------

function scaled(logP, temperature, kind) {
  if (temperature === 1) return logP;
  if (kind === "softmax") return logSoftmax(logP.map(v => v / temperature));
  return logP.map(v => {
    const logit = (v - Math.log(-Math.expm1(Math.min(v, -(2 ** -23))))) / temperature;
    return Math.min(logit, 0) - Math.log1p(Math.exp(-Math.abs(logit)));
  });
}

function sumChildren(values, parents, size) {
  const groups = Array.from({ length: size }, () => []);
  values.forEach((v, j) => groups[parents[j]].push(v));
  return groups.map(logSumExp);
}

/** Every level given that one of the allowed finest classes is true; `allowed` has a boolean for each of them. */
function restricted(logProbs, tree, allowed) {
  const normalised = (logP, logW) => logSoftmax(logP.map((v, j) => Math.max(v, LEAST) + logW[j]));
  let kept = allowed, logW = allowed.map(one => (one ? 0 : -Infinity));
  const found = [normalised(logProbs[0], logW)];
  for (let k = 0; k < tree.depth - 1; k++) {
    const parents = tree.parents[k], size = tree.classes[k + 1].length;
    const finite = logProbs[k].map(v => Math.max(v, LEAST));
    const whole = sumChildren(finite, parents, size);
    const part = sumChildren(finite.map((v, j) => v + logW[j]), parents, size);
    const above = new Array(size).fill(false);
    kept.forEach((one, j) => { if (one) above[parents[j]] = true; });
    kept = above;
    logW = part.map((v, c) => (kept[c] ? v - whole[c] : -Infinity));
    found.push(normalised(logProbs[k + 1], logW));
  }
  return found;
}

// ---- names -----------------------------------------------------------------------------------------------------------

/** [level, number] of a class by its name or by level/name. Throws a sentence if there is none, or more than one. */
function findClass(tree, name) {
  const slash = name.indexOf("/");
  if (slash > 0) {
    const level = tree.names.indexOf(name.slice(0, slash)), at = level < 0 ? -1 : tree.classes[level].indexOf(name.slice(slash + 1));
    if (at >= 0) return [level, at];
  }
  const places = tree.classes.flatMap((names, k) => (names.includes(name) ? [[k, names.indexOf(name)]] : [])).reverse();
  if (!places.length) throw new Error(`no class is called “${name}”`);
  const leaves = places.map(([k, c]) => tree.ancestors[k].map(one => one === c).join());
  if (leaves.some(one => one !== leaves[0])) {
    throw new Error(`“${name}” is a class at several levels: write ${places.map(([k]) => `${tree.names[k]}/${name}`).join(" or ")}`);
  }
  return places[0];
}

/** Which finest classes remain, from lists of names; null if both are empty. */
function allowedBy(tree, only, exclude) {
  if (!only.length && !exclude.length) return null;
  const under = names => {
    const found = tree.classes[0].map(() => false);
    for (const name of names) {
      const [k, c] = findClass(tree, name);
      tree.ancestors[k].forEach((one, leaf) => { if (one === c) found[leaf] = true; });
    }
    return found;
  };
  const without = under(exclude), allowed = (only.length ? under(only) : without.map(() => true)).map((one, i) => one && !without[i]);
  if (!allowed.some(Boolean)) throw new Error("this leaves no possible class");
  return allowed;
}

/** Names in a text: one a line; a line that is no name is split at commas. */
function namesIn(text, tree) {
  const known = line => { try { return Boolean(findClass(tree, line)); } catch { return false; } };
  const lines = text.split(/\r?\n/).map(line => line.trim()).filter(Boolean);
  return lines.flatMap(line => (known(line) ? [line] : line.split(",").map(one => one.trim()).filter(Boolean)));
}

// ---- rules -------------------------------------------------------------------------------------------------------------

function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

const pathTo = (leaf, tree) => tree.ancestors.map(level => level[leaf]);

const RULES = {
  path: (logProbs, tree) => pathTo(argmax(tree.classes[0].map((_, leaf) => {
    let total = 0;
    for (let k = tree.depth - 1; k >= 0; k--) total += logProbs[k][tree.ancestors[k][leaf]];
    return total;
  })), tree),
  backtrack: (logProbs, tree) => pathTo(argmax(logProbs[0]), tree),
  top_down: (logProbs, tree) => {
    const chosen = [argmax(logProbs.at(-1))];
    for (let k = tree.depth - 2; k >= 0; k--) {
      const inside = logProbs[k].map((v, j) => (tree.parents[k][j] === chosen[0] ? Math.max(v, LEAST) : -Infinity));
      chosen.unshift(argmax(inside));
    }
    return chosen;
  },
  crm: (logProbs, tree) => {
    const mass = [logSoftmax(logProbs[0])];
    for (let k = 0; k < tree.depth - 1; k++) mass.push(sumChildren(mass[k], tree.parents[k], tree.classes[k + 1].length));
    return pathTo(argmax(tree.classes[0].map((_, leaf) => mass.reduceRight((sum, m, k) => sum + Math.exp(m[tree.ancestors[k][leaf]]), 0))), tree);
  },
};

// ---- unlike anything known ---------------------------------------------------------------------------------------------

/** Per level, fine first, the share of known samples that are at least as far; from uncalibrated log-probabilities. */
function asFar(logProbs, distance, novelty) {
  let most = 0;
  return logProbs.map((logP, k) => {
    const log = logSoftmax(logP), doubt = -log.reduce((sum, v) => sum + (v === -Infinity ? 0 : Math.exp(v) * v), 0);
    const [a, b] = novelty.weights[k], score = a * distance + b * doubt, known = novelty.references[k];
    let low = 0, high = known.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (known[middle] < score) low = middle + 1; else high = middle;
    }
    most = Math.max(most, (1 + known.length - low) / (known.length + 1));
    return most;
  });
}

function unlikeText(levels) {
  const at = levels.findIndex(level => level.unlike);
  if (at < 0) return null;
  const what = at ? `any ${levels[at].level} I was trained on` : "anything I was trained on";
  const percent = Math.floor(1000 * (1 - levels[at].as_far) + 1e-6) / 10;
  return `unlike ${what} (further from every ${levels[at].level} than ${percent} % of known samples)`;
}

// ---- all of it -----------------------------------------------------------------------------------------------------------

/** A class of a level; for one that stands in, the class that it stands in for, with its level. */
function candidate(logP, tree, k, i) {
  const [level, own] = tree.real[k][i];
  return { label: tree.classes[level][own], probability: Math.exp(logP[i]), ...(level === k ? {} : { level: tree.names[level] }) };
}

function candidates(logP, tree, k, among, most) {
  return among.sort((i, j) => logP[j] - logP[i] || i - j).slice(0, most).map(i => candidate(logP, tree, k, i));
}

/** A class for people: where a species was asked and the branch ends further up, "Gaviidae (family)". */
const candidateText = one => (one.level ? `${one.label} (${one.level})` : one.label);

/**
 * What `lht predict --format json` says about a sample.
 *
 * outputs   one array of log-probabilities per level, fine first, and the distance if the file has `novelty`
 * how       {threshold, promise, allowed, top}: the least probability of an answer and where that number comes from, or null;
 *           which finest classes are possible, or null; candidates per level
 */
function answered(file, outputs, about, tree, { threshold = 0, promise = null, allowed = null, top = 1 } = {}) {
  const raw = outputs.slice(0, tree.depth).map(level => Array.from(level));
  let logProbs = raw.map((level, k) => scaled(level, about.temperatures[k], about.kinds[k]));
  if (allowed) logProbs = restricted(logProbs, tree, allowed);
  const chosen = RULES[about.rule](logProbs, tree);
  for (let k = tree.depth - 2; k >= 0; k--) { // no class is more probable than its parent
    logProbs[k] = logProbs[k].map((v, j) => Math.min(v, logProbs[k + 1][tree.parents[k][j]]));
  }
  const far = about.novelty ? asFar(raw, outputs[tree.depth][0], about.novelty) : null;
  const levels = [], beside = [], below = [];
  for (let k = tree.depth - 1; k >= 0; k--) {
    const names = tree.classes[k], logP = logProbs[k], own = candidate(logP, tree, k, chosen[k]);
    const others = names.map((_, i) => i).filter(i => i !== chosen[k]);
    levels.push({
      level: tree.names[k], label: names[chosen[k]], probability: own.probability,
      candidates: [own, ...candidates(logP, tree, k, [...others], top - 1)],
      as_far: far ? far[k] : null, unlike: far !== null && far[k] < about.novelty.alarms, ends: tree.ends[k][chosen[k]],
    });
    beside.push(candidates(logP, tree, k, others, RUNNERS_UP));
    const children = k ? tree.classes[k - 1].map((_, i) => i).filter(i => tree.parents[k - 1][i] === chosen[k]) : [];
    below.push(k ? candidates(logProbs[k - 1], tree, k - 1, children, RUNNERS_UP) : []);
  }
  let at = levels.length - 1;
  while (at >= 0 && !(levels[at].probability >= threshold && !(promise && levels[at].unlike))) at--;
  const here = at < 0 ? null : levels[at], path = levels.slice(0, at + 1).filter(one => one.label !== null), last = path.at(-1);
  const finest = at === levels.length - 1 || (here !== null && here.ends);
  return {
    file,
    answer: {
      label: here && last.label, level: here && last.level, probability: here && last.probability,
      path: path.map(one => one.label), path_probabilities: path.map(one => one.probability),
      rule: about.rule, promise, threshold, undecided: finest ? null : levels[at + 1].level,
      runners_up: here ? (finest ? beside[at] : below[at]) : [levels[0].candidates[0], ...beside[0]].slice(0, RUNNERS_UP),
      unlike: unlikeText(levels), ends: here !== null && here.ends,
    },
    levels, consistent: true, calibrated: about.calibrated, restricted: allowed !== null,
  };
}

// ---- a table -------------------------------------------------------------------------------------------------------------

const six = probability => (probability === null ? "" : probability.toFixed(6));

const HIDDEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu;
const escaped = one => {
  const code = one.charCodeAt(0), hex = code.toString(16);
  return code < 256 ? `\\x${hex.padStart(2, "0")}` : `\\u${hex.padStart(4, "0")}`;
};

/** A cell of CSV: what hides or steers is escaped, and text that a spreadsheet would run as a formula gets a ' in front. */
function cell(value) {
  let text = String(value).replace(HIDDEN, escaped);
  if (/^'*[=+\-@\t\r]/.test(text) && (text.trim() === "" || Number.isNaN(Number(text)))) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const ragged = tree => tree.classes.some(names => names.includes(null));

/** Answers as CSV, with the columns of `lht predict --format csv`. */
function csvOf(found, tree) {
  if (!found.length) return "";
  const names = [...tree.names].reverse(), rolled = found.some(one => one.answer.promise !== null), far = found[0].levels[0].as_far !== null;
  const rows = [[
    "file", ...(rolled ? ["answer", "answer_level", "answer_probability"] : []), ...names.flatMap(name => [name, `${name}_probability`]),
    ...(ragged(tree) ? ["ends_at"] : []), "consistent", ...(far ? [...names.map(name => `${name}_as_far`), "unlike"] : []),
  ]];
  for (const { file, answer, levels, consistent } of found) {
    rows.push([
      file, ...(rolled ? [answer.label ?? "", answer.level ?? "", six(answer.probability)] : []),
      ...levels.flatMap(level => [level.label ?? "", six(level.probability)]),
      ...(ragged(tree) ? [levels.at(-1).candidates[0].level ?? ""] : []), consistent, ...(far ? [...levels.map(level => six(level.as_far)), answer.unlike ?? ""] : []),
    ]);
  }
  return rows.map(row => `${row.map(cell).join(",")}\n`).join("");
}
