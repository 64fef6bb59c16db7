"use strict";
// A run's charts, from its script in data/.

const [run] = Object.values(runData);

for (const element of document.querySelectorAll("[data-chart]")) {
  const chart = run.charts.find((one) => one.key === element.dataset.chart);
  drawLines(element, chart, lines(chart));
}
