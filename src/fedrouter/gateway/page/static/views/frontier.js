// Frontier: expected accuracy against cost of the router in service, single models, "you are here", and the dial.
import { html, useEffect, useMemo, useState } from "/page/vendor/preact-htm.js";
import { call, put } from "/page/api.js";
import { Chart, Legend, axis, color, css } from "/page/chart.js";
import { count, fixed, percent, usd } from "/page/format.js";
import { Card, Failure, Head, Waiting, useData } from "/page/widgets.js";

export function Frontier({ who, theme }) {
  const [found, again, failed] = useData("frontier");
  const [dial, setDial] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => { if (found && dial === null) setDial(Number(found.here.dial.toFixed(1))); }, [found]);
  if (!found || dial === null) return html`<${Head} title="Frontier" /><${Failure} error=${failed} />${!failed && html`<${Waiting} />`}`;
  const point = found.points[Math.round(dial * 10)];
  const moved = dial !== Number(found.here.dial.toFixed(1));
  const change = (promise) => promise.then(() => { setError(null); again(); }, (problem) => setError(problem.message));
  return html`<${Head} title="Frontier" about=${found.from_traffic
      ? `What the router expects of the latest ${count(found.requests)} requests at every setting of the dial.`
      : "What the router expects of typical prompts. With 20 requests, yours are shown instead."} />
    <div class="grid">
      <${Card} title="Accuracy against cost per request" className="two"><${Plot} found=${found} point=${point} moved=${moved} who=${who} theme=${theme} />
        <p class="muted small">Band: the router's own 95% interval. Gray line: the best that tossing a coin between two models reaches; above it, routing pays.
          ${found.observed && ` Cross: ${count(found.observed.requests)} scored requests as they happened, with 95% intervals.`}</p><//>
      <${Card} title="The dial" about="0 takes the cheapest model, 10 the best one, whatever it costs." className="third">
        <p><input id="dial" type="range" min="0" max="10" step="0.1" value=${dial} aria-label="Dial" aria-valuetext=${`${dial} of 10`}
          style=${{ width: "100%" }} onInput=${(event) => setDial(Number(event.target.value))} /></p>
        <dl class="list" aria-live="polite">
          <dt>Dial</dt><dd><strong>${fixed(dial, 1)}</strong>${moved ? html` <span class="muted">now ${fixed(found.here.dial, 1)}</span>` : html` <span class="badge good">in service</span>`}</dd>
          <dt>Expected accuracy</dt><dd>${percent(point.accuracy, 1)}${moved && html` <${Change} value=${100 * (point.accuracy - found.here.accuracy)} unit=" points" digits=${1} />`}</dd>
          <dt>Expected cost</dt><dd>${usd(point.cost)} per request${moved && found.here.cost > 0 && html` <${Change} value=${100 * (point.cost / found.here.cost - 1)} unit="%" digits=${0} down />`}</dd>
        </dl>
        <h3>Share of requests</h3><${Shares} shares=${point.shares} who=${who} />
        ${who.admin ? html`<div class="row spaced"><button class="primary" disabled=${!moved} onClick=${() => change(put("dial", { dial }))}>Apply ${fixed(dial, 1)}</button>
          <button disabled=${!moved} onClick=${() => setDial(Number(found.here.dial.toFixed(1)))}>Undo</button>
          ${found.applied && html`<button onClick=${() => change(call("DELETE", "dial").then(() => setDial(null)))}>Back to the config's</button>`}</div>
          <p class="muted small">Applies to requests that set no dial, quality or tradeoff of their own, at every gateway on this store.</p>` : html`<p class="muted small">An admin key can apply it. A request of yours can set its own: <code>"fedrouter": {"dial": ${dial}}</code></p>`}
        <${Failure} error=${error} /><//>
    </div>`;
}

function Change({ value, unit, digits, down }) {
  if (Math.abs(value) < 0.05) return null;
  return html`<span class=${`badge ${value > 0 === !down ? "good" : "bad"}`}>${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(digits)}${unit}</span>`;
}

export function Shares({ shares, who }) {
  const names = Object.keys(shares).filter((name) => shares[name] >= 0.005).sort((a, b) => shares[b] - shares[a]);
  return html`<div class="bar" aria-hidden="true" style=${{ display: "flex", height: "14px", overflow: "hidden" }}>
      ${names.map((name) => html`<i key=${name} style=${{ width: `${100 * shares[name]}%`, background: color(who.models, name), borderRadius: 0, height: "14px" }}></i>`)}</div>
    <${Legend} models=${names} all=${who.models} values=${Object.fromEntries(names.map((name) => [name, percent(shares[name])]))} />`;
}

function Plot({ found, point, moved, who, theme }) {
  const curve = useMemo(() => [...found.points].sort((a, b) => a.cost - b.cost), [found]);
  const data = useMemo(() => [
    curve.map((each) => each.cost), curve.map((each) => each.accuracy),
    curve.map((each) => Math.min(1, each.accuracy + each.error)), curve.map((each) => Math.max(0, each.accuracy - each.error)),
  ], [found, point]);
  const options = useMemo(() => {
    const costs = [...curve, ...found.singles].map((each) => each.cost).filter((cost) => cost > 0);
    const low = Math.min(...costs) / 1.5, high = Math.max(...costs) * 1.5;
    const heights = [...curve.flatMap((each) => [each.accuracy - each.error, each.accuracy + each.error]), ...found.singles.map((each) => each.accuracy)];
    const bottom = Math.max(0, Math.min(...heights) - 0.03), top = Math.min(1, Math.max(...heights) + 0.03);
    // Powers of ten alone would leave a narrow range with one label, or none.
    const labelled = high / low > 100 ? /^1(\.0+)?e/ : high / low > 6 ? /^[125](\.0+)?e/ : /./;
    return {
      scales: { x: { time: false, distr: 3, range: () => [low, high] }, y: { range: () => [bottom, top] } },
      cursor: { show: false },
      axes: [
        axis((u, values) => values.map((value) => (value === null || !labelled.test(value.toExponential(3)) ? "" : usd(value))), 34, { space: 40, label: "expected cost of a request, logarithmic" }),
        axis((u, values) => values.map((value) => percent(value)), 44, { label: "expected accuracy" }),
      ],
      series: [{}, { stroke: css("--accent"), width: 2.5, points: { show: false } }, { points: { show: false }, width: 0 }, { points: { show: false }, width: 0 }],
      bands: [{ series: [2, 3], fill: `${css("--accent").slice(0, 7)}22` }],
      hooks: { draw: [(u) => marks(u, found, point, moved, who)] },
    };
  }, [found, point, moved, theme]);
  const label = `At dial ${point.dial.toFixed(1)} the router expects ${percent(point.accuracy, 1)} accuracy at ${usd(point.cost)} per request. `
    + found.singles.map((each) => `${each.model} alone: ${percent(each.accuracy, 1)} at ${usd(each.cost)}`).join("; ");
  return html`<${Chart} options=${options} data=${data} height=${400} label=${label} />`;
}

function marks(u, found, point, moved, who) {
  const { ctx } = u, ratio = devicePixelRatio, x = (value) => u.valToPos(value, "x", true), y = (value) => u.valToPos(value, "y", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  ctx.clip();
  ctx.strokeStyle = css("--muted");
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash([5 * ratio, 4 * ratio]);
  ctx.beginPath();
  found.toss.forEach((each, place) => {
    const before = found.toss[place - 1];
    if (!before) return ctx.moveTo(x(each.cost), y(each.accuracy));
    for (let step = 1; step <= 24; step += 1) // a straight line of costs is curved on a logarithmic scale
      ctx.lineTo(x(before.cost + ((each.cost - before.cost) * step) / 24), y(before.accuracy + ((each.accuracy - before.accuracy) * step) / 24));
    return undefined;
  });
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.font = `${11 * ratio}px system-ui`;
  const labels = [], here = [x(found.here.cost), y(found.here.accuracy)];
  const taken = [[here[0] - 45 * ratio, here[1] - 28 * ratio, here[0] + 45 * ratio, here[1] + 10 * ratio]];
  for (const each of found.singles) {
    ctx.fillStyle = color(who.models, each.model);
    ctx.beginPath();
    ctx.arc(x(each.cost), y(each.accuracy), 4.5 * ratio, 0, 7);
    ctx.fill();
    const name = each.model === found.baseline ? `${each.model} (baseline)` : each.model;
    labels.push([name, x(each.cost), y(each.accuracy), ctx.fillStyle]);
    taken.push([x(each.cost) - 4 * ratio, y(each.accuracy) - 4 * ratio, x(each.cost) + 4 * ratio, y(each.accuracy) + 4 * ratio]);
  }
  labels.sort((one, other) => other[1] - one[1]); // at the right edge a name has but one side
  for (const [name, left, middle, fill] of labels) {
    ctx.fillStyle = fill; // tells whose it is where points are close together
    place(ctx, taken, name, left, middle, u.bbox, ratio);
  }
  if (found.observed) {
    const { accuracy, accuracy_error: up, cost, cost_error: along } = found.observed;
    ctx.strokeStyle = css("--text");
    ctx.lineWidth = 1.5 * ratio;
    ctx.beginPath();
    ctx.moveTo(x(cost), y(accuracy - up));
    ctx.lineTo(x(cost), y(accuracy + up));
    ctx.moveTo(x(Math.max(cost - along, cost / 10)), y(accuracy));
    ctx.lineTo(x(cost + along), y(accuracy));
    ctx.stroke();
  }
  const dot = (each, fill, text) => {
    ctx.fillStyle = fill;
    ctx.strokeStyle = css("--card");
    ctx.lineWidth = 2 * ratio;
    ctx.beginPath();
    ctx.arc(x(each.cost), y(each.accuracy), 7 * ratio, 0, 7);
    ctx.fill();
    ctx.stroke();
    ctx.fillStyle = css("--text");
    ctx.textAlign = "center";
    ctx.font = `600 ${12 * ratio}px system-ui`;
    const half = ctx.measureText(text).width / 2, most = u.bbox.left + u.bbox.width - half;
    ctx.fillText(text, Math.min(most, Math.max(u.bbox.left + half, x(each.cost))), y(each.accuracy) - 13 * ratio);
  };
  if (moved) dot(point, css("--warn"), `dial ${point.dial.toFixed(1)}`);
  dot(found.here, css("--accent"), "you are here");
  ctx.restore();
}

// Writes a name beside its point, right or left of it, where neither another name nor a point is.
function place(ctx, taken, name, at, middle, box, ratio) {
  const width = ctx.measureText(name).width, height = 12 * ratio, gap = 8 * ratio;
  const sides = at + gap + width > box.left + box.width ? [at - gap - width] : [at + gap, at - gap - width];
  const spots = [0, 0.7, -0.7, 1.4, -1.4, 2.1, -2.1, 2.8, -2.8, 3.5, -3.5].flatMap((shift) => sides.map((left) => [left, middle + (shift - 0.5) * height]));
  const free = ([left, top]) => !taken.some(([l, t, r, b]) => left < r && left + width > l && top < b && top + height > t);
  const [left, top] = spots.find(free) ?? spots[0];
  taken.push([left, top, left + width, top + height]);
  ctx.textAlign = "left";
  ctx.fillText(name, left, top + height * 0.83);
}
