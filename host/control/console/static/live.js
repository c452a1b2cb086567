// A page is asked for again when the stream of jobs says that something has changed that
// it shows; what differs is put in its place.
import { morph } from './morph.js';
import { setNow, clock, count } from './time.js';

const root = document.documentElement;
const main = document.getElementById('main');
const pace = 1000; // between two refreshes at least, in ms
const poll = 10000; // between two refreshes without a stream
let source = null;
let asked = false; // for a refresh that is not under way yet
let busy = false;
let timer = 0;
let lost = 0; // when the stream was lost
let mark = root.dataset.mark;
let parts = new Map(); // the page's text when it was last asked for, in order, by ids
let refusals = 0; // of the stream, one after the other

// wait is how long a stream that was refused so often is left alone: 10 s at first, twice as
// long each time up to 5 minutes, and not the same for all tabs.
export function wait(refusals) {
  return Math.min(poll * 2 ** (refusals - 1), 300000) * (0.75 + Math.random() / 2);
}

const wants = () => main.dataset.live;

// show replaces what the page shows by another text of it.
export function show(html) {
  const page = new DOMParser().parseFromString(html, 'text/html');
  const now = page.getElementById('main');
  if (!now) return;
  setNow(page.documentElement.dataset.now);
  count(page);
  morph(main, now);
  const banners = document.getElementById('banners');
  const newer = page.getElementById('banners');
  if (banners && newer) morph(banners, newer);
  document.title = page.title;
  document.dispatchEvent(new CustomEvent('refreshed', { detail: now }));
}

// text is a page of which only what has changed was sent.
async function text(answer) {
  if (!answer.headers.get('Content-Type')?.startsWith('application/json')) return answer.text();
  const page = (await answer.json()).parts;
  const newer = new Map(parts);
  for (const p of page) if (p.text !== undefined) newer.set(p.id, p.text);
  parts = new Map(page.map((p) => [p.id, newer.get(p.id)]));
  return page.map((p) => parts.get(p.id)).join('');
}

export async function refresh() {
  if (busy) {
    asked = true;
    return;
  }
  busy = true;
  asked = false;
  const begun = performance.now();
  try {
    const have = [...parts.keys()].join(' ') || 'nothing';
    const answer = await fetch(location.href, { redirect: 'manual', cache: 'no-store', headers: { 'Wasmjob-Have': have } });
    if (answer.type === 'opaqueredirect' || answer.status === 401) {
      location.reload(); // to sign in
      return;
    }
    show(await text(answer));
    if (!source) lose(false);
  } catch {
    lose(true);
  }
  // A host that is slow is asked less often.
  const wait = Math.max(pace, 10 * (performance.now() - begun));
  setTimeout(() => {
    busy = false;
    if (asked) refresh();
  }, wait);
}

function schedule() {
  if (document.hidden) {
    asked = true;
    return;
  }
  refresh();
}

function lose(gone) {
  const sign = document.getElementById('live');
  if (!sign) return;
  if (gone && !lost) lost = Date.now();
  if (!gone) lost = 0;
  sign.hidden = false;
  sign.classList.toggle('off', gone);
  sign.textContent = gone ? sign.dataset.lost.replace('{0}', clock(lost)) : sign.dataset.live;
}

function concerns(jobs) {
  const one = main.dataset.job;
  return !one || jobs.some((j) => j.name === one);
}

function open() {
  if (source || document.hidden) return;
  const alerts = main.dataset.alerts;
  source = new EventSource('/v1/stream?since=' + encodeURIComponent(mark) + (alerts ? '&alerts=' + alerts : ''));
  source.addEventListener('open', () => {
    refusals = 0;
    lose(false);
  });
  source.addEventListener('jobs', (e) => {
    mark = e.lastEventId || mark;
    const changed = JSON.parse(e.data);
    if (changed.whole || concerns(changed.jobs)) schedule();
  });
  source.addEventListener('alerts', (e) => {
    if (e.data !== main.dataset.alerts) schedule();
  });
  source.addEventListener('error', () => {
    lose(true);
    if (source && source.readyState === EventSource.CLOSED) { // it was refused
      source = null;
      refusals++;
      clearTimeout(timer);
      timer = setTimeout(again, wait(refusals)); // meanwhile the page is asked for now and then
    }
  });
}

function again() {
  timer = 0;
  if (document.hidden) return;
  refresh();
  open();
}

// A tab that nobody sees keeps no connection: browsers have six for each server.
function seen() {
  if (document.hidden) {
    if (source) source.close();
    source = null;
    return;
  }
  if (timer) refresh(); // the stream was refused: its time is still to come
  else again();
}

export function live() {
  if (!main || !wants() || wants() === 'no') return;
  document.addEventListener('visibilitychange', seen);
  open();
  // What no job's change tells of: hosts, clocks, times that pass.
  setInterval(() => {
    if (!document.hidden) refresh();
  }, 3 * poll);
}
