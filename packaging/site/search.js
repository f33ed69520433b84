// The search page. INDEX has [title of the page, heading, address, text] of each section.
"use strict";

const SHOWN = 50; // sections
const EXCERPT = 200; // characters

function scoreWord(heading, text, word) {
  // A heading that consists of such words is probably the place that explains it: an option, a subcommand.
  if (heading.split(/[\s,]+/).includes(word)) return 100;
  if (heading.includes(word)) return 10;
  return text.includes(word) ? 1 : 0;
}

function findSections(query, index) {
  const words = splitWords(query);
  if (!words.length) return [];
  const found = [];
  for (const [page, heading, address, text] of index) {
    const scores = words.map((word) => scoreWord(heading.toLowerCase(), text.toLowerCase(), word));
    if (scores.every(Boolean)) found.push({ page, heading, address, text, score: scores.reduce((a, b) => a + b) });
  }
  return found.sort((a, b) => b.score - a.score);
}

function splitWords(query) {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}

function cutExcerpt(text, words) {
  const places = words.map((word) => text.toLowerCase().indexOf(word)).filter((place) => place >= 0);
  const start = places.length ? Math.max(0, Math.min(...places) - 60) : 0;
  const from = start ? text.indexOf(" ", start) + 1 : 0;
  const to = text.indexOf(" ", from + EXCERPT);
  return (from ? "… " : "") + (to < 0 ? text.slice(from) : `${text.slice(from, to)} …`);
}

function makeElement(tag, text, properties) {
  return Object.assign(document.createElement(tag), { textContent: text, ...properties });
}

function showResults(query) {
  const words = splitWords(query);
  const found = findSections(query, INDEX);
  const items = found.slice(0, SHOWN).map(({ page, heading, address, text }) => {
    const item = document.createElement("li");
    item.append(makeElement("a", heading, { href: address }));
    if (page !== heading) item.append(makeElement("span", page));
    item.append(makeElement("p", cutExcerpt(text, words.filter((word) => !heading.toLowerCase().includes(word)))));
    return item;
  });
  document.querySelector("#results").replaceChildren(...items);
  const count = found.length > SHOWN ? `the first ${SHOWN} of ${found.length} sections` : `${found.length} section${found.length === 1 ? "" : "s"}`;
  document.querySelector("#found").textContent = words.length ? `${count} with: ${words.join(" ")}` : "";
}

if (typeof document !== "undefined") {
  const field = document.querySelector("input[name=q]");
  field.value = new URLSearchParams(location.search).get("q") ?? "";
  field.addEventListener("input", () => showResults(field.value));
  field.focus();
  showResults(field.value);
}
