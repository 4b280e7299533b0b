// Decisions: a live list with filters, and one decision opened with its ranking, attempts, tokens and scores.
import { html, useEffect, useState } from "/page/vendor/preact-htm.js";
import { get, post, query } from "/page/api.js";
import { Model, color } from "/page/chart.js";
import { count, fixed, moment, ms, percent, usd, when } from "/page/format.js";
import { Bar, Card, Choice, Dialog, Empty, Failure, Head, Scroll, Waiting, useData, useEvery } from "/page/widgets.js";

const NONE = { model: "", reason: "", key: "", status: "", scored: "", least_cost: "", text: "" };
const SCORED = [["", "any"], ["yes", "scored"], ["low", "below 0.5"], ["no", "not scored"]];
const STATUSES = ["ok", "upstream_error", "timeout", "client_gone", "refused"];

export function Decisions({ who, id }) {
  const [filters, setFilters] = useState(NONE);
  const [older, setOlder] = useState({ rows: [], next: undefined });
  const [found, again, error] = useData(`decisions${query(filters)}`);
  useEvery(3000, () => { if (!older.rows.length) again(); });
  useEffect(() => setOlder({ rows: [], next: undefined }), [filters]);
  const set = (name) => (value) => setFilters({ ...filters, [name]: value });
  const next = older.next === undefined ? found?.next : older.next;
  async function more() {
    const page = await get(`decisions${query({ ...filters, before: next })}`);
    setOlder({ rows: [...older.rows, ...page.rows], next: page.next });
  }
  const open = (row) => { location.hash = `#/decisions/${row}`; };
  const rows = [...(found?.rows ?? []), ...older.rows];
  return html`<${Head} title="Decisions" about="Which model answered, why, and what it cost. Newest first, live." />
    <${Card}><div class="row" role="search" aria-label="Filters">
      <${Choice} id="filter-model" label="Model" value=${filters.model} onChange=${set("model")} options=${[["", "any"], ...who.models.map((name) => [name, name])]} />
      <${Choice} id="filter-reason" label="Reason" value=${filters.reason} onChange=${set("reason")} options=${[["", "any"], ...Object.keys(found?.reasons ?? {}).map((name) => [name, name])]} />
      ${who.admin && html`<${Choice} id="filter-key" label="Key" value=${filters.key} onChange=${set("key")} options=${[["", "any"], ...Object.entries(found?.keys ?? {})]} />`}
      <${Choice} id="filter-status" label="Status" value=${filters.status} onChange=${set("status")} options=${[["", "any"], ...STATUSES.map((name) => [name, name])]} />
      <${Choice} id="filter-scored" label="Score" value=${filters.scored} onChange=${set("scored")} options=${SCORED} />
      <label class="field"><span>Cost, at least (USD)</span><input id="filter-cost" type="number" min="0" step="any" value=${filters.least_cost} onInput=${(event) => set("least_cost")(event.target.value)} /></label>
      ${who.keep_prompts && html`<label class="field"><span>Prompt contains</span><input id="filter-text" type="search" maxlength="200" value=${filters.text} onInput=${(event) => set("text")(event.target.value)} /></label>`}
      <button onClick=${() => setFilters(NONE)} disabled=${Object.values(filters).every((value) => value === "")}>Clear</button>
    </div><//>
    <${Failure} error=${error} />
    <${Card}>${!found ? html`<${Waiting} />` : rows.length === 0 ? html`<${Empty} title="No decision fits"><p>${Object.values(filters).some(Boolean) ? "Clear a filter to see more." : "Requests appear here as they are answered."}</p><//>` : html`
      <${Scroll} label="List of decisions"><table>
        <thead><tr><th>Time</th><th>Model</th><th>Reason</th><th>Prompt or task</th><th class="hide-small">Key</th><th class="n">Cost</th><th class="n hide-small">Latency</th><th class="n">Score</th><th>Status</th></tr></thead>
        <tbody>${rows.map((row) => html`<tr key=${row.id} class="open" onClick=${() => open(row.id)}>
          <td><button class="link" onClick=${() => open(row.id)}>${when(row.time)}</button></td>
          <td><${Model} who=${who} name=${row.served ?? row.chosen} /></td>
          <td>${row.reason}</td><td class="prompt">${row.text ?? row.task ?? html`<span class="muted">not kept</span>`}</td>
          <td class="hide-small">${row.key_name ?? row.key}</td><td class="n">${usd(row.cost)}</td><td class="n hide-small">${ms(row.latency_ms)}</td>
          <td class="n">${row.score === null ? "–" : fixed(row.score, 2)}</td>
          <td>${row.status === "ok" ? html`<span class="badge good">ok</span>` : html`<span class="badge bad">${row.status}</span>`}</td>
        </tr>`)}</tbody></table><//>
      ${next && html`<p class="row spaced"><button onClick=${more}>Show older</button></p>`}`}<//>
    ${id && html`<${Opened} key=${id} id=${id} who=${who} onClose=${() => { location.hash = "#/decisions"; }} />`}`;
}

function Opened({ id, who, onClose }) {
  const [found, again, error] = useData(`decisions/${encodeURIComponent(id)}`);
  return html`<${Dialog} title="Decision" onClose=${onClose}>
    <${Failure} error=${error} />${!found ? !error && html`<${Waiting} />` : html`
    <p>${found.because ?? found.reason}</p>
    ${found.text && html`<pre class="prompt" tabindex="0">${found.text}</pre>`}
    <dl class="list">
      <dt>Chosen</dt><dd>${found.chosen}${found.served && found.served !== found.chosen ? html` <span class="badge warn">answered by ${found.served}</span>` : ""}</dd>
      <dt>When</dt><dd>${moment(found.time)}, key ${found.key}</dd>
      ${found.task && html`<dt>Task</dt><dd>${found.task}</dd>`}
      <dt>Status</dt><dd>${found.status}, ${found.attempts} ${found.attempts === 1 ? "attempt" : "attempts"}${found.streamed ? ", streamed" : ""}</dd>
      <dt>Tokens</dt><dd>${count(found.input_tokens)} in, ${count(found.output_tokens)} out${found.estimated ? " (estimated)" : ""}</dd>
      <dt>Cost</dt><dd>${usd(found.cost)}; predicted ${usd(found.predicted_cost)}; ${who.baseline} would have cost ${usd(found.baseline_cost)}</dd>
      <dt>Accuracy</dt><dd>predicted ${percent(found.predicted_accuracy, 1)}; score ${found.score === null ? "none yet" : fixed(found.score, 2)}</dd>
      <dt>Latency</dt><dd>${ms(found.latency_ms)}, of which routing ${ms(found.overhead_ms)}</dd>
    </dl>
    <${Score} id=${id} score=${found.score} onDone=${again} />
    ${found.feedback.length > 0 && html`<h3>Scores</h3><table><tbody>${found.feedback.map((each) => html`<tr key=${each.at}><td>${moment(each.at)}</td><td>${each.by}</td><td class="n">${fixed(each.score, 2)}</td></tr>`)}</tbody></table>`}
    ${found.estimates?.length > 0 && html`<h3>Ranking${found.estimated_by !== found.version && html` <span class="muted small">by version ${found.estimated_by}, which serves now</span>`}</h3><${Ranking} rows=${found.estimates} who=${who} chosen=${found.chosen} />`}
    <details><summary>Details</summary><dl class="list">
      <dt>Router</dt><dd>${found.family}, version ${found.version}</dd>
      <dt>Tradeoff λ</dt><dd>${Number(found.tradeoff.toPrecision(3))} accuracy per US dollar</dd>
      <dt>Propensity</dt><dd>${percent(found.propensity, 1)}: the probability with which this model was chosen</dd>
      <dt>Id</dt><dd><code>${found.id}</code></dd></dl></details>`}
  <//>`;
}

export function Ranking({ rows, who, chosen }) {
  const most = Math.max(...rows.map((row) => row.cost ?? 0)) || 1;
  const sorted = [...rows].sort((a, b) => (b.utility ?? -Infinity) - (a.utility ?? -Infinity));
  return html`<${Scroll} label="Ranking of models"><table class="ranking"><thead><tr><th>Model</th><th class="n" title="± one standard error">Predicted accuracy</th><th></th><th class="n">Predicted cost</th><th></th><th class="n" title="Predicted accuracy less what the cost is worth; the highest is chosen">Value</th></tr></thead>
    <tbody>${sorted.map((row) => html`<tr key=${row.model}><td><${Model} who=${who} name=${row.model} /> ${row.model === chosen ? html`<span class="badge good">chosen</span>` : ""}${row.guess && html` <span class="badge warn" title="Nothing was learned of it yet; where the guess comes from">guess: ${row.guess}</span>`}</td>
      <td class="n">${percent(row.accuracy, 1)}${row.error ? html`<small class="muted"> ± ${percent(row.error, 1)}</small>` : ""}</td><td><${Bar} value=${row.accuracy} error=${row.error} fill=${color(who.models, row.model)} /></td>
      <td class="n">${usd(row.cost)}</td><td><${Bar} value=${row.cost} most=${most} fill="var(--muted)" /></td>
      <td class="n">${fixed(row.utility, 3)}</td></tr>`)}</tbody></table><//>`;
}

export function Score({ id, score, onDone }) {
  const [error, setError] = useState(null);
  const send = (value) => post("feedback", { decision_id: id, score: value }).then(() => onDone(value), (found) => setError(found.message));
  return html`<div class="row"><span class="muted">Was the answer good?</span>
    <div class="segments" role="group" aria-label="Score">${[[0, "Bad"], [0.5, "Partly"], [1, "Good"]].map(([value, shown]) => html`
      <button key=${value} aria-pressed=${score === value} onClick=${() => send(value)}>${shown}</button>`)}</div><${Failure} error=${error} /></div>`;
}
