// Drift: is a model still what it was? Residuals by region and model over time, and what to do about a fall.
import { html, useEffect, useMemo, useState } from "/page/vendor/preact-htm.js";
import { post } from "/page/api.js";
import { Chart, Legend, Model, axis, color, css } from "/page/chart.js";
import { count, fixed, percent, utcDay, weekday } from "/page/format.js";
import { Card, Choice, Empty, Failure, Head, Waiting, useData } from "/page/widgets.js";

const LEAST = 10; // scored answers below which a mean says little
const signed = (value) => (value === null ? "–" : value === 0 ? "0" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`);

export function Drift({ who, theme }) {
  const [found, again, failed] = useData("drift");
  const [region, setRegion] = useState(null);
  const [all, setAll] = useState(false);
  const [error, setError] = useState(null);
  useEffect(() => {
    const timer = found?.reading ? setTimeout(again, 1000) : 0; // a large log takes a while to read
    return () => clearTimeout(timer);
  }, [found]);
  const head = (actions) => html`<${Head} title="Drift" about="Scores less predictions. A model that answers as it did stays level, whatever the router predicts.">${actions}<//>`;
  if (found === null) return html`${head()}<${Failure} error=${failed} />${failed ? null : html`<${Waiting} />`}`;
  if (!found.regions && found.reading) return html`${head()}<p class="muted" role="status">Reading the log …</p>`;
  if (!found.regions) return html`${head()}<${Card}><${Empty} title="Nothing to watch yet"><p>It takes a learned router and 200 scored requests with embeddings.</p><//><//>`;
  function restart() {
    if (!confirm("Start anew? The residuals and alarms so far are forgotten: what models do from now on counts as normal.")) return;
    post("drift/restart").then(() => { setError(null); again(); }, (problem) => setError(problem.message));
  }
  const worst = found.alarms.length ? found.regions.indexOf(found.alarms[0].region) : (found.series[0]?.region ?? 0);
  const shown = region ?? worst;
  const enough = { ...found, series: found.series.filter((each) => each.answers >= LEAST) };
  const few = found.series.length - enough.series.length;
  return html`${head(html`<button onClick=${restart} title="Forget the past: what models do from now on counts as normal">Start anew</button>`)}
    <${Failure} error=${error ?? failed} />
    ${found.alarms.map((alarm) => html`<div key=${alarm.model + alarm.region} class="alarm bad" role="status"><span aria-hidden="true">!</span><div>
      <strong>${alarm.model} got worse at ${alarm.region} on ${weekday(alarm.began)}</strong>
      <p>Mean score ${fixed(alarm.before, 2)} → ${fixed(alarm.after, 2)}, ${count(alarm.answers)} scored answers since. Noticed on ${weekday(alarm.raised)}. <span class="muted">Learn again, so that the router knows; then start anew here.</span></p></div></div>`)}
    ${found.alarms.length === 0 && html`<p class="muted">No model got worse since ${utcDay(found.times[0])}. The chance that a false alarm is ever raised here is at most ${percent(found.false_alarms)}.</p>`}
    <${Card} title="Residuals over time" about=${`Mean score less mean prediction, ${found.step === 1 ? "by day" : `by ${found.step} days`} (UTC); models with at least ${LEAST} scored answers.`}>
      <${Choice} label="Region" id="region" value=${String(shown)} options=${found.regions.map((name, index) => [String(index), name])} onChange=${(value) => setRegion(Number(value))} />
      <${Residuals} found=${enough} region=${shown} who=${who} theme=${theme} /><//>
    <${Card} title="All regions and models" about="Mean score and mean prediction over all days that are watched.">
      <${Table} found=${all ? found : enough} who=${who} />
      ${few > 0 && html`<p class="row spaced"><button aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Hide" : "Show"} ${count(few)} with fewer than ${LEAST} scored answers</button></p>`}<//>`;
}

function Residuals({ found, region, who, theme }) {
  const rows = found.series.filter((each) => each.region === region);
  const names = rows.map((each) => each.model);
  const data = useMemo(() => [found.times, ...rows.map((each) => each.over_time)], [found, region]);
  const options = useMemo(() => ({
    scales: { x: { time: true }, y: { range: (u, low, high) => [Math.min(-0.25, low), Math.max(0.25, high)] } },
    cursor: { drag: { x: false, y: false } },
    tzDate: (seconds) => window.uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    axes: [axis(null, 32, { incrs: [1, 2, 5, 10, 30].map((days) => days * 86400) }), axis((u, values) => values.map(signed), 56)],
    series: [{}, ...rows.map((each) => ({ label: each.model, stroke: color(who.models, each.model), width: 2, spanGaps: true, points: { show: true, size: 5 } }))],
    hooks: { draw: [(u) => {
      const { ctx } = u, level = u.valToPos(0, "y", true);
      ctx.save();
      ctx.strokeStyle = css("--muted");
      ctx.setLineDash([6, 4]);
      ctx.beginPath();
      ctx.moveTo(u.bbox.left, level);
      ctx.lineTo(u.bbox.left + u.bbox.width, level);
      ctx.stroke();
      ctx.restore();
    }] },
  }), [found, region, theme]);
  if (rows.length === 0) return html`<p class="muted">No model has ${LEAST} scored answers in this region yet.</p>`;
  const values = Object.fromEntries(rows.map((each) => [each.model, signed(each.over_time.findLast((value) => value !== null))]));
  return html`<${Chart} options=${options} data=${data} height=${260} label=${`Residuals at ${found.regions[region]}, latest: ${names.map((name) => `${name} ${values[name]}`).join(", ")}`} />
    <${Legend} models=${names} all=${who.models} values=${values} />`;
}

function Table({ found, who }) {
  const alarmed = new Map(found.alarms.map((each) => [`${each.region}\n${each.model}`, each]));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="All regions and models"><table><thead><tr><th>Region</th><th>Model</th><th class="n">Scored</th><th class="n">Score</th><th class="n">Predicted</th><th class="n">Residual</th><th></th></tr></thead>
    <tbody>${found.series.map((each) => html`<tr key=${`${each.region} ${each.model}`}><td>${found.regions[each.region]}</td><td><${Model} who=${who} name=${each.model} /></td>
      <td class="n">${count(each.answers)}</td><td class="n">${fixed(each.score, 2)}</td><td class="n">${fixed(each.predicted, 2)}</td><td class="n">${signed(each.score - each.predicted)}</td>
      <td>${alarmed.has(`${found.regions[each.region]}\n${each.model}`) && html`<span class="badge bad">got worse</span>`}</td></tr>`)}</tbody></table></div>`;
}
