// Charts: uPlot in a component, colors of models, and a legend that is HTML, so that it can be read and focused.
import { html, useEffect, useMemo, useRef } from "/page/vendor/preact-htm.js";

const HUES = ["#3f6fe0", "#e0803f", "#2f9e77", "#b45bd0", "#d1495b", "#8a8f2a", "#2c9fb5", "#a0673a", "#7a6fe0", "#5f9e2f", "#c2539a", "#6b7a8f"];

// The same color for a model everywhere; a model that the config no longer has is gray.
export function color(models, name) {
  const place = models.indexOf(name);
  if (place < 0) return "#8b93a3";
  return HUES[place] ?? `hsl(${Math.round(place * 137.5) % 360} 45% 52%)`;
}

export const Model = ({ who, name }) => html`<span class="model" title=${name}><i class="dot" style=${{ background: color(who.models, name) }}></i>${name}</span>`;

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function axis(values, size, { label, ...extra } = {}) {
  const named = label ? { label, labelSize: 18, labelGap: 0, labelFont: "11px system-ui" } : {};
  return {
    stroke: css("--muted"), grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui",
    size, ...(values ? { values } : {}), ...named, ...extra,
  };
}

export function Chart({ options, data, height, label }) {
  const box = useRef(null), chart = useRef(null);
  useEffect(() => {
    const width = () => Math.max(200, box.current.clientWidth);
    chart.current = new window.uPlot({ ...options, width: width(), height, legend: { show: false } }, data, box.current);
    const watch = new ResizeObserver(() => chart.current?.setSize({ width: width(), height }));
    watch.observe(box.current);
    return () => {
      watch.disconnect();
      chart.current.destroy();
      chart.current = null;
    };
  }, [options]);
  useEffect(() => chart.current?.setData(data), [data]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${box}></div>`;
}

// Lines over time. `lines` have a label, a color and values; `band` is two rows of values to fill between, `level` a
// dashed line across, `marks` are times with a mark.
export function Lines({ times, lines, band, level, marks = [], shown, range, height = 200, label, theme }) {
  const data = useMemo(() => [times, ...lines.map((line) => line.values), ...(band ?? [])], [times, lines, band]);
  const options = useMemo(() => ({
    scales: { x: { time: true }, y: { range } },
    cursor: { drag: { x: false, y: false } },
    axes: [axis(null, 32), axis((u, values) => values.map(shown), 56)],
    series: [{}, ...lines.map((line) => ({ label: line.label, stroke: css(line.color) || line.color, width: 2, spanGaps: true, points: { show: times.length < 40, size: 5 } })), ...(band ?? []).map(() => ({ width: 0, points: { show: false } }))],
    bands: band ? [{ series: [lines.length + 1, lines.length + 2], fill: `${css("--accent").slice(0, 7)}26` }] : [],
    hooks: { draw: [(u) => {
      const { ctx } = u, { left, top, width, height: tall } = u.bbox, line = (from, to) => { ctx.beginPath(); ctx.moveTo(...from); ctx.lineTo(...to); ctx.stroke(); };
      ctx.save();
      ctx.setLineDash([6, 4]);
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.strokeStyle = css("--bad");
      if (level !== undefined && level !== null) { const y = u.valToPos(level, "y", true); line([left, y], [left + width, y]); }
      ctx.strokeStyle = css("--muted");
      for (const mark of marks) { const x = u.valToPos(mark, "x", true); line([x, top], [x, top + tall]); }
      ctx.restore();
    }] },
  }), [times, lines, band, level, marks, theme]);
  return html`<${Chart} options=${options} data=${data} height=${height} label=${label} />`;
}

// Bands stacked on each other, the last at the bottom.
export function stacked(rows) {
  const sums = rows.map((row) => row.slice());
  for (let index = sums.length - 2; index >= 0; index -= 1)
    for (let at = 0; at < sums[index].length; at += 1) sums[index][at] += sums[index + 1][at];
  return sums;
}

export function Legend({ models, all, values }) {
  return html`<ul class="legend">
    ${models.map((name) => html`<li key=${name}><i style=${{ background: color(all, name) }}></i>${name}${values?.[name] !== undefined && html` <b>${values[name]}</b>`}</li>`)}
  </ul>`;
}
