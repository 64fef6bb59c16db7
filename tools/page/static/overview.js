"use strict";
// The list of runs: those with all words of the filter, and their order.

const table = document.getElementById("runs");
const body = table.tBodies[0];
const rows = [...body.rows];
const [words, count, more] = ["words", "count", "more"].map((id) => document.getElementById(id));
const FEW = 100; // rows at first: a long list is slow to draw and to read
let most = FEW;

function filter() {
  const wanted = words.value.toLowerCase().split(/\s+/);
  let fitting = 0;
  for (const row of body.rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !wanted.every((word) => text.includes(word)) || ++fitting > most;
  }
  const left = Math.max(0, fitting - most);
  count.textContent = `Shown: ${fitting - left} of ${rows.length} runs${left ? `; ${left} more match` : ""}.`;
  more.hidden = !left;
}

function show(atMost) {
  most = atMost;
  filter();
}

// Numbers by size, texts by the alphabet, empty cells last.
function sortBy(column, header) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const value = (row) => row.cells[column].textContent.trim().replace(/(?<=\d),(?=\d)/g, "");
  const order = (a, b) => !a - !b || a.localeCompare(b, "en", { numeric: true });
  body.append(...rows.toSorted((a, b) => (descending ? -1 : 1) * order(value(a), value(b))));
  filter();
}

words.addEventListener("input", () => show(FEW));
more.addEventListener("click", () => show(rows.length));
[...table.tHead.rows[0].cells].forEach((header, column) => {
  header.querySelector("button").addEventListener("click", () => sortBy(column, header));
});
filter();
