// Finding a class by a few letters. No page in here: tests and measurements run it by itself.
//
// Letters match beginnings of words, in order, and words may be left out: "laar", "la ar", "argen" and "larar" all find
// "Larus argentatus". Names that match in a better way come first; among equals the more probable for this picture, then the more
// frequent, then the shorter. One letter may be wrong, missing, doubled or swapped if nothing else matches.

export const SHOWN = 36; // results with a key of their own: 1 to 9, 0, then A to Z

const EXACT = 0, WHOLE = 1, STARTS = 2, WORDS = 3, LATER = 4, INSIDE = 6, FUZZY = 8;

/** Small letters without accents, in words. */
export function wordsOf(text) {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
}

/** What is searched: for each class its words, and all of them joined. `hidden` are numbers of classes that are not offered. */
export class Names {
  constructor() {
    this.words = [];
    this.joined = [];
    this.numbers = [];
    this.hidden = new Set();
  }

  add(name) {
    const words = wordsOf(name);
    this.numbers.push(words.length > 1 && /^\d+$/.test(words[0]) ? words.shift() : ""); // "001.Black_footed_Albatross"
    this.words.push(words);
    this.joined.push(words.join(""));
  }

  /**
   * The best classes for some letters.
   * @param {string} query what was typed
   * @param {(node: number) => number} weight how probable or frequent a class is; more comes first among equal matches
   * @param {number} most how many
   * @returns {number[]} numbers of classes
   */
  find(query, weight = () => 0, most = SHOWN) {
    const typed = wordsOf(query);
    if (!typed.length) return [];
    let found = this.#matching((i) => this.#cost(typed, i));
    if (!found.length) found = this.#matching((i) => matchFuzzy(typed.join(""), this.words[i], this.joined[i]));
    for (const one of found) one.weight = weight(one.node);
    found.sort((a, b) => Math.floor(a.cost) - Math.floor(b.cost) || b.weight - a.weight || a.cost - b.cost
      || this.joined[a.node].length - this.joined[b.node].length || (this.joined[a.node] < this.joined[b.node] ? -1 : 1));
    return found.slice(0, most).map((one) => one.node);
  }

  /** Whether a digit after some letters chooses a result: it does unless it is itself part of a name that goes on so. */
  chooses(query, digit) {
    const typed = wordsOf(query + digit);
    return !this.words.some((_, i) => !this.hidden.has(i) && this.#cost(typed, i) < INSIDE);
  }

  #cost(typed, i) {
    if (typed.length === 1 && this.numbers[i] && this.numbers[i].startsWith(typed[0])) return WHOLE;
    return matchWords(typed, this.words[i], this.joined[i]);
  }

  #matching(cost) {
    const found = [];
    for (let i = 0; i < this.words.length; i++) {
      if (this.hidden.has(i)) continue;
      const own = cost(i);
      if (own < Infinity) found.push({ node: i, cost: own });
    }
    return found;
  }
}

/** How well typed words match a name: less is better, Infinity if they do not. The whole part is the way they match. */
export function matchWords(typed, words, joined) {
  const letters = typed.join("");
  if (joined === letters) return EXACT;
  if (words.length && typed.length === 1 && words[0] === letters) return WHOLE;
  if (typed.length === 1 && joined.startsWith(letters)) return STARTS;
  if (typed.length > 1) {
    const skipped = inOrder(typed, words);
    if (skipped < Infinity) return (words[0].startsWith(typed[0]) ? WORDS : LATER) + Math.min(skipped, 9) / 10;
  }
  const cost = segments(letters, 0, words, 0, 0);
  if (cost < Infinity) return cost;
  return letters.length > 2 && joined.includes(letters) ? INSIDE : Infinity;
}

/** How many words are left out if typed words begin words of a name in order; Infinity if they do not. */
function inOrder(typed, words) {
  let at = 0, skipped = 0;
  for (const one of typed) {
    while (at < words.length && !words[at].startsWith(one)) { at++; skipped++; }
    if (at++ >= words.length) return Infinity;
  }
  return skipped;
}

/** The least cost of cutting letters into beginnings of words. Words left out, and short beginnings, cost a little. */
function segments(letters, from, words, at, parts) {
  if (from === letters.length) return parts ? WORDS + Math.min(words.length - at, 3) / 20 : Infinity;
  let best = Infinity;
  for (let word = at; word < words.length; word++) {
    const own = words[word];
    let length = 0;
    while (length < own.length && from + length < letters.length && own[length] === letters[from + length]) length++;
    for (let take = length; take > 0; take--) {
      const rest = segments(letters, from + take, words, word + 1, parts + 1);
      if (rest === Infinity) continue;
      const late = parts === 0 && word > 0 ? LATER - WORDS : 0;
      const cost = rest + late + (word - at) / 50 + (parts > 0 ? 1 / 100 : 0);
      if (cost < best) best = cost;
    }
  }
  return best;
}

/** FUZZY if the letters begin the name, or a word of it, with one mistake; else Infinity. Three letters are too few. */
export function matchFuzzy(letters, words, joined) {
  if (letters.length < 4) return Infinity;
  if (nearStart(letters, joined)) return FUZZY;
  return words.slice(1).some((word) => nearStart(letters, word)) ? FUZZY + 0.5 : Infinity;
}

/** Whether letters are at most one wrong, missing, added or swapped letter away from the beginning of a word. */
export function nearStart(letters, word) {
  let i = 0;
  while (i < letters.length && i < word.length && letters[i] === word[i]) i++;
  if (i === letters.length) return true;
  const rest = letters.slice(i), own = word.slice(i);
  return own.slice(1).startsWith(rest.slice(1)) // wrong
    || own.slice(1).startsWith(rest) // missing
    || own.startsWith(rest.slice(1)) // added
    || (rest.length > 1 && rest[0] === own[1] && rest[1] === own[0] && own.slice(2).startsWith(rest.slice(2))); // swapped
}
