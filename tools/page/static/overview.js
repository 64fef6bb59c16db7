"use strict";
// The list of runs: filters and order.

const byId = (id) => document.getElementById(id);
const table = byId("runs");
const body = table.tBodies[0];
const rows = [...body.rows];
const FEW = 100; // rows at first: a long list is slow to draw and to read
let most = FEW;
const KEYS = ["kind", "exercise", "configuration", "model", "state"];

function filter() {
  const wanted = KEYS.map((key) => [key, byId(`f-${key}`).value]).filter(([, value]) => value);
  const words = byId("f-text").value.toLowerCase().split(/\s+/);
  let fitting = 0;
  for (const row of body.rows) {
    const text = row.textContent.toLowerCase();
    const fits = wanted.every(([key, value]) => row.dataset[key] === value) && words.every((word) => text.includes(word));
    row.hidden = !fits || ++fitting > most;
  }
  const left = Math.max(0, fitting - most);
  byId("count").textContent = `Shown: ${fitting - left} of ${rows.length} runs${left ? `; ${left} more match` : ""}.`;
  byId("more").hidden = !left;
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

byId("filters").addEventListener("input", () => {
  most = FEW;
  filter();
});
byId("more").addEventListener("click", () => {
  most = rows.length;
  filter();
});
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("reset", (event) => {
  event.preventDefault();
  for (const key of [...KEYS, "text"]) byId(`f-${key}`).value = "";
  filter();
});
[...table.tHead.rows[0].cells].forEach((header, column) => {
  header.querySelector("button").addEventListener("click", () => sortBy(column, header));
});
filter();
