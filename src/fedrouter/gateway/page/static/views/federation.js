// Federation: a coordinator's members and rounds, votes and coverage; or a client's audit, message by message.
import { html, useState } from "/page/vendor/preact-htm.js";
import { count, fixed } from "/page/format.js";
import { Card, Dialog, Empty, Failure, Head, Tile, Waiting, useData } from "/page/widgets.js";

const bytes = (value) => (value === null || value === undefined ? "–" : value < 1000 ? `${value} B` : value < 1e6 ? `${(value / 1000).toFixed(1)} kB` : `${(value / 1e6).toFixed(1)} MB`);
const time = (text) => (text ? text.slice(0, 19).replace("T", " ") : "–");
const SIGNS = { answered: "●", late: "◐", refused: "✕", "": "·" };
const TONES = { answered: "good", late: "warn", refused: "bad", "": "none" };
const VERDICTS = { accepted: "good", rejected: "bad", candidate: "warn" };

export function Federation() {
  const [found, , error] = useData("federation");
  if (!found) return html`<${Head} title="Federation" /><${Failure} error=${error} />${!error && html`<${Waiting} />`}`;
  if (found.kind === "coordinator") return html`<${Coordinator} found=${found} />`;
  if (found.kind === "client") return html`<${Client} found=${found} />`;
  return html`<${Head} title="Federation" /><${Card}><${Empty} title="This gateway takes part in no federation"><p>It shows here once it serves a bundle from the state directory of a client or a coordinator. <code>fedrouter federation page DIR</code> shows any other.</p><//><//>`;
}

function Coordinator({ found }) {
  const [open, setOpen] = useState(0);
  const run = found.runs[open];
  return html`<${Head} title="Federation" about="What this coordinator asked, and who answered. It never sees rows, and under secure sums no member's own sums." />
    <${Card} title="Members" about="Over the runs below. Budget: answers that a member's privacy budget still allows, as it said last. Rows are known only where sums were not secret.">
      <div class="scroll" tabindex="0" role="region" aria-label="Members"><table><thead><tr><th>Member</th><th class="n">Runs</th><th class="n">Answered</th><th class="n">Late</th><th class="n">Refused</th><th class="n">Sent</th><th class="n">Budget left</th><th class="n">Rows</th></tr></thead>
        <tbody>${found.members.map((each) => html`<tr key=${each.name}><td>${each.name}</td><td class="n">${count(each.runs)}</td><td class="n">${count(each.answered)}</td><td class="n">${count(each.late)}</td><td class="n">${count(each.refused)}</td><td class="n">${bytes(each.bytes)}</td><td class="n">${each.answers_left === null ? "no limit" : count(each.answers_left)}</td><td class="n">${each.rows === null ? "hidden" : count(each.rows)}</td></tr>`)}</tbody></table></div>
      ${found.members.length === 0 && html`<${Empty} title="Nobody is enrolled yet"><p><code>fedrouter federation enroll</code> adds a client.</p><//>`}<//>
    <${Card} title="Runs">
      ${found.runs.length === 0 ? html`<${Empty} title="No run yet"><p><code>fedrouter federation run</code> starts one.</p><//>` : html`<div class="scroll" tabindex="0" role="region" aria-label="Runs"><table><thead><tr><th>Run</th><th>What</th><th>Began (UTC)</th><th>State</th><th>Vote</th><th></th></tr></thead>
        <tbody>${found.runs.map((each, index) => html`<tr key=${each.name}><td>${each.name}</td><td>${each.what}</td><td>${time(each.began)}</td><td>${each.state}</td>
          <td>${each.vote ? html`<span class=${`badge ${VERDICTS[each.vote.status] ?? ""}`}>${each.vote.status}</span> <span class="small">${each.vote.why}</span>` : "–"}</td>
          <td><button aria-pressed=${index === open} onClick=${() => setOpen(index)}>Rounds</button></td></tr>`)}</tbody></table></div>`}<//>
    ${run && html`<${Card} title=${`Members and rounds of ${run.name}`} about=${run.secure ? "Secure sums: what a member sent is masked, and only totals were read." : "Plain sums: the coordinator saw each member's own sums."}><${Grid} run=${run} />${run.vote?.from_others && html`<${FromOthers} found=${run.vote.from_others} />`}<//>`}
    ${found.coverage && html`<${Card} title="Coverage" about=${`Rows of all members together, by region and model, in the router of ${found.coverage.run}.`}>
      <${Heat} rows=${found.coverage.rows} regions=${found.coverage.rows.map((_, index) => `region ${index + 1}`)} models=${found.coverage.models} /><//>`}`;
}

function Grid({ run }) {
  const names = Object.keys(run.grid);
  if (run.rounds.length === 0) return html`<p class="muted">Nothing was asked yet.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Members and rounds"><table class="rounds"><thead><tr><th class="first">Member</th>${run.rounds.map((verbs, index) => html`<th key=${index} title=${verbs}>${index + 1}</th>`)}</tr></thead>
    <tbody>${names.map((name) => html`<tr key=${name}><th scope="row">${name}</th>${run.grid[name].map((cell, index) => {
      const said = `${run.rounds[index]}: ${cell.state || "not asked"}${cell.bytes ? `, ${bytes(cell.bytes)}` : ""}${cell.why ? `, ${cell.why}` : ""}`;
      return html`<td key=${index} class=${`round ${TONES[cell.state]}`} title=${said}><span aria-hidden="true">${SIGNS[cell.state]}</span><span class="hidden">${said}</span></td>`;
    })}</tr>`)}</tbody></table></div>
    <ul class="legend"><li><b class="round good">●</b> answered</li><li><b class="round warn">◐</b> late</li><li><b class="round bad">✕</b> refused or missing</li><li><b class="round none">·</b> not asked</li></ul>`;
}

// What federating gives to all members together; what it gives to one is known to that member alone.
function FromOthers({ found }) {
  const first = found.changes[0];
  return html`<p class="muted">What the others' rows give, over ${count(found.queries)} queries of all members: accuracy ${first.accuracy < 0 ? "−" : "+"}${Math.abs(first.accuracy).toFixed(4)} ± ${first.accuracy_error.toFixed(4)} at λ = ${first.tradeoff}, instead of each member's best single model.</p>`;
}

function Client({ found }) {
  const [shown, setShown] = useState(null);
  const { budget } = found;
  return html`<${Head} title="Federation" about=${`What ${found.name} was asked by ${found.coordinator}, and everything that it sent.`} />
    <${Failure} error=${found.problem} />
    <div class="tiles">
      <${Tile} label="Messages sent" value=${count(found.messages.length)} note=${bytes(found.bytes)} />
      <${Tile} label="Journal" tone=${found.verified === null ? "bad" : "good"} value=${found.verified === null ? "not verified" : "as written"} note=${found.verified === null ? "see above" : `${count(found.verified)} messages in an unbroken chain`} />
      <${Tile} label="Privacy budget" value=${budget ? `${fixed(Math.max(0, budget.epsilon - budget.spent), 2)} left` : "no noise"} note=${budget ? `ε ${fixed(budget.spent, 2)} of ${fixed(budget.epsilon, 2)} spent` : "minimum group sizes and secure sums protect"} />
      <${Tile} label="Router delivered" value=${found.bundle ?? "none"} note="the accepted one that was pulled last" />
    </div>
    ${found.coverage && html`<${Card} title="Coverage" about="Rows by region and model: my own, and what the others bring. A cell that only they have is a model or a kind of query that I could not have learned alone.">
      <${Heat} rows=${found.coverage.own} others=${found.coverage.others} regions=${found.coverage.regions} models=${found.coverage.models} /><//>`}
    <${Card} title="Sent" about="Every message, newest first. What secure sums masked is listed as it left: masked.">
      <${List} rows=${found.messages} label="Sent" empty="Nothing was sent yet" columns=${[["What it holds", (each) => each.leaves], ["ε", (each) => (each.epsilon === null ? "–" : fixed(each.epsilon, 3))]]} onOpen=${(number) => setShown(["message", number])} /><//>
    <${Card} title="Asked" about="Every question, and what became of it.">
      <${List} rows=${found.questions} label="Asked" empty="Nothing was asked yet" columns=${[["Outcome", (each) => each.outcome]]} onOpen=${(number) => setShown(["question", number])} /><//>
    ${found.refusals.length > 0 && html`<${Card} title="Refused, or not used"><ul>${found.refusals.map((each, index) => html`<li key=${index}>${time(each.time)} ${each.event} ${each.verb}: ${each.why}</li>`)}</ul><//>`}
    ${shown && html`<${Entry} kind=${shown[0]} number=${shown[1]} onClose=${() => setShown(null)} />`}`;
}

function List({ rows, label, empty, columns, onOpen }) {
  if (rows.length === 0) return html`<${Empty} title=${empty} />`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table><thead><tr><th class="n">No.</th><th>Time (UTC)</th><th>Verb</th><th class="n">Bytes</th>${columns.map(([name]) => html`<th key=${name}>${name}</th>`)}<th></th></tr></thead>
    <tbody>${rows.map((each) => html`<tr key=${each.number}><td class="n">${each.number}</td><td>${time(each.time)}</td><td>${each.verb}</td><td class="n">${count(each.bytes)}</td>${columns.map(([name, value]) => html`<td key=${name}>${value(each)}</td>`)}
      <td><button aria-label=${`Show ${label.toLowerCase()} ${each.number}`} onClick=${() => onOpen(each.number)}>Show</button></td></tr>`)}</tbody></table></div>`;
}

function Entry({ kind, number, onClose }) {
  const [found, , error] = useData(`${kind}/${number}`);
  return html`<${Dialog} title=${`${kind === "message" ? "Message" : "Question"} ${number}`} onClose=${onClose}>
    <${Failure} error=${error} />${!found ? html`<${Waiting} />` : html`<p>${found.verb}</p>
      <pre>${JSON.stringify(found.scalars, null, 2)}</pre>
      ${found.arrays.map((each) => html`<div key=${each.name}><h3>${each.name} <small class="muted">${each.type}, ${each.shape.join(" × ") || "one number"}</small></h3>
        <pre>${each.numbers.join(", ")}${each.more > 0 ? `, … and ${count(each.more)} more` : ""}</pre></div>`)}
      ${found.arrays.length === 0 && html`<p class="muted">No arrays were kept.</p>`}`}<//>`;
}

function Heat({ rows, others, regions, models }) {
  const most = Math.max(1, ...rows.flat(), ...(others ?? []).flat());
  const level = (value) => Math.ceil((5 * value) / most);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Rows by region and model"><table class="heat"><thead><tr><th>Region</th>${models.map((name) => html`<th key=${name} class="n">${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row, region) => html`<tr key=${region}><th scope="row">${regions[region]}</th>${row.map((value, index) => {
      const more = others?.[region][index] ?? 0;
      return html`<td key=${index} class=${`n heat-${level(value)}`}>${count(value)}${others && html` <span class=${value === 0 && more > 0 ? "badge good" : "muted"}>+${count(more)}</span>`}</td>`;
    })}</tr>`)}</tbody></table></div>`;
}
