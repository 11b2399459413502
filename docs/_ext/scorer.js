// Pages of prose whose title has the word come before classes and functions. All other numbers are Sphinx's own.
var Scorer = {
  score: ([page, title, , , score]) => {
    const word = new URLSearchParams(window.location.search).get("q").trim().toLowerCase();
    return page.startsWith("api/") || !title.toLowerCase().includes(word) ? score : score + 20;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
