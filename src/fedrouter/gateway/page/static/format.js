// Numbers and times as people read them. A missing value is a dash.

const DASH = "–";
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export const count = (value) => (known(value) ? Math.round(value).toLocaleString("en-US") : DASH);

export function usd(value) {
  if (!known(value)) return DASH;
  const size = Math.abs(value), sign = value < 0 ? "−" : "";
  if (size === 0) return "$0";
  if (size < 0.01) return `${sign}$${size.toFixed(Math.min(12, 1 - Math.floor(Math.log10(size)))).replace(/0+$/, "")}`;
  return `${sign}$${size.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: size < 1 ? 3 : 2 })}`;
}

export const percent = (value, digits = 0) => (known(value) ? `${(100 * value).toFixed(digits)}%` : DASH);
export const fixed = (value, digits = 3) => (known(value) ? value.toFixed(digits) : DASH);
export const ms = (value) => (!known(value) ? DASH : value < 10 ? `${value.toFixed(1)} ms` : value < 10000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`);

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-US", { month: "short", day: "numeric" });
const FULL = new Intl.DateTimeFormat("en-US", { dateStyle: "medium", timeStyle: "short" });

export function when(seconds) {
  if (!known(seconds)) return DASH;
  const at = new Date(seconds * 1000), now = new Date();
  return at.toDateString() === now.toDateString() ? CLOCK.format(at) : `${DAY.format(at)}, ${CLOCK.format(at).slice(0, 5)}`;
}
// Days as the gateway counts them, in UTC, whatever the browser's time zone.
const UTC_DAY = new Intl.DateTimeFormat("en-US", { dateStyle: "medium", timeZone: "UTC" });
const WEEKDAY = new Intl.DateTimeFormat("en-US", { weekday: "long", month: "long", day: "numeric", timeZone: "UTC" });
export const utcDay = (seconds) => (known(seconds) ? UTC_DAY.format(new Date(seconds * 1000)) : DASH);
export const weekday = (seconds) => (known(seconds) ? WEEKDAY.format(new Date(seconds * 1000)) : DASH);
const NAMED = new Intl.DateTimeFormat("en-US", { weekday: "long" }), FAR = new Intl.DateTimeFormat("en-US", { month: "long", day: "numeric" });
// A day as people name it: "Monday" within a week, and the date before that.
export const sinceDay = (seconds) => (Date.now() / 1000 - seconds < 6 * 86400 ? NAMED : FAR).format(new Date(seconds * 1000));
export const moment = (seconds) => (known(seconds) ? FULL.format(new Date(seconds * 1000)) : DASH);
