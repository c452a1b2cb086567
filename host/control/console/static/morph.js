// morph makes one tree of nodes like another with as few changes as it can: what a reader
// has focused, opened, typed or ticked stays.

const keyOf = (node) => (node.nodeType === 1 ? node.dataset?.key || node.id || '' : '');

export function morph(old, now) {
  if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName) {
    old.replaceWith(document.importNode(now, true));
    return;
  }
  if (old.nodeType !== 1) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  attributes(old, now);
  if (!old.hasAttribute('data-keep')) children(old, now);
}

function attributes(old, now) {
  for (const { name, value } of now.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    // The reader opens and closes details, and scripts disable buttons.
    const ours = (name === 'open' && old.nodeName === 'DETAILS') || name === 'disabled' || name === 'hidden';
    if (!ours && !now.hasAttribute(name)) old.removeAttribute(name);
  }
}

function children(old, now) {
  const keyed = new Map();
  for (const child of old.childNodes) {
    const key = keyOf(child);
    if (key) keyed.set(key, child);
  }
  let at = old.firstChild;
  for (const want of now.childNodes) {
    const key = keyOf(want);
    if (key && keyed.has(key)) {
      const have = keyed.get(key);
      keyed.delete(key);
      if (have === at) at = at.nextSibling;
      else old.insertBefore(have, at);
      morph(have, want);
    } else if (!key && at && !keyOf(at) && at.nodeName === want.nodeName) {
      const have = at;
      at = at.nextSibling;
      morph(have, want);
    } else {
      old.insertBefore(document.importNode(want, true), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
