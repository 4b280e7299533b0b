// Overview: what was kept for which cost, four tiles, models, cost, errors and time over time, alarms with what to do.
import { html, useMemo, useState } from "/page/vendor/preact-htm.js";
import { Chart, Legend, Lines, axis, color, stacked } from "/page/chart.js";
import { count, fixed, ms, percent, sinceDay, usd } from "/page/format.js";
import { Card, Empty, Failure, Head, Tile, Waiting, useData, useEvery } from "/page/widgets.js";

const MUCH = 0.1; // share of requests that go to another model
const WIDE = 0.4; // an interval this wide says nothing yet
const WINDOWS = [[1, "1 hour"], [24, "24 hours"], [168, "7 days"], [720, "30 days"]];

export function Overview({ who, theme }) {
  const [hours, setHours] = useState(24);
  const [found, again, error] = useData(`overview?hours=${hours}`);
  useEvery(5000, again);
  if (!found) return html`<${Head} title="Overview" /><${Failure} error=${error} />${!error && html`<${Waiting} />`}`;
  return html`<${Head} title="Overview" about=${`${who.admin ? "All keys of this gateway" : "The requests of your key"}${found.age > 10 ? `, ${count(Math.round(found.age))} seconds ago` : ""}.`}>
      <div class="segments" role="group" aria-label="Period">${WINDOWS.map(([value, shown]) => html`
        <button key=${value} aria-pressed=${hours === value} onClick=${() => setHours(value)}>${shown}</button>`)}</div>
    <//>
    <${Failure} error=${error} />
    ${found.alarms.map((alarm) => html`<div key=${alarm.title} class=${`alarm ${alarm.level}`} role="status"><span aria-hidden="true">!</span>
      <div><strong>${alarm.title}</strong><p>${alarm.what} <span class="muted">${alarm.do}</span></p></div></div>`)}
    ${found.router.version !== null && html`<${Quality} found=${found} theme=${theme} />`}
    <${Tiles} found=${found} period=${WINDOWS.find(([value]) => value === found.hours)?.[1]} />
    ${found.requests === 0
      ? html`<${Card}><${Empty} title="No requests in this period"><p>Send one to <code>${location.origin}/v1/chat/completions</code> with <code>"model": "auto"</code>, or try the <a href="#/playground">playground</a>.</p><//><//>`
      : html`<div class="grid">
          <${Series} who=${who} found=${found} what="requests" title="Requests by model" shown=${count} theme=${theme} />
          <${Series} who=${who} found=${found} what="cost" title="Cost by model" shown=${usd} theme=${theme} />
          <${Rates} found=${found} what="errors" title="Requests that failed" shown=${(value) => percent(value, 1)} theme=${theme} />
          <${Rates} found=${found} what="latency" title="Mean time to a whole answer" shown=${ms} theme=${theme} />
        </div>`}`;
}

function Tiles({ found, period }) {
  const { saved, spend, quality, overhead } = found;
  const budgets = spend.budgets.reduce((sum, each) => sum + each.budget, 0);
  return html`<div class="tiles">
    <${Tile} label=${`Saved against ${saved.baseline}, ${period}`} tone=${saved.usd > 0 ? "good" : saved.usd < 0 ? "bad" : ""} value=${usd(saved.usd)}
      note=${saved.share === null ? "no routed request in this period" : `${percent(saved.share)} of its price, on ${count(saved.requests)} routed requests`}
      hint="What the baseline model would have cost for the same tokens, less what was spent. Requests that named their model are left out." />
    <${Tile} label=${`Spent, ${period}`} value=${usd(spend.usd)}
      note=${html`today ${usd(spend.today)}, about ${usd(spend.forecast)} by 00:00 UTC${budgets ? `; budgets ${usd(budgets)} a day` : "; no budget set"}`} />
    <${Tile} label="Quality from feedback" value=${quality.mean === null ? "–" : percent(quality.mean, 1)}
      note=${quality.mean === null ? "no score yet: POST /v1/feedback, or a judge" : `95%: ${percent(quality.low, 1)} to ${percent(quality.high, 1)}, ${count(quality.scored)} scored`}
      hint="Mean score of the requests of this period that were scored." />
    <${Tile} label="Added latency, median" value=${ms(overhead.p50)} note=${`99th percentile ${ms(overhead.p99)}, latest ${count(overhead.requests)} requests`}
      hint="Time that was not spent waiting for a model." />
  </div>`;
}

// What was kept of the best model's quality, in one sentence and over time, apart from what was to be kept.
function Quality({ found, theme }) {
  const certain = useMemo(() => found.history.filter((each) => each.high - each.low < WIDE), [found.history]);
  const { router, kept } = found, target = router.target === null ? null : percent(router.target);
  return html`<${Card}>
    <p class="sentence">${kept ? html`<strong>${percent(kept.cost)} of the cost at ${percent(kept.value)} of the quality</strong> of ${kept.best}, measured on ${count(kept.answers)} scored answers since ${sinceDay(kept.since)}.`
      : "How much of the best model's quality is kept is not measured yet: it takes 50 scored answers."}</p>
    <dl class="facts">
      <div><dt>Target</dt><dd>${target ?? `none: dial ${fixed(router.dial, 1)} of 10 is set`}</dd></div>
      ${kept && html`<div><dt>Kept</dt><dd>${percent(kept.value, 1)}, with 95% confidence ${percent(kept.low, 1)} to ${percent(kept.high, 1)}</dd></div>
        ${target && html`<div>${kept.broken ? html`<span class="badge bad">below the target</span>` : kept.value < router.target ? html`<span class="badge warn">below the target, by no more than chance</span>` : html`<span class="badge good">target met</span>`}</div>`}`}
      <div><dt>Router</dt><dd>${router.family === "prior" ? "guesses, nothing learned yet" : `version ${router.version}`}</dd></div>
      ${!router.ready && html`<div><span class="badge warn">starting</span></div>`}
    </dl>
    ${certain.length > 1 && html`<${History} history=${certain} target=${router.target} theme=${theme} />`}
    <details><summary>Details</summary><p class="muted small">Kept is the mean score of the routed answers over the best model's accuracy on the same requests, doubly robust: the
      router's estimates, corrected by the scores of that model's own answers over the probabilities with which it was chosen (propensities).${kept && ` For ${percent(kept.unsupported)} of the requests that rests on its estimate alone.`}
      Family ${router.family}, λ ${Number((router.tradeoff ?? 0).toPrecision(3))} accuracy per US dollar.</p></details><//>`;
}

function History({ history, target, theme }) {
  const column = (name) => history.map((each) => each[name]);
  const lines = useMemo(() => [{ label: "kept", color: "--accent", values: column("kept") }], [history]);
  const band = useMemo(() => [column("high"), column("low")], [history]);
  const marks = useMemo(() => history.filter((each) => each.changed >= MUCH).map((each) => each.at), [history]);
  const least = Math.min(...column("kept"), target ?? 1);
  const last = history[history.length - 1];
  return html`<${Lines} times=${column("at")} lines=${lines} band=${band} level=${target} marks=${marks} shown=${(value) => percent(value)} range=${() => [Math.max(0, least - 0.15), 1.1]} height=${190} theme=${theme}
      label=${`Quality kept over time, latest ${percent(last.kept, 1)}, between ${percent(last.low, 1)} and ${percent(last.high, 1)}${target === null ? "" : `; the target is ${percent(target)}`}`} />
    <ul class="legend"><li><i style=${{ background: "var(--accent)" }}></i>kept, with its 95% interval</li>${target !== null && html`<li><i class="dashed bad"></i>target</li>`}
      ${marks.length > 0 && html`<li><i class="dashed"></i>the router changed: at least ${percent(MUCH)} of the requests go to another model</li>`}</ul>`;
}

function Rates({ found, what, title, shown, theme }) {
  const { times, models } = found.series;
  const sum = (name, at) => Object.values(models).reduce((all, model) => all + model[name][at], 0);
  const lines = useMemo(() => [{ label: title, color: what === "errors" ? "--bad" : "--accent",
    values: times.map((_, at) => (sum("requests", at) ? sum(what, at) / sum("requests", at) : null)) }], [found]);
  const last = lines[0].values.findLast((value) => value !== null);
  return html`<${Card} title=${title} className="half"><${Lines} times=${times} lines=${lines} shown=${shown} theme=${theme} height=${170}
    range=${(u, low, high) => [0, Math.max(high, what === "errors" ? 0.02 : 0) || 1]} label=${`${title}, latest ${shown(last)}`} /><//>`;
}

function Series({ who, found, what, title, shown, theme }) {
  const { times, models, step } = found.series;
  const length = { 60: "minute", 3600: "hour", 10800: "3 hours", 43200: "12 hours" }[step];
  const sum = (name) => models[name][what].reduce((a, b) => a + b, 0);
  const names = Object.keys(models).sort((a, b) => sum(a) - sum(b)).filter((name) => sum(name) > 0);
  const known = names.join("\n");
  const data = useMemo(() => [times, ...stacked(names.map((name) => models[name][what]))], [found]);
  const options = useMemo(() => ({
    scales: { x: { time: true, range: (u, low, high) => [low, high + step] }, y: { range: (u, low, high) => [0, high || 1] } },
    cursor: { points: { show: false }, drag: { x: false, y: false } },
    axes: [axis(null, 32), axis((u, values) => values.map((value) => (what === "cost" ? usd(value) : count(value))), 62)],
    series: [{}, ...names.map((name) => ({ label: name, stroke: color(who.models, name), fill: color(who.models, name), width: 0, points: { show: false }, paths: window.uPlot.paths.bars({ size: [0.86, 60], align: 1 }) }))],
    bands: [],
  }), [known, step, theme]);
  const totals = Object.fromEntries(names.map((name) => [name, shown(sum(name))]));
  return html`<${Card} title=${html`${title} <span class="muted small">per ${length}</span>`} className="half">
    <${Chart} options=${options} data=${data} height=${210} label=${`${title}: ${names.map((name) => `${name} ${totals[name]}`).reverse().join(", ")}`} />
    <${Legend} models=${[...names].reverse()} all=${who.models} values=${totals} />
  <//>`;
}
