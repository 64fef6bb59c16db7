"use strict";
// Draws a run's charts (runCharts, from its script in data/) where the page has a place for each.

// Okabe and Ito's colours, which people who are colour-blind can tell apart; each is seen on white and on black.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#3a9bdc", "#8a63d2", "#7a7a7a"];

// Plotly reads a few tags and entities in its texts; texts from logs are shown as they are.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");
const axis = (label) => ({ title: { text: plain(label), standoff: 8 }, automargin: true, zeroline: false });

for (const element of document.querySelectorAll("[data-chart]")) {
  const chart = runCharts.find((one) => one.key === element.dataset.chart);
  const mode = ({ x }) => (x.length > 1 ? "lines" : "markers");
  const lines = chart.lines.map((line) => ({ ...line, name: plain(line.name || chart.title), mode: mode(line) }));
  const layout = {
    colorway: COLOURS,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 56, r: 12, t: 8, b: 44 },
    xaxis: axis(chart.x_label),
    yaxis: { ...axis(chart.y_label), rangemode: chart.key === "loss" ? "normal" : "tozero" },
    hovermode: "closest",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
  };
  Plotly.react(element, lines, layout, { responsive: true, displayModeBar: false });
}
