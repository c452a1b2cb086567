// Times from now are counted on, by the server's clock.
import { refresh } from './live.js';

const root = document.documentElement;
let ahead = Date.parse(root.dataset.now) - Date.now(); // of the server's clock

export function setNow(iso) {
  ahead = Date.parse(iso) - Date.now();
}

// span writes seconds in at most two units: 3d4h, 2m10s.
export function span(seconds) {
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'm'], [1, 's']];
  const first = parts.findIndex(([size]) => seconds >= size);
  if (first < 0) return '0s';
  const [size, unit] = parts[first];
  let text = Math.floor(seconds / size) + unit;
  if (first < 3) {
    const [small, name] = parts[first + 1];
    const rest = Math.floor((seconds % size) / small);
    if (rest > 0) text += rest + name;
  }
  return text;
}

function relative(time) {
  const seconds = Math.trunc((Date.parse(time) - Date.now() - ahead) / 1000);
  if (seconds === 0) return root.dataset.just;
  const form = seconds < 0 ? root.dataset.ago : root.dataset.in;
  return form.replace('{0}', span(Math.abs(seconds)));
}

// count writes the times from now of a page, which the server leaves empty in updates.
export function count(page) {
  for (const el of page.querySelectorAll('time[data-rel]')) {
    const text = relative(el.dateTime);
    if (el.textContent !== text) el.textContent = text;
  }
}

export function tick() {
  setInterval(() => {
    if (!document.hidden) count(document);
  }, 1000);
}

// clock writes a time as the page's zone has it.
export function clock(iso) {
  const zone = root.dataset.zone || 'UTC';
  return new Intl.DateTimeFormat('en-GB', { timeZone: zone, hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false }).format(new Date(iso));
}

// tellZone has the server write times in the browser's zone from now on.
export function tellZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const cookie = 'wasmjob-zone=' + encodeURIComponent(zone);
  if (!zone || root.dataset.zone === zone || document.cookie.split('; ').includes(cookie)) return;
  document.cookie = cookie + '; path=/; max-age=31536000; samesite=lax';
  root.dataset.zone = zone;
  refresh();
}
