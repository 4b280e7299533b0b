// Small parts that every view uses.
import { html, useCallback, useEffect, useRef, useState } from "/page/vendor/preact-htm.js";
import { get } from "/page/api.js";

// Loads a path and reloads when it changes, or when `again` is called; keeps what it had meanwhile.
export function useData(path) {
  const [state, set] = useState({ found: null, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    const stop = new AbortController();
    get(path, stop.signal).then(
      (found) => set({ found, error: null }),
      (error) => error.name !== "AbortError" && set((before) => ({ ...before, error: error.message })),
    );
    return () => stop.abort();
  }, [path, turn]);
  return [state.found, useCallback(() => setTurn((before) => before + 1), []), state.error];
}

// Calls `act` every so many milliseconds while the page is looked at.
export function useEvery(milliseconds, act) {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) latest.current(); }, milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}

// Lets what is too wide scroll sideways, and says so while there is more.
export function Scroll({ label, children }) {
  const box = useRef(null);
  const [more, setMore] = useState(false);
  useEffect(() => {
    const look = () => setMore(box.current.scrollWidth - box.current.clientWidth - box.current.scrollLeft > 4);
    const watch = new ResizeObserver(look);
    watch.observe(box.current);
    watch.observe(box.current.firstElementChild);
    box.current.addEventListener("scroll", look, { passive: true });
    return () => watch.disconnect();
  }, []);
  return html`<div class=${`sideways ${more ? "more" : ""}`}>${more && html`<p class="muted small right">more columns: scroll sideways →</p>`}
    <div class="scroll" tabindex="0" role="region" aria-label=${label} ref=${box}>${children}</div></div>`;
}

export const Head = ({ title, about, children }) => html`<header class="head">
  <div><h1 tabindex="-1">${title}</h1>${about && html`<p class="muted">${about}</p>`}</div>
  <div class="actions">${children}</div>
</header>`;

export const Card = ({ title, about, children, className = "" }) => html`<section class=${`card ${className}`}>
  ${title && html`<h2>${title}</h2>`}${about && html`<p class="muted">${about}</p>`}${children}
</section>`;

export const Tile = ({ label, value, note, hint, tone }) => html`<div class=${`tile ${tone ?? ""}`}>
  <div class="label" title=${hint ?? ""}>${label}</div><div class="value">${value}</div><div class="note">${note}</div>
</div>`;

export const Empty = ({ title, children }) => html`<div class="empty"><strong>${title}</strong><div>${children}</div></div>`;
export const Failure = ({ error }) => error && html`<p class="failure" role="alert">${error}</p>`;
export const Waiting = () => html`<p class="muted" role="status">Loading …</p>`;

export const Choice = ({ label, value, options, onChange, id }) => html`<label class="field"><span>${label}</span>
  <select id=${id} value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${options.map(([key, shown]) => html`<option key=${key} value=${key} selected=${key === value}>${shown}</option>`)}
  </select></label>`;

// A bar from 0 to 1 with an interval of one standard error on either side.
export function Bar({ value, error, most = 1, fill }) {
  const at = (part) => `${Math.max(0, Math.min(100, (100 * part) / most))}%`;
  return html`<div class="bar" aria-hidden="true"><i style=${{ width: at(value ?? 0), background: fill }}></i>
    ${error ? html`<b style=${{ left: at(value - error), width: `calc(${at(value + error)} - ${at(value - error)})` }}></b>` : null}</div>`;
}

export function Dialog({ title, onClose, children }) {
  const box = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${box} aria-label=${title} onClose=${onClose} onClick=${(event) => event.target === box.current && box.current.close()}>
    <div class="dialog"><header><h2>${title}</h2><button class="quiet" aria-label="Close" onClick=${() => box.current.close()}>✕</button></header>${children}</div>
  </dialog>`;
}
