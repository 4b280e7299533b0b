// Keys and models: create, edit and disable keys; prices and health of the models.
import { html, useState } from "/page/vendor/preact-htm.js";
import { call, post, put } from "/page/api.js";
import { Model } from "/page/chart.js";
import { count, usd, utcDay } from "/page/format.js";
import { Card, Dialog, Failure, Head, Scroll, Waiting, useData } from "/page/widgets.js";

const DEFAULTS = [["dial", "dial, 0 to 10"], ["quality", "quality, 0 to 1"], ["tradeoff", "tradeoff, accuracy per dollar"]];

export function Keys({ who, news }) {
  return html`<${Head} title="Keys and models" about=${who.admin ? "Who may send requests and spend what; which models may answer." : "The models that may answer, and what they charge."} />
    ${who.admin && html`<${KeyList} news=${news} />`}<${Models} who=${who} />`;
}

function KeyList() {
  const [found, again, failed] = useData("keys");
  const [editing, setEditing] = useState(null);
  const [token, setToken] = useState(null);
  const [error, setError] = useState(null);
  const done = (answer) => { setEditing(null); setToken(answer?.token ?? null); setError(null); again(); };
  function disable(key) {
    if (!confirm(`Disable ${key.name} for good? Its requests are refused from now on; its log stays.`)) return;
    call("DELETE", `keys/${key.id}`).then(() => done(), (problem) => setError(problem.message));
  }
  const state = (key) => (key.disabled ? ["bad", "disabled"] : key.expires && key.expires * 1000 < Date.now() ? ["bad", "expired"] : ["good", "active"]);
  return html`<${Card} title="API keys"><${Failure} error=${failed ?? error} />
    ${token && html`<div class="alarm warn" role="status"><div><strong>The new key, shown only once</strong><p><code>${token}</code> <button class="quiet" onClick=${() => setToken(null)}>Hide</button></p></div></div>`}
    ${!found ? html`<${Waiting} />` : html`<${Scroll} label="API keys"><table>
      <thead><tr><th>Name</th><th>State</th><th class="n">Requests today</th><th class="n">Spent today</th><th class="n">Daily budget</th><th class="n">Rate / minute</th><th>Expires</th><th></th></tr></thead>
      <tbody>${found.keys.map((key) => html`<tr key=${key.id}><td><span class="model" title=${key.name}>${key.name}</span>${key.admin ? html` <span class="badge">admin</span>` : ""}<br /><small class="muted">${key.id}</small></td>
        <td><span class=${`badge ${state(key)[0]}`}>${state(key)[1]}</span></td><td class="n">${count(key.requests)}</td><td class="n">${usd(key.spent)}</td>
        <td class="n">${key.daily_budget === null ? "none" : usd(key.daily_budget)}</td><td class="n">${key.rate_per_minute ?? "no limit"}</td><td>${key.expires ? utcDay(key.expires) : "never"}</td>
        <td class="right">${!key.disabled && html`<button class="quiet" aria-label=${`Edit ${key.name}`} onClick=${() => setEditing(key)}>Edit</button>`}
          ${!key.disabled && !key.own && html`<button class="quiet danger" aria-label=${`Disable ${key.name}`} onClick=${() => disable(key)}>Disable</button>`}</td></tr>`)}</tbody></table><//>`}
    <p><button onClick=${() => setEditing({})}>Create a key</button></p>
    ${editing && html`<${Form} key=${editing.id} entry=${editing} onDone=${done} onClose=${() => setEditing(null)} />`}<//>`;
}

function Form({ entry, onDone, onClose }) {
  const [error, setError] = useState(null);
  function submit(event) {
    event.preventDefault();
    const given = new FormData(event.target), number = (name) => (given.get(name) === "" ? null : Number(given.get(name)));
    const names = given.get("models").split(",").map((name) => name.trim()).filter(Boolean);
    const expires = given.get("expires") ? Date.parse(`${given.get("expires")}T00:00:00Z`) / 1000 : null;
    const body = { name: given.get("name"), daily_budget: number("daily_budget"), rate_per_minute: number("rate_per_minute"), expires,
      models: names.length ? names : null, max_cost: number("max_cost"), tradeoff: null, dial: null, quality: null };
    if (number("default") !== null) body[given.get("by")] = number("default");
    const sent = entry.id ? put(`keys/${entry.id}`, body) : post("keys", { ...body, admin: given.get("admin") === "on" });
    sent.then(onDone, (problem) => setError(problem.message));
  }
  const by = DEFAULTS.map(([name]) => name).find((name) => typeof entry[name] === "number") ?? "dial";
  const until = entry.expires ? new Date(entry.expires * 1000).toISOString().slice(0, 10) : "";
  // Defaults, not values: what somebody types must outlive the next drawing, which every live event causes.
  return html`<${Dialog} title=${entry.id ? `Edit ${entry.name}` : "Create a key"} onClose=${onClose}><form onSubmit=${submit}>
    <div class="row"><label class="field"><span>Name</span><input name="name" required maxlength="80" defaultValue=${entry.name ?? ""} /></label>
      <label class="field"><span>Daily budget (USD; empty: none)</span><input name="daily_budget" type="number" min="0" step="any" defaultValue=${entry.daily_budget ?? ""} /></label>
      <label class="field"><span>Requests per minute (empty: no limit)</span><input name="rate_per_minute" type="number" min="1" step="1" defaultValue=${entry.rate_per_minute ?? ""} /></label>
      <label class="field"><span>Expires (UTC; empty: never)</span><input name="expires" type="date" defaultValue=${until} /></label>
      <label class="field"><span>Models (such as gpt-*, with commas; empty: all)</span><input name="models" defaultValue=${entry.models?.join(", ") ?? ""} /></label></div>
    <div class="row"><label class="field"><span>Requests choose by</span><select name="by">${DEFAULTS.map(([name, shown]) => html`<option value=${name} selected=${name === by}>${shown}</option>`)}</select></label>
      <label class="field"><span>set to (empty: as in the config)</span><input name="default" type="number" min="0" step="any" defaultValue=${entry[by] ?? ""} /></label>
      <label class="field"><span>Most that a request may cost (USD; empty: no limit)</span><input name="max_cost" type="number" min="0" step="any" defaultValue=${entry.max_cost ?? ""} /></label>
      ${!entry.id && html`<label><input name="admin" type="checkbox" /> Admin: sees and changes everything</label>`}</div>
    <${Failure} error=${error} /><p><br /><button class="primary">${entry.id ? "Save" : "Create"}</button></p></form><//>`;
}

function Models({ who }) {
  const [found, , failed] = useData("models");
  return html`<${Card} title="Models"><${Failure} error=${failed} />${!found ? html`<${Waiting} />` : html`
    <${Scroll} label="Models"><table><thead><tr><th>Model</th><th>Health</th><th class="n">Input, per million tokens</th><th class="n">Output</th><th class="n">Context</th><th>Abilities</th>${who.admin && html`<th>Address</th>`}</tr></thead>
      <tbody>${found.models.map((model) => html`<tr key=${model.name}><td><${Model} who=${who} name=${model.name} />
          ${model.default && html` <span class="badge" title="Serves when the router is unsure">default</span>`}${model.baseline && html` <span class="badge" title="Savings are relative to it">baseline</span>`}${model.guess && html` <span class="badge warn" title="Nothing was learned of it yet; where the guess comes from">guess: ${model.guess}</span>`}</td>
        <td>${model.available ? html`<span class="badge good">ok</span>` : html`<span class="badge bad">resting, ${Math.ceil(model.seconds_left)} s</span>`}</td>
        <td class="n">${usd(model.input_price)}</td><td class="n">${usd(model.output_price)}</td><td class="n">${model.context ? count(model.context) : "no limit"}</td><td>${model.abilities.join(", ") || "–"}</td>${who.admin && html`<td class="muted small">${model.address}</td>`}</tr>`)}</tbody></table><//>`}<//>`;
}
