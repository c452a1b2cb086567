// A log follows its run: new lines come by a stream of their own.
import { clock } from './time.js';
import { refresh, wait } from './live.js';

const levels = [[8, 'error'], [4, 'warn'], [0, 'info']];
let source = null;
let refusals = 0; // of the stream, one after the other
let timer = 0; // until it is tried again; 0: it was not refused
let seen = new Set();

const keyOf = (at, text) => Date.parse(at) + ' ' + text;

function known(box) {
  seen = new Set([...box.querySelectorAll('.line')].map((l) => keyOf(l.querySelector('time')?.dateTime, l.querySelector('.msg')?.textContent)));
}

function piece(kind, text) {
  const el = document.createElement('span');
  el.className = kind;
  el.textContent = text;
  return el;
}

function add(box, line) {
  const key = keyOf(line.time, line.message);
  if (seen.has(key)) return;
  seen.add(key);
  const end = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  const level = (levels.find(([least]) => line.level >= least) || [0, 'debug'])[1];
  const row = document.createElement('div');
  row.className = 'line level-' + level;
  const at = document.createElement('time');
  at.className = 'at';
  at.dateTime = line.time;
  at.textContent = clock(line.time);
  row.append(at, ' ', piece('level', level), ' ', piece('msg', line.message));
  for (let n = 0; n + 1 < (line.attrs || []).length; n += 2) row.append(' ', piece('attr', line.attrs[n] + '=' + line.attrs[n + 1]));
  box.append(row);
  while (box.childElementCount > 5000) box.firstElementChild.remove();
  if (end) box.scrollTop = box.scrollHeight;
}

// take adds lines that the stream has not brought before the run ended.
function take(page) {
  const box = document.getElementById('log');
  for (const line of page.querySelectorAll('#log .line')) {
    const key = keyOf(line.querySelector('time')?.dateTime, line.querySelector('.msg')?.textContent);
    if (seen.has(key)) continue;
    seen.add(key);
    box.append(document.importNode(line, true));
  }
}

function follow() {
  const box = document.getElementById('log');
  const wanted = box && box.hasAttribute('data-follow') && !document.hidden;
  if (!wanted && source) {
    source.close();
    source = null;
  }
  const off = document.getElementById('log-off');
  if (off) off.hidden = !timer;
  if (!wanted || source || timer) return;
  known(box);
  box.scrollTop = box.scrollHeight;
  // From the last line on that is there, which comes again and is left out.
  const last = box.querySelector('.line:last-child time')?.dateTime || document.documentElement.dataset.now;
  source = new EventSource(box.dataset.stream + '&from=' + encodeURIComponent(last));
  source.addEventListener('open', () => { refusals = 0; });
  source.addEventListener('line', (e) => add(box, JSON.parse(e.data)));
  source.addEventListener('error', () => {
    if (!source || source.readyState !== EventSource.CLOSED) return; // the browser connects again
    source = null;
    refusals++;
    timer = setTimeout(() => {
      timer = 0;
      follow();
    }, wait(refusals));
    follow(); // shows that it was refused
  });
}

export function log() {
  follow();
  document.addEventListener('refreshed', (e) => {
    if (source) take(e.detail);
    follow();
  });
  document.addEventListener('visibilitychange', () => {
    follow();
    if (!document.hidden) refresh();
  });
}
