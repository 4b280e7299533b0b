// Drift: is a model still what it was? Recent scores beside what was expected of the same queries, and scores by day.
import { html, useMemo, useState } from "/page/vendor/preact-htm.js";
import { post } from "/page/api.js";
import { Chart, Legend, Model, axis, color } from "/page/chart.js";
import { count, fixed, percent, utcDay, weekday } from "/page/format.js";
import { Card, Empty, Failure, Head, Scroll, Waiting, useData } from "/page/widgets.js";

const LEAST = 5; // scored answers of a day below which their mean says little

export function Drift({ who, theme }) {
  const [found, again, failed] = useData("drift");
  const [error, setError] = useState(null);
  const head = (actions) => html`<${Head} title="Drift" about="Scores of recent days, compared with what the days before let expect of the same queries.">${actions}<//>`;
  if (found === null) return html`${head()}<${Failure} error=${failed} />${failed ? null : html`<${Waiting} />`}`;
  if (!found.cells?.length) return html`${head()}<${Card}><${Empty} title="Nothing to compare yet"><p>It takes scored answers of two days.</p><//><//>`;
  function restart() {
    if (!confirm("Start anew? Models are compared with what they are from now on.")) return;
    post("drift/restart").then(() => { setError(null); again(); }, (problem) => setError(problem.message));
  }
  const alarms = found.cells.filter((each) => each.alarm);
  return html`${head(html`<button onClick=${restart} title="Compare models with what they are from now on">Start anew</button>`)}
    <${Failure} error=${error ?? failed} />
    ${alarms.map((alarm) => html`<div key=${alarm.model} class="alarm bad" role="status"><span aria-hidden="true">!</span><div>
      <strong>${alarm.model} got worse since ${weekday(alarm.since)}</strong>
      <p>Mean score ${fixed(alarm.score, 2)} where ${fixed(alarm.expected, 2)} was expected, ${count(alarm.answers)} scored answers.</p></div></div>`)}
    ${alarms.length === 0 && html`<p class="muted">No model got worse. The chance that a false alarm is ever raised here is at most ${percent(found.false_alarms)}.</p>`}
    <${Card} title="Mean score by day" about=${`Days (UTC) with at least ${LEAST} scored answers of a model.`}><${Days} found=${found} who=${who} theme=${theme} /><//>
    <${Card} title="Recent days" about="For each model the span of days that differs most from those before.">
      <${Scroll} label="Recent days"><table><thead><tr><th>Model</th><th>Since</th><th class="n">Scored</th><th class="n">Score</th><th class="n">Expected</th><th></th></tr></thead>
        <tbody>${found.cells.map((each) => html`<tr key=${each.model}><td><${Model} who=${who} name=${each.model} /></td><td>${utcDay(each.since)}</td><td class="n">${count(each.answers)}</td>
          <td class="n">${fixed(each.score, 2)}</td><td class="n">${fixed(each.expected, 2)}</td><td>${each.alarm && html`<span class="badge bad">got worse</span>`}</td></tr>`)}</tbody></table><//><//>`;
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
