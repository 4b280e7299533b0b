// Learning: what is served, what was learned, whether the promised quality is kept, and calibration.
import { html, useMemo, useState } from "/page/vendor/preact-htm.js";
import { post } from "/page/api.js";
import { Chart, Model, axis, color, css } from "/page/chart.js";
import { count, fixed, moment, percent, usd } from "/page/format.js";
import { Card, Empty, Failure, Head, Scroll, Tile, Waiting, useData } from "/page/widgets.js";

export function Learning({ who, theme }) {
  const [found, again, failed] = useData("learning");
  const [error, setError] = useState(null);
  const act = (promise) => promise.then(() => { setError(null); again(); }, (problem) => setError(problem.message));
  if (!found) return html`<${Head} title="Learning" /><${Failure} error=${failed} />${!failed && html`<${Waiting} />`}`;
  const kept = found.kept, rows = Object.values(found.rows).reduce((sum, each) => sum + each, 0);
  return html`<${Head} title="Learning" about="Every scored answer is added to what the router knows.">
      ${found.can_roll_back && html`<button onClick=${() => act(post("rollback"))}>Roll back</button>`}<//>
    <${Failure} error=${error} />
    <div class="tiles">
      <${Tile} label="In service" value=${`version ${found.version}`} note=${found.frozen ? "a bundle, frozen until it is rolled back" : found.learns ? "follows what is learned" : "learning is off"} />
      <${Tile} label="Learned from" value=${count(rows)} note=${found.latest === null ? "nothing yet" : `scored answers; version ${found.latest}, ${moment(found.at)}`} />
      <${Tile} label="Quality kept" value=${kept ? percent(kept.value, 1) : "–"} tone=${found.broken ? "bad" : ""} note=${kept ? `${percent(kept.low)} to ${percent(kept.high)} of ${kept.best}'s, for ${percent(kept.cost)} of its cost${found.target === null ? "" : `; target ${percent(found.target)}`}` : "it takes 50 scored answers"} />
      <${Tile} label="Explored" value=${percent(found.exploration.share, 1)} note=${`of ${count(found.exploration.requests)} requests, ${percent(found.exploration.cost_share, 1)} of the cost`} hint="Requests whose model was drawn, so that every model keeps being measured." />
    </div>
    <${Card} title="Calibration" about="Predicted against observed, over the latest scored requests. Points on the diagonal are right on average.">
      ${found.calibration.length === 0 ? html`<${Empty} title="No scored request yet"><p>Scores come from <code>POST /v1/feedback</code>, judges, or the buttons beside an answer.</p><//>`
        : html`<div class="grid"><div class="third"><${Calibration} rows=${found.calibration} who=${who} theme=${theme} /></div><div class="two"><${Table} rows=${found.calibration} who=${who} /></div></div>`}<//>`;
}

function Table({ rows, who }) {
  return html`<${Scroll} label="Calibration by model"><table><thead><tr><th>Model</th><th class="n">Scored</th><th class="n">Accuracy predicted</th><th class="n">observed</th><th class="n">Cost predicted</th><th class="n">observed</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.model}><td><${Model} who=${who} name=${row.model} /></td><td class="n">${count(row.requests)}</td>
      <td class="n">${fixed(row.predicted, 2)}</td><td class="n">${fixed(row.observed, 2)}</td><td class="n">${usd(row.predicted_cost)}</td><td class="n">${usd(row.cost)}</td></tr>`)}</tbody></table><//>`;
}

function Calibration({ rows, who, theme }) {
  const options = useMemo(() => ({
    scales: { x: { time: false, range: () => [0, 1] }, y: { range: () => [0, 1] } }, cursor: { show: false },
    axes: [axis((u, values) => values.map((value) => percent(value)), 34, { label: "predicted accuracy" }), axis((u, values) => values.map((value) => percent(value)), 44, { label: "observed accuracy" })],
    series: [{}, { stroke: css("--muted"), width: 1, dash: [5, 4], points: { show: false } }],
    hooks: { draw: [(u) => {
      const { ctx } = u, ratio = devicePixelRatio;
      ctx.save();
      for (const row of rows) for (const [predicted, observed, number] of row.bins) {
        ctx.fillStyle = color(who.models, row.model);
        ctx.globalAlpha = 0.85;
        ctx.beginPath();
        ctx.arc(u.valToPos(predicted, "x", true), u.valToPos(observed, "y", true), Math.min(11, 2.5 + Math.sqrt(number) / 2) * ratio, 0, 7);
        ctx.fill();
      }
      ctx.restore();
    }] },
  }), [rows, theme]);
  const data = useMemo(() => [[0, 1], [0, 1]], []);
  return html`<${Chart} options=${options} data=${data} height=${280} label="Observed accuracy (up) against predicted accuracy (right); the table beside it has the numbers." />`;
}
