// Playground: what the router predicts for a prompt, the choice at each dial, and real answers side by side.
import { html, useEffect, useRef, useState } from "/page/vendor/preact-htm.js";
import { post, stream } from "/page/api.js";
import { color } from "/page/chart.js";
import { percent, usd } from "/page/format.js";
import { Card, Choice, Failure, Head } from "/page/widgets.js";
import { Ranking, Score } from "/page/views/decisions.js";

const EXAMPLES = [
  "Write a SQL query that counts orders per customer for the last 30 days.",
  "Translate into French: The library opens at nine.",
  "What are common side effects of ibuprofen?",
  "Write a short poem about a lighthouse in winter.",
  "A train leaves at 9:40 and arrives at 13:05. How long does it take?",
];
const messages = (prompt) => [{ role: "user", content: prompt }];

export function Playground({ who }) {
  const [prompt, setPrompt] = useState(EXAMPLES[0]);
  const [dial, setDial] = useState("");
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [models, setModels] = useState(["auto", ""]);
  const [turn, setTurn] = useState(0);
  const options = dial === "" ? {} : { fedrouter: { dial: Number(dial) } };
  useEffect(() => {
    if (!prompt.trim()) return undefined;
    const timer = setTimeout(() => {
      post("estimate", { messages: messages(prompt), ...options }).then(
        (answer) => { setFound(answer); setError(null); },
        (problem) => setError(problem.message),
      );
    }, 250);
    return () => clearTimeout(timer);
  }, [prompt, dial]);
  const pick = (place) => (name) => setModels(models.map((each, index) => (index === place ? name : each)));
  const names = who.models.map((name) => [name, name]);
  return html`<${Head} title="Playground" about="See what the router predicts before anything is sent. Sending is charged to your key and logged." />
    <${Card}>
      <label class="field" style=${{ width: "100%" }}><span>Prompt</span><textarea id="prompt" value=${prompt} onInput=${(event) => setPrompt(event.target.value)}></textarea></label>
      <div class="row spaced">
        <${Choice} id="example" label="or pick one" value="" onChange=${(value) => value && setPrompt(value)} options=${[["", "Examples …"], ...EXAMPLES.map((text) => [text, text.length > 60 ? `${text.slice(0, 60)}…` : text])]} />
        <${Choice} id="play-dial" label="Dial" value=${dial} onChange=${setDial} options=${[["", "the gateway's"], ...Array.from({ length: 11 }, (_, each) => [String(each), `${each}${each === 0 ? " (cheapest)" : each === 10 ? " (best)" : ""}`])]} />
        <${Choice} id="first-model" label="Send to" value=${models[0]} onChange=${pick(0)} options=${[["auto", "auto (the router)"], ...names]} />
        <${Choice} id="second-model" label="beside" value=${models[1]} onChange=${pick(1)} options=${[["", "nothing"], ["auto", "auto (the router)"], ...names]} />
        <button class="primary" disabled=${!prompt.trim()} onClick=${() => setTurn(turn + 1)}>Send</button>
      </div><${Failure} error=${error} /><//>
    ${turn > 0 && html`<div class="grid">${models.filter(Boolean).map((model, place) => html`<${Answer} key=${`${turn}-${place}`} model=${model} prompt=${prompt} options=${model === "auto" ? options : {}} wide=${!models[1]} />`)}</div>`}
    ${found && html`<${Card} title="Predictions" about=${html`The router would send it to <strong>${found.model}</strong>: ${found.because}.`}>
      ${found.dials.length > 0 && html`<h3>Choice at each dial</h3><ol class="dials">${found.dials.map((each) => html`<li key=${each.dial} title=${each.model}><span class="muted">${each.dial}</span><i style=${{ background: color(who.models, each.model) }}></i>${each.model}</li>`)}</ol>`}
      ${found.estimates.length > 0 ? html`<${Ranking} rows=${found.estimates} who=${who} chosen=${found.model} /><p class="muted small">± one standard error. Value: predicted accuracy less what the cost is worth; the highest is chosen.</p>` : html`<p class="muted">No estimates for this prompt.</p>`}<//>`}`;
}

function Answer({ model, prompt, options, wide }) {
  const [text, setText] = useState("");
  const [headers, setHeaders] = useState(null);
  const [error, setError] = useState(null);
  const [done, setDone] = useState(false);
  const [score, setScore] = useState(null);
  const stop = useRef(new AbortController());
  useEffect(() => {
    const hear = (so, heads) => { setText(so); setHeaders(heads); };
    stream({ model, messages: messages(prompt), ...options }, hear, stop.current.signal).then(
      () => setDone(true),
      (problem) => problem.name !== "AbortError" && setError(problem.message),
    );
    return () => stop.current.abort();
  }, []);
  const head = (name) => headers?.get(`x-fedrouter-${name}`);
  return html`<${Card} className=${wide ? "all" : "half"} title=${head("model") ?? model}>
    ${headers && html`<p class="muted small">${head("reason")}${head("predicted-accuracy") ? `, predicted ${percent(Number(head("predicted-accuracy")), 1)} at ${usd(Number(head("predicted-cost")))}` : ""}, routed in ${head("overhead-ms")} ms</p>`}
    <div class="answer" tabindex="0" role="region" aria-label=${`Answer of ${head("model") ?? model}`} aria-busy=${!done && !error}>${text}</div><${Failure} error=${error} />
    ${done && html`<${Score} id=${head("decision-id")} score=${score} onDone=${(value) => setScore(value)} />
      <p class="small"><a href=${`#/decisions/${head("decision-id")}`}>Open this decision</a></p>`}<//>`;
}
