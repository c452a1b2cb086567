// Keys and the menu: / goes to the search, Escape closes what is open.
export function keys() {
  document.addEventListener('keydown', (e) => {
    const typing = e.target.closest('input, textarea, select, [contenteditable]');
    if (e.key === '/' && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
      const find = document.querySelector('.find input');
      if (find) {
        e.preventDefault();
        find.focus();
      }
    }
    if (e.key === 'Escape') close(null, true);
  });
  document.querySelector('.top nav [aria-current]')?.scrollIntoView({ inline: 'center', block: 'nearest' });
  document.addEventListener('click', (e) => close(e.target.closest('details.act, details.menu'), false));
}

// close closes open forms and menus but one.
function close(but, focus) {
  for (const d of document.querySelectorAll('details.act[open], details.menu[open]')) {
    if (d === but) continue;
    d.open = false;
    if (focus) d.querySelector('summary').focus();
  }
}
