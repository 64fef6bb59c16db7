"use strict";
// What the pages' scripts share. Texts from logs reach the page as textContent or through plain(), never as HTML.

const runData = {}; // the scripts in data/ fill it: a run's id -> its data; "list" -> all runs
// Okabe and Ito's colours, which people who are colour-blind can tell apart; each is seen on white and on black.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#3a9bdc", "#8a63d2", "#7a7a7a"];
const DASHES = ["solid", "dash", "dot", "dashdot"];

// Plotly is large: it is loaded when the rest of the page is there and can be used.
const plotlyFile = new URL("plotly.min.js", document.currentScript.src);
const plotly = new Promise((resolve, reject) => {
  const load = () => {
    const script = document.createElement("script");
    script.src = plotlyFile;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error(`${plotlyFile} cannot be loaded`));
    document.head.append(script);
  };
  if (document.readyState === "complete") load();
  else window.addEventListener("load", () => setTimeout(load));
});

// Plotly reads a few tags and entities in its texts.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");

const shown = (number) =>
  Number.isInteger(number) ? number.toLocaleString("en") : number.toLocaleString("en", { maximumSignificantDigits: 6 });

const byId = (id) => document.getElementById(id);

function make(tag, text = "", attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

async function draw(element, traces, xLabel, yLabel, { fromZero = false, over = {} } = {}) {
  const axis = (label) => ({ title: { text: plain(label), standoff: 8 }, automargin: true, zeroline: false });
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13 },
    margin: { l: 56, r: 12, t: 8, b: 44 },
    xaxis: axis(xLabel),
    yaxis: { ...axis(yLabel), rangemode: fromZero ? "tozero" : "normal" },
    hovermode: "closest",
    hoverlabel: { align: "left" },
    showlegend: traces.length > 1,
    legend: { traceorder: "normal", orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    ...over,
  };
  await (await plotly).react(element, traces, layout, { responsive: true, displayModeBar: false });
}

// The lines of one chart of a run; with a name in front where two runs are drawn in one chart.
const lines = (chart, name = "", dash = 0) =>
  chart.lines.map((line, number) => ({
    x: line.x,
    y: line.y,
    name: plain([name, line.name].filter(Boolean).join(", ") || chart.title),
    mode: line.x.length > 1 ? "lines" : "markers",
    line: { width: 1.5, color: COLOURS[(number + (chart.lines.length > 1 ? 0 : dash)) % COLOURS.length], dash: DASHES[dash] },
  }));

const drawLines = (element, chart, traces) => draw(element, traces, chart.x, chart.y, { fromZero: chart.key !== "loss" });

// Paper has another width than the window.
const fit = (width) => {
  for (const chart of document.querySelectorAll(".js-plotly-plot")) Plotly.relayout(chart, { width, autosize: !width });
};
window.addEventListener("beforeprint", () => fit(Math.min(660, document.body.clientWidth)));
window.addEventListener("afterprint", () => fit(undefined));
