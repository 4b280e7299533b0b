// Overview: four tiles, model share and cost over time, alarms with what to do.
import { html, useMemo, useState } from "/page/vendor/preact-htm.js";
import { Chart, Legend, axis, color, stacked } from "/page/chart.js";
import { count, fixed, ms, percent, usd } from "/page/format.js";
import { Card, Empty, Failure, Head, Tile, Waiting, useData, useThrottled } from "/page/widgets.js";

const WINDOWS = [[1, "1 hour"], [24, "24 hours"], [168, "7 days"], [720, "30 days"]];

export function Overview({ who, news, theme }) {
  const [hours, setHours] = useState(24);
  const [found, again, error] = useData(`overview?hours=${hours}`);
  useThrottled(news, again, 3000);
  if (!found) return html`<${Head} title="Overview" /><${Failure} error=${error} />${!error && html`<${Waiting} />`}`;
  return html`<${Head} title="Overview" about=${`${who.admin ? "All keys of this gateway" : "The requests of your key"}${found.age > 10 ? `, ${count(Math.round(found.age))} seconds ago` : ""}.`}>
      <div class="segments" role="group" aria-label="Period">${WINDOWS.map(([value, shown]) => html`
        <button key=${value} aria-pressed=${hours === value} onClick=${() => setHours(value)}>${shown}</button>`)}</div>
    <//>
    <${Failure} error=${error} />
    ${found.alarms.map((alarm) => html`<div key=${alarm.title} class=${`alarm ${alarm.level}`} role="status"><span aria-hidden="true">!</span>
      <div><strong>${alarm.title}</strong><p>${alarm.what} <span class="muted">${alarm.do}</span></p></div></div>`)}
    <${Tiles} found=${found} period=${WINDOWS.find(([value]) => value === found.hours)?.[1]} />
    <${Card}><${Router} router=${found.router} /><//>
    ${found.requests === 0
      ? html`<${Card}><${Empty} title="No requests in this period"><p>Send one to <code>${location.origin}/v1/chat/completions</code> with <code>"model": "auto"</code>, or try the <a href="#/playground">playground</a>.</p><//><//>`
      : html`<div class="grid">
          <${Series} who=${who} found=${found} what="requests" title="Requests by model" shown=${count} theme=${theme} />
          <${Series} who=${who} found=${found} what="cost" title="Cost by model" shown=${usd} theme=${theme} />
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

function Router({ router }) {
  if (router.version === null) return html`<p class="muted">No router in service.</p>`;
  const prior = router.family === "prior";
  return html`<dl class="facts">
    <div><dt>Router</dt><dd>${prior ? "guesses from prices, nothing learned yet" : `${router.family}, version ${router.version}`}</dd></div>
    <div><dt title="0 is cheapest, 10 is best">Dial</dt><dd>${fixed(router.dial, 1)} of 10</dd></div>
    ${router.quality !== null && html`<div><dt title="Share of the best model's expected accuracy that is kept">Quality kept</dt><dd>${percent(router.quality)}</dd></div>`}
    <div><dt title="λ: accuracy that one US dollar must buy">λ</dt><dd>${Number(router.tradeoff.toPrecision(3))}</dd></div>
    <div><dt>Health</dt><dd>${router.ready ? html`<span class="badge good">ready</span>` : html`<span class="badge warn">starting</span>`}</dd></div>
  </dl>`;
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
