"use strict";
// Two runs beside each other: what differs, their figures with B over A, their curves in one chart.

const list = runData.list;

for (const id of ["a", "b"]) {
  byId(id).append(make("option", "choose a run", { value: "" }));
  for (const [kind, label] of [["yours", "Yours"], ["reference", "Reference runs"]]) {
    const group = make("optgroup", "", { label });
    list.id.forEach((run, i) => {
      if (list.kind[i] === kind) group.append(make("option", `${list.name[i]} · ${list.model[i]} · ${list.state[i]}`, { value: run }));
    });
    if (group.children.length) byId(id).append(group);
  }
  byId(id).addEventListener("change", () => {
    history.replaceState(null, "", `#a=${byId("a").value}&b=${byId("b").value}`);
    show();
  });
}

// A page from disk may not fetch a file, but it may load a script.
const load = (id) =>
  new Promise((resolve, reject) => {
    if (runData[id]) return resolve(runData[id]);
    const script = make("script", "", { src: `data/${encodeURIComponent(id)}.js` });
    script.onload = () => resolve(runData[id]);
    script.onerror = () => reject(new Error(`data/${id}.js cannot be loaded`));
    document.head.append(script);
  });

function fill(table, header, rows) {
  const head = make("thead");
  const line = make("tr");
  header.forEach((text, i) => line.append(make("th", text, { scope: "col", class: i ? "number" : "" })));
  head.append(line);
  const body = make("tbody");
  for (const [name, ...cells] of rows) {
    const row = make("tr");
    row.append(make("th", name, { scope: "row" }), ...cells.map((text) => make("td", text, { class: "number" })));
    body.append(row);
  }
  table.replaceChildren(head, body);
}

const together = (a, b, key) => [...new Set([...Object.keys(a[key]), ...Object.keys(b[key])])];

function differences(a, b) {
  const pairs = ["facts", "settings"].flatMap((key) =>
    together(a, b, key).map((name) => [name, a[key][name] ?? "–", b[key][name] ?? "–"]),
  );
  const other = pairs.filter(([, left, right]) => left !== right);
  fill(byId("t-differences"), ["", "A", "B"], other.length ? other : [["nothing", "", ""]]);
}

function figures(a, b) {
  const rows = together(a, b, "figures").map((name) => {
    const [left, right] = [a.figures[name], b.figures[name]];
    const ratio = left && right ? shown(Number((right / left).toPrecision(3))) : "";
    return [list.titles[name] ?? name, ...[left, right].map((one) => (one == null ? "–" : shown(one))), ratio];
  });
  fill(byId("t-figures"), ["Figure", "A", "B", "B / A"], rows);
}

function curves(a, b) {
  byId("charts").replaceChildren();
  const keys = [...new Set([...a.charts, ...b.charts].map((chart) => chart.key))];
  for (const key of keys) {
    const pair = [a, b].map((run) => run.charts.find((chart) => chart.key === key));
    const known = pair.find(Boolean);
    const figure = make("figure");
    const label = `${known.title} of ${["A", "B"].filter((_, i) => pair[i]).join(" and ")}`;
    const chart = make("div", "", { class: "chart", role: "img", "aria-label": label });
    figure.append(make("figcaption", known.title), chart);
    byId("charts").append(figure);
    drawLines(chart, known, pair.flatMap((one, i) => (one ? lines(one, "AB"[i], i) : [])));
  }
}

async function show() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const ids = ["a", "b"].map((id) => (list.id.includes(asked.get(id)) ? asked.get(id) : ""));
  ids.forEach((id, i) => (byId("ab"[i]).value = id));
  byId("comparison").hidden = !ids.every(Boolean);
  byId("status").textContent = ids.every(Boolean) ? "" : "Choose two runs.";
  if (!ids.every(Boolean)) return;
  try {
    const [a, b] = await Promise.all(ids.map(load));
    const links = ids.map((id, i) => make("a", `${"AB"[i]}: ${[a, b][i].name}`, { href: `runs/${id}.html` }));
    byId("links").replaceChildren(links[0], make("br"), links[1]);
    differences(a, b);
    figures(a, b);
    curves(a, b);
  } catch (error) {
    byId("comparison").hidden = true;
    byId("status").textContent = error.message;
  }
}

window.addEventListener("hashchange", show);
show();
