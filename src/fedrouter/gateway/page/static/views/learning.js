// Learning: what the log has that the router has not, candidates with their off-policy estimates, and calibration.
import { html, useEffect, useMemo, useState } from "/page/vendor/preact-htm.js";
import { post } from "/page/api.js";
import { Chart, Model, axis, color, css } from "/page/chart.js";
import { count, fixed, moment, percent, usd } from "/page/format.js";
import { Card, Empty, Failure, Head, Tile, Waiting, useData } from "/page/widgets.js";

const CONFIDENCE = 1.96;
const interval = (mean, shown) => html`${shown(mean.value)} <small class="muted">${shown(mean.value - CONFIDENCE * mean.error)} to ${shown(mean.value + CONFIDENCE * mean.error)}</small>`;

export function Learning({ who, theme }) {
  const [found, again, failed] = useData("learning");
  const [error, setError] = useState(null);
  useEffect(() => {
    if (!found?.running) return undefined;
    const timer = setInterval(again, 1000);
    return () => clearInterval(timer);
  }, [found?.running]);
  const act = (promise) => promise.then(() => { setError(null); again(); }, (problem) => setError(problem.message));
  if (!found) return html`<${Head} title="Learning" /><${Failure} error=${failed} />${!failed && html`<${Waiting} />`}`;
  return html`<${Head} title="Learning" about="A candidate is learned from scored requests and compared with the router in service on old traffic.">
      <button disabled=${!found.can_roll_back} onClick=${() => act(post("rollback"))}>Roll back</button>
      <button class="primary" disabled=${found.running} onClick=${() => act(post("learn"))}>${found.running ? "Learning …" : "Learn now"}</button><//>
    <${Failure} error=${error} />
    <div class="tiles">
      <${Tile} label="In service" value=${found.family === "prior" ? "guesses" : `version ${found.version}`} note=${`${found.family}, since ${moment(found.since)}`} />
      <${Tile} label="Scored since then" value=${count(found.scored) + (found.scored < found.most_counted ? "" : " or more")} note=${found.automatic ? `learns by itself every ${count(found.every)}` : "learns when you ask; learning: on makes it automatic"} />
      <${Tile} label="Explored" value=${percent(found.exploration.share, 1)} note=${`of ${count(found.exploration.requests)} requests; ${found.exploration.most ? `the config allows ${percent(found.exploration.most)}` : "off in the config now"}`} hint="Requests whose model was drawn, so that every model keeps being measured." />
      <${Tile} label="Cost of exploration" value=${percent(found.exploration.cost_share, 1)} note=${`of the cost; ${count(found.exploration.drawn)} drawn and scored requests to judge on`} />
    </div>
    <${Card} title="Candidates" about="Off-policy estimates (doubly robust) with 95% intervals: what each router would have reached on the same requests.">
      ${found.attempts.length === 0 ? html`<${Empty} title="Nothing was learned here yet"><p>It takes at least 50 scored requests whose model was drawn by exploration; there are ${count(found.exploration.drawn)}.</p><//>` : html`
      <div class="scroll" tabindex="0" role="region" aria-label="Candidates"><table><thead><tr><th>When</th><th>Accuracy: in service</th><th>candidate</th><th>Cost: in service</th><th>candidate</th><th>Verdict</th><th></th></tr></thead>
        <tbody>${found.attempts.map((each) => html`<tr key=${each.at}><td>${moment(each.at)}</td>
          ${each.trial ? html`<td>${interval(each.trial.present.accuracy, (value) => percent(value, 1))}</td><td>${interval(each.trial.candidate.accuracy, (value) => percent(value, 1))}</td>
            <td>${interval(each.trial.present.cost, usd)}</td><td>${interval(each.trial.candidate.cost, usd)}</td>` : html`<td colspan="4" class="muted">not compared</td>`}
          <td>${each.trial && html`<span class=${`badge ${each.trial.better ? "good" : "warn"}`}>${each.trial.better ? "better" : "not proven"}</span> `}<span class="small">${each.why}</span></td>
          <td>${each.in_service ? html`<span class="badge good">in service</span>` : each.digest && html`<button onClick=${() => act(post("use", { digest: each.digest }))}>Use</button>`}</td></tr>`)}</tbody></table></div>`}<//>
    <${Card} title="Calibration" about="Predicted against observed, over the latest scored requests. Points on the diagonal are right on average.">
      ${found.calibration.length === 0 ? html`<${Empty} title="No scored request yet"><p>Scores come from <code>POST /v1/feedback</code>, judges, or the buttons beside an answer.</p><//>`
        : html`<div class="grid"><div class="third"><${Calibration} rows=${found.calibration} who=${who} theme=${theme} /></div><div class="two"><${Table} rows=${found.calibration} who=${who} /></div></div>`}<//>`;
}

function Table({ rows, who }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Calibration by model"><table><thead><tr><th>Model</th><th class="n">Scored</th><th class="n">Accuracy predicted</th><th class="n">observed</th><th class="n">Cost predicted</th><th class="n">observed</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.model}><td><${Model} who=${who} name=${row.model} /></td><td class="n">${count(row.requests)}</td>
      <td class="n">${fixed(row.predicted, 2)}</td><td class="n">${fixed(row.observed, 2)}</td><td class="n">${usd(row.predicted_cost)}</td><td class="n">${usd(row.cost)}</td></tr>`)}</tbody></table></div>`;
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
