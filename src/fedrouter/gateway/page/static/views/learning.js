// Learning: what is served and learned, whether the promised quality is kept, calibration, and models that got worse.
import { html, useMemo, useState } from "/page/vendor/preact-htm.js";
import { post } from "/page/api.js";
import { Chart, Legend, Model, axis, color, css } from "/page/chart.js";
import { count, fixed, moment, percent, usd, utcDay, weekday } from "/page/format.js";
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
        : html`<div class="grid"><div class="third"><${Calibration} rows=${found.calibration} who=${who} theme=${theme} /></div><div class="two"><${Table} rows=${found.calibration} who=${who} /></div></div>`}<//>
    <${Drift} who=${who} theme=${theme} />`;
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

const LEAST = 5; // scored answers of a day below which their mean says little

// Is a model still what it was? Recent scores beside what was expected of the same queries, and scores by day.
function Drift({ who, theme }) {
  const [found, again, failed] = useData("drift");
  const [error, setError] = useState(null);
  const card = (about, inside) => html`<${Card} title="Is a model still what it was?" about=${about}>${inside}<//>`;
  if (found === null) return card("", failed ? html`<${Failure} error=${failed} />` : html`<${Waiting} />`);
  if (!found.cells?.length) return card("Scores of recent days are compared with what the days before let expect of the same queries; it takes scored answers of two days.", null);
  function restart() {
    if (!confirm("Start anew? Models are compared with what they are from now on.")) return;
    post("drift/restart").then(() => { setError(null); again(); }, (problem) => setError(problem.message));
  }
  const alarms = found.cells.filter((each) => each.alarm);
  return card("Scores of recent days, compared with what the days before let expect of the same queries.", html`
    <${Failure} error=${error ?? failed} />
    ${alarms.map((alarm) => html`<div key=${alarm.model} class="alarm bad" role="status"><span aria-hidden="true">!</span><div>
      <strong>${alarm.model} got worse since ${weekday(alarm.since)}</strong>
      <p>Mean score ${fixed(alarm.score, 2)} where ${fixed(alarm.expected, 2)} was expected, ${count(alarm.answers)} scored answers.</p></div></div>`)}
    ${alarms.length === 0 && html`<p>No model got worse. The chance that a false alarm is ever raised here is at most ${percent(found.false_alarms)}.</p>`}
    <div class="grid"><div class="half"><h3>Mean score by day <span class="muted">(UTC, days with at least ${LEAST} scored answers)</span></h3><${Days} found=${found} who=${who} theme=${theme} /></div>
    <div class="half"><h3>The days that differ most from those before</h3>
      <${Scroll} label="Recent days"><table><thead><tr><th>Model</th><th>Since</th><th class="n">Scored</th><th class="n">Score</th><th class="n">Expected</th><th></th></tr></thead>
        <tbody>${found.cells.map((each) => html`<tr key=${each.model}><td><${Model} who=${who} name=${each.model} /></td><td class="date">${utcDay(each.since)}</td><td class="n">${count(each.answers)}</td>
          <td class="n">${fixed(each.score, 2)}</td><td class="n">${fixed(each.expected, 2)}</td><td>${each.alarm && html`<span class="badge bad">got worse</span>`}</td></tr>`)}</tbody></table><//>
      <p class="row spaced"><button onClick=${restart} title="Compare models with what they are from now on">Start anew</button></p></div></div>`);
}

function Days({ found, who, theme }) {
  const times = [...new Set(found.days.map(([day]) => day))].sort((one, other) => one - other);
  const known = found.days.filter(([, , answers]) => answers >= LEAST);
  const names = [...new Set(known.map(([, model]) => model))];
  const data = useMemo(() => {
    const scores = new Map(known.map(([day, model, , score]) => [`${day} ${model}`, score]));
    return [times, ...names.map((model) => times.map((day) => scores.get(`${day} ${model}`) ?? null))];
  }, [found]);
  const options = useMemo(() => ({
    scales: { x: { time: true }, y: { range: () => [0, 1] } },
    cursor: { drag: { x: false, y: false } },
    tzDate: (seconds) => window.uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    axes: [axis(null, 32, { incrs: [1, 2, 5, 10, 30].map((days) => days * 86400) }), axis((u, values) => values.map((value) => percent(value)), 56)],
    series: [{}, ...names.map((model) => ({ label: model, stroke: color(who.models, model), width: 2, spanGaps: true, points: { show: true, size: 5 } }))],
  }), [found, theme]);
  return html`<${Chart} options=${options} data=${data} height=${260} label=${`Mean scores by day of ${names.join(", ")}; the table below has the latest.`} />
    <${Legend} models=${names} all=${who.models} values=${{}} />`;
}
