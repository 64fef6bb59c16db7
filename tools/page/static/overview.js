"use strict";
// The list of runs: filters, order, two to compare; and one figure against another of those that are shown.

const list = runData.list;
const table = byId("runs");
const body = table.tBodies[0];
const rows = [...body.rows]; // row i is the list's run i
const texts = rows.map((row, i) => `${row.textContent} ${list.name[i]}`.toLowerCase());
const SYMBOLS = ["circle", "square", "diamond"]; // of exercises that share a colour
const KEYS = ["kind", "exercise", "config", "model", "state"];
let visible = [];

// index.html#runs=ID,ID: the runs a table's cell is from.
const named = () => {
  const match = /^#runs=(.+)$/.exec(location.hash);
  return match ? new Set(decodeURIComponent(match[1]).split(",")) : null;
};

function filter() {
  const only = named();
  const wanted = KEYS.map((key) => [key, byId(`f-${key}`).value]).filter(([, value]) => value);
  const text = byId("f-text").value.trim().toLowerCase();
  visible = [];
  rows.forEach((row, i) => {
    const show = only
      ? only.has(list.id[i])
      : wanted.every(([key, value]) => list[key][i] === value) && texts[i].includes(text);
    row.hidden = !show;
    if (show) visible.push(i);
  });
  byId("count").textContent = only
    ? `The ${visible.length} runs of one cell. “Show all” shows the others.`
    : `Shown: ${visible.length} of ${rows.length} runs.`;
  scatter();
}

async function scatter() {
  const [xName, yName] = ["axis-x", "axis-y"].map((id) => byId(id).value);
  const [x, y] = [list.figures[xName], list.figures[yName]];
  const exercises = [...new Set(list.exercise)];
  const groups = new Map();
  for (const i of visible) {
    if (list.state[i] !== "completed" || x?.[i] == null || y?.[i] == null) continue;
    const key = list.exercise[i] + (list.kind[i] === "yours" ? "" : ", reference");
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(i);
  }
  const traces = [...groups].map(([name, places]) => {
    const own = list.kind[places[0]] === "yours";
    const number = exercises.indexOf(list.exercise[places[0]]);
    const symbol = SYMBOLS[Math.floor(number / COLOURS.length) % SYMBOLS.length];
    return {
      name: plain(name),
      mode: "markers",
      x: places.map((i) => x[i]),
      y: places.map((i) => y[i]),
      text: places.map((i) => plain(`${list.name[i]} · ${list.model[i]} · ${list.state[i]}`)),
      customdata: places,
      hovertemplate: `%{text}<br>${plain(list.titles[yName])} %{y:,}<br>${plain(list.titles[xName])} %{x:,}<extra></extra>`,
      marker: { color: COLOURS[number % COLOURS.length], size: own ? 10 : 8, symbol: own ? symbol : `${symbol}-open`, opacity: 0.85 },
    };
  });
  const chart = byId("scatter");
  const count = traces.reduce((sum, trace) => sum + trace.x.length, 0);
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", `${list.titles[yName]} against ${list.titles[xName]} of ${count} run${count === 1 ? "" : "s"}`);
  const message = { text: "No completed run that is shown has both figures.", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 };
  await draw(chart, traces, list.titles[xName], list.titles[yName], {
    fromZero: true,
    over: { showlegend: true, annotations: count ? [] : [message] },
  });
  if (!chart.dataset.clickable) {
    chart.dataset.clickable = "yes";
    chart.on("plotly_click", (event) => {
      location.href = `runs/${list.id[event.points[0].customdata]}.html`;
    });
  }
}

// Numbers by size, what is no number after them, texts by the alphabet.
function sortBy(column, header) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const value = (row) => row.cells[column].textContent.trim();
  const number = (text) => (/^-?[\d,]+(\.\d+)?$/.test(text) ? Number(text.replaceAll(",", "")) : NaN);
  const keyed = rows.map((row) => [row, value(row), number(value(row))]);
  keyed.sort(([, a, m], [, b, n]) => {
    if (Number.isNaN(m) !== Number.isNaN(n)) return Number.isNaN(m) ? 1 : -1;
    const order = Number.isNaN(m) ? (!a - !b) || a.localeCompare(b, "en", { numeric: true }) : m - n;
    return descending ? -order : order;
  });
  body.append(...keyed.map(([row]) => row));
}

function choose() {
  const chosen = rows.flatMap((row, i) => (row.cells[0].firstChild.checked ? [list.id[i]] : []));
  const ready = chosen.length === 2;
  byId("compare").href = `compare.html${ready ? `#a=${chosen[0]}&b=${chosen[1]}` : ""}`;
  byId("chosen").textContent = ready ? "" : `Tick two of them; ${chosen.length} ticked.`;
}

// The first of the preferred figures that a run has which is shown at first.
function axis(id, preferred) {
  for (const [metric, title] of Object.entries(list.titles)) byId(id).append(make("option", title, { value: metric }));
  const kind = byId("f-kind").value;
  const measured = (metric) => list.figures[metric]?.some((value, i) => value != null && (!kind || list.kind[i] === kind));
  byId(id).value = preferred.find(measured) ?? Object.keys(list.titles)[0] ?? "";
  byId(id).addEventListener("change", scatter);
}

axis("axis-y", ["samples_per_second", "train_loss"]);
axis("axis-x", ["peak_gpu_mib", "peak_cpu_mib"]);
byId("filters").addEventListener("input", () => {
  if (named()) history.replaceState(null, "", location.pathname);
  filter();
});
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("reset", (event) => {
  event.preventDefault();
  for (const key of [...KEYS, "text"]) byId(`f-${key}`).value = "";
  if (named()) history.replaceState(null, "", location.pathname);
  filter();
});
window.addEventListener("hashchange", filter);
body.addEventListener("change", choose);
[...table.tHead.rows[0].cells].forEach((header, column) => {
  header.querySelector("button")?.addEventListener("click", () => sortBy(column, header));
});
filter();
choose();
