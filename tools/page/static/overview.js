"use strict";
// The list of runs: filters and order.

const byId = (id) => document.getElementById(id);
const table = byId("runs");
const body = table.tBodies[0];
const rows = [...body.rows];
const KEYS = ["kind", "exercise", "configuration", "model", "state"];

function filter() {
  const wanted = KEYS.map((key) => [key, byId(`f-${key}`).value]).filter(([, value]) => value);
  const text = byId("f-text").value.trim().toLowerCase();
  for (const row of rows) {
    const fits = wanted.every(([key, value]) => row.dataset[key] === value);
    row.hidden = !fits || !row.textContent.toLowerCase().includes(text);
  }
  const count = rows.filter((row) => !row.hidden).length;
  byId("count").textContent = `Shown: ${count} of ${rows.length} runs.`;
}

// Numbers by size, texts by the alphabet, empty cells last.
function sortBy(column, header) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const value = (row) => row.cells[column].textContent.trim().replace(/(?<=\d),(?=\d)/g, "");
  const order = (a, b) => !a - !b || a.localeCompare(b, "en", { numeric: true });
  body.append(...rows.toSorted((a, b) => (descending ? -1 : 1) * order(value(a), value(b))));
}

byId("filters").addEventListener("input", filter);
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
