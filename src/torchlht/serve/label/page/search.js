// Finding a class by a few letters. No page in here: tests and measurements run it by itself.
//
// Letters match beginnings of words, in order, and words may be left out: "laar", "la ar", "argen" and "larar" all find
// "Larus argentatus". Names of which every word is begun come first: "lar" is Larus, or Lagopus arcticus, and only then one of
// the gulls whose second word nobody has typed. After the way of matching comes what is more probable for
// this picture, then the more frequent, then the shorter. One letter may be wrong, missing, doubled or swapped if nothing else matches.

export const SHOWN = 36; // results with a key of their own: 1 to 9, 0, then A to Z

const EXACT = 0, WHOLE = 1, EVERY = 2, STARTS = 3, WORDS = 3, LATER = 4, INSIDE = 6, FUZZY = 8;

/** Small letters without accents, in words. */
export function wordsOf(text) {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
}

/** What is searched: for each name its words, all of them joined, and its class. `hidden` are numbers of classes that are not offered. */
export class Names {
  constructor() {
    this.words = [];
    this.joined = [];
    this.numbers = [];
    this.nodes = [];
    this.count = 0;
    this.hidden = new Set();
  }

  /** A name of the next class, or one more name of a class. */
  add(name, node = this.count++) {
    const words = wordsOf(name);
    this.nodes.push(node);
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
    for (const one of found) one.weight = weight(this.nodes[one.i]);
    found.sort((a, b) => Math.floor(a.cost) - Math.floor(b.cost) || b.weight - a.weight || a.cost - b.cost
      || this.joined[a.i].length - this.joined[b.i].length || (this.joined[a.i] < this.joined[b.i] ? -1 : 1));
    return [...new Set(found.map((one) => this.nodes[one.i]))].slice(0, most); // each class once, by its best name
  }

  /** Whether a digit after some letters chooses a result: it does unless it is itself part of a name that goes on so. */
  chooses(query, digit) {
    const typed = wordsOf(query + digit);
    return !this.words.some((_, i) => !this.hidden.has(this.nodes[i]) && this.#cost(typed, i) < INSIDE);
  }

  #cost(typed, i) {
    if (typed.length === 1 && this.numbers[i] && this.numbers[i].startsWith(typed[0])) return WHOLE;
    return matchWords(typed, this.words[i], this.joined[i]);
  }

  #matching(cost) {
    const found = [];
    for (let i = 0; i < this.words.length; i++) {
      if (this.hidden.has(this.nodes[i])) continue;
      const own = cost(i);
      if (own < Infinity) found.push({ i, cost: own });
    }
    return found;
  }
}

/** How well typed words match a name: less is better, Infinity if they do not. The whole part is the way they match. */
export function matchWords(typed, words, joined) {
  const letters = typed.join("");
  if (joined === letters) return EXACT;
  if (words.length && typed.length === 1 && words[0] === letters) return WHOLE;
  if (typed.length === 1 && everyWord(letters, 0, words, 0)) return EVERY;
  if (typed.length === 1 && joined.startsWith(letters)) return STARTS;
  if (typed.length > 1) {
    const skipped = inOrder(typed, words);
    if (skipped < Infinity) return (words[0].startsWith(typed[0]) ? WORDS : LATER) + Math.min(skipped, 9) / 10;
  }
  const cost = segments(letters, 0, words, 0, 0);
  if (cost < Infinity) return cost;
  return letters.length > 2 && joined.includes(letters) ? INSIDE : Infinity;
}

/** Whether letters can be cut into beginnings of all words. */
function everyWord(letters, from, words, at) {
  if (at === words.length) return from === letters.length;
  const own = words[at];
  for (let length = 0; length < own.length && from + length < letters.length && own[length] === letters[from + length]; ) {
    length++;
    if (everyWord(letters, from + length, words, at + 1)) return true;
  }
  return false;
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
