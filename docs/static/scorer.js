// What people look for first: the pages that explain and the reference, before benchmarks and the changelog.
var Scorer = {
  score: ([page, , , , score]) => (/^docs\//.test(page) ? score + 10 : /^CHANGELOG|^benchmarks\/reproduce\//.test(page) ? score - 10 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
