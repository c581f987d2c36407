// What people look for first: pages whose title has the words that were typed; then pages that explain and the reference, before benchmarks and the changelog.
var Scorer = (() => {
  const typed = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().match(/[a-z]{3,}/g) ?? [];
  const inTitle = (title) => typed.filter((word) => title.toLowerCase().match(/[a-z]+/g)?.some((part) => part.startsWith(word))).length;
  const named = (title, kind) => (kind === "object" || !typed.length ? 0 : (20 * inTitle(title)) / typed.length);
  const place = (page) => (/^docs\//.test(page) ? 10 : /^CHANGELOG|^benchmarks\/reproduce\//.test(page) ? -10 : 0);
  return {
    score: ([page, title, , , score, , kind]) => score + place(page) + named(title, kind),
    objNameMatch: 11,
    objPartialMatch: 6,
    objPrio: { 0: 15, 1: 5, 2: -5 },
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
  };
})();
