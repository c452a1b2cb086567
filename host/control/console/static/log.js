// A log follows its run: new lines come by a stream of their own.
import { clock } from './time.js';
import { refresh, wait } from './live.js';

const levels = [[8, 'error'], [4, 'warn'], [0, 'info']];
let source = null;
let refusals = 0; // of the stream, one after the other
let timer = 0; // until it is tried again; 0: it was not refused
let seen = new Set(); // places of lines in the run
const most = 5000; // lines that are shown
const overlap = 5000; // ms before the last line from which on lines come again: hosts' clocks differ

function known(box) {
  seen = new Set([...box.querySelectorAll('.line')].map((l) => l.dataset.place));
}

function piece(kind, text) {
  const el = document.createElement('span');
  el.className = kind;
  el.textContent = text;
  return el;
}

// put puts a line where it stands in the run.
function put(box, row) {
  seen.add(row.dataset.place);
  let after = box.lastElementChild;
  while (after && after.dataset.place > row.dataset.place) after = after.previousElementSibling;
  if (after) after.after(row);
  else box.prepend(row);
  while (box.childElementCount > most) box.firstElementChild.remove();
}

function add(box, line) {
  if (seen.has(line.place)) return;
  const end = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  const level = (levels.find(([least]) => line.level >= least) || [0, 'debug'])[1];
  const row = document.createElement('div');
  row.className = 'line level-' + level;
  row.dataset.place = line.place;
  const missing = line.gap || line.lost;
  if (missing) row.append(piece('gap', box.dataset.gap.replace('{0}', missing)), ' ');
  const at = document.createElement('time');
  at.className = 'at';
  at.dateTime = line.time;
  at.textContent = clock(line.time);
  row.append(at, ' ', piece('level', level), ' ', piece('msg', line.message));
  for (let n = 0; n + 1 < (line.attrs || []).length; n += 2) row.append(' ', piece('attr', line.attrs[n] + '=' + line.attrs[n + 1]));
  put(box, row);
  if (end) box.scrollTop = box.scrollHeight;
}

// take adds lines that the stream has not brought before the run ended.
function take(page) {
  const box = document.getElementById('log');
  for (const line of page.querySelectorAll('#log .line')) {
    if (!seen.has(line.dataset.place)) put(box, document.importNode(line, true));
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
  // From before the last line on that is there; what comes again is left out.
  const last = box.querySelector('.line:last-child time')?.dateTime;
  const from = last ? new Date(Date.parse(last) - overlap).toISOString() : box.dataset.from;
  source = new EventSource(box.dataset.stream + '&from=' + encodeURIComponent(from));
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
