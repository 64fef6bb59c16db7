"use strict";
// A run's charts, from its script in data/.

const [run] = Object.values(runData);

function drawParts(element) {
  const traces = run.parts.map(([name, time], number) => ({
    type: "bar",
    orientation: "h",
    x: [time],
    y: [""],
    name: plain(name),
    marker: { color: COLOURS[number] },
    hovertemplate: "%{x:.1f} ms",
  }));
  draw(element, traces, "time (ms)", "", { over: { barmode: "stack" } });
}

for (const element of document.querySelectorAll("[data-chart]")) {
  const chart = run.charts.find((one) => one.key === element.dataset.chart);
  if (chart) drawLines(element, chart, lines(chart));
  else drawParts(element);
}
