// The page: sign-in, navigation, and one view at a time.
import { html, render, useEffect, useState } from "/page/vendor/preact-htm.js";
import { call, get, post } from "/page/api.js";
import { Failure } from "/page/widgets.js";
import { VIEWS } from "/page/views.js";

const THEMES = ["auto", "light", "dark"];

function useTheme() {
  const [theme, set] = useState(localStorage.getItem("theme") ?? "auto");
  useEffect(() => {
    localStorage.setItem("theme", theme);
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }, [theme]);
  return [theme, () => set(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length])];
}

function useRoute() {
  const read = () => location.hash.replace(/^#\/?/, "").split("?")[0] || "overview";
  const [route, set] = useState(read());
  useEffect(() => {
    const changed = () => set(read());
    addEventListener("hashchange", changed);
    changed(); // effects run after the first drawing, and the view may have been changed in between
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

function SignIn({ onDone }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    try {
      await post("session", { key: new FormData(event.target).get("key") });
      onDone();
    } catch (found) {
      setError(found.message);
      setBusy(false);
    }
  }
  return html`<main class="signin"><form onSubmit=${submit} class="card">
    <img src="/page/icon.svg" alt="" width="36" height="36" />
    <h1>fedrouter</h1>
    <p class="muted">Sign in with an API key: an admin key sees everything, any other key its own requests.</p>
    <label class="field"><span>API key</span>
      <input name="key" type="password" autocomplete="current-password" spellcheck="false" placeholder="fr-…" required autofocus /></label>
    <${Failure} error=${error} />
    <button class="primary" disabled=${busy}>Sign in</button>
    <p class="muted small">The gateway printed its first key when it started. <code>fedrouter key create NAME</code> makes another.</p>
  </form></main>`;
}

function Shell({ who, onOut }) {
  const route = useRoute();
  const [theme, nextTheme] = useTheme();
  const views = VIEWS.filter((view) => who.admin || !view.admin);
  const [name, id] = route.split("/");
  const view = views.find((each) => each.name === name) ?? views[0];
  useEffect(() => {
    document.title = `${view.title} · fedrouter`;
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    document.querySelector("main h1")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [view]);
  return html`<div class="shell">
    <a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); document.querySelector("main h1")?.focus(); }}>Skip to content</a>
    <nav aria-label="Views">
      <a class="brand" href="#/overview"><img src="/page/icon.svg" alt="" width="22" height="22" />fedrouter</a>
      <ul>${views.map((each) => html`<li key=${each.name}><a href=${`#/${each.name}`} aria-current=${each === view ? "page" : undefined}>${each.title}</a></li>`)}</ul>
      <div class="who">
        <span class="name" title=${who.id}>${who.name}${who.admin ? " (admin)" : ""}</span>
        <button class="quiet" onClick=${nextTheme} aria-label=${`Theme: ${theme}`} title="Theme">${{ auto: "◐", light: "☀", dark: "☾" }[theme]}</button>
        <button class="quiet" onClick=${onOut}>Sign out</button>
      </div>
    </nav>
    <main id="content"><${view.Component} key=${view.name} who=${who} id=${id} theme=${theme} /></main>
  </div>`;
}

function Page() {
  const [who, setWho] = useState(undefined);
  const load = () => get("session").then(setWho, () => setWho(null));
  useEffect(() => {
    load();
    const out = () => setWho(null);
    addEventListener("signed-out", out);
    return () => removeEventListener("signed-out", out);
  }, []);
  async function leave() {
    await call("DELETE", "session").catch(() => null);
    setWho(null);
  }
  if (who === undefined) return null;
  return who === null ? html`<${SignIn} onDone=${load} />` : html`<${Shell} who=${who} onOut=${leave} />`;
}

render(html`<${Page} />`, document.getElementById("app"));
