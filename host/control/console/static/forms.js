// Forms: ticking all jobs of a page, and trying an edit while it is being typed.
import { show } from './live.js';

export function forms() {
  picks();
  document.addEventListener('refreshed', picks);
  document.addEventListener('change', (e) => {
    if (e.target.matches('[data-all]')) {
      for (const box of boxes()) box.checked = e.target.checked;
    }
    if (e.target.closest('#bulk')) picks();
  });
  document.addEventListener('submit', (e) => {
    document.getElementById('progress').hidden = false;
    // The button's name is sent with the form: it is disabled only afterwards.
    setTimeout(() => e.submitter?.setAttribute('disabled', ''));
  });
  addEventListener('pageshow', () => {
    document.getElementById('progress').hidden = true;
    for (const b of document.querySelectorAll('button[disabled]')) b.removeAttribute('disabled');
    picks();
  });
  preview();
}

const boxes = () => document.querySelectorAll('#bulk [name="job"]');

// picks counts what is ticked.
function picks() {
  const form = document.getElementById('bulk');
  const all = form?.querySelector('[data-all]');
  if (!all) return; // there is nothing to tick
  const n = [...boxes()].filter((b) => b.checked).length;
  all.hidden = false;
  all.checked = n > 0 && n === boxes().length;
  all.indeterminate = n > 0 && n < boxes().length;
  const text = form.querySelector('.picked');
  text.dataset.hint ??= text.textContent;
  text.textContent = n > 0 ? text.dataset.text.replace('{0}', n) : text.dataset.hint;
  document.getElementById('bulkbar').hidden = n === 0;
}

// preview tries an edit half a second after the last key.
function preview() {
  const form = document.querySelector('form[data-preview]');
  if (!form) return;
  let timer = 0;
  let newest = 0;
  const differs = () => [...form.elements].some((el) => el.name.startsWith('set.') && el.value !== form.elements['was.' + el.name.slice(4)].value);
  form.addEventListener('input', (e) => {
    if (e.target.name === 'reason' || document.querySelector('[data-stale]')) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (!differs()) {
        document.getElementById('preview')?.remove();
        return;
      }
      const mine = ++newest;
      const body = new URLSearchParams(new FormData(form));
      body.set('do', 'preview');
      try {
        const answer = await fetch(form.action, { method: 'POST', body, redirect: 'manual' });
        if (mine === newest && answer.type !== 'opaqueredirect') show(await answer.text());
      } catch { /* the buttons still work */ }
    }, 500);
  });
}
