// Charts of how long fires took and how late they began, from the strip of bars above them.
let loading = null;

// The library is a script of old: it makes a global name.
function library() {
  loading ??= new Promise((done, failed) => {
    const script = document.createElement('script');
    script.src = new URL('uplot.js', import.meta.url);
    script.onload = () => done(window.uPlot);
    script.onerror = failed;
    document.head.append(script);
  });
  return loading;
}

const drawn = new Map(); // by element

function data(strip, name) {
  // What is not known, or goes on, has no point.
  const value = (r) => (r.dataset[name] ? Number(r.dataset[name]) / 1000 : null);
  const bars = [...strip.querySelectorAll('rect')].map((r) => [Number(r.dataset.t) / 1000, value(r)]);
  bars.sort((a, b) => a[0] - b[0]);
  return [bars.map((b) => b[0]), bars.map((b) => b[1])];
}

// resolved is a colour of the style sheet as a canvas takes it.
function resolved(name) {
  const probe = document.createElement('i');
  probe.className = 'probe ' + name;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

const seconds = (v) => {
  if (v === 0) return '0';
  if (v < 1) return +(v * 1000).toPrecision(3) + 'ms';
  if (v < 120) return +v.toPrecision(3) + 's';
  return v < 7200 ? +(v / 60).toPrecision(3) + 'm' : +(v / 3600).toPrecision(3) + 'h';
};

// times writes a scale in the page's zone; over more than a day with the date.
function times(list, zone) {
  const long = list.length > 1 && list[list.length - 1] - list[0] > 86400;
  const form = long
    ? { month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit' }
    : { hour: '2-digit', minute: '2-digit', second: '2-digit' };
  const text = new Intl.DateTimeFormat('en-GB', { timeZone: zone, hour12: false, ...form });
  return list.map((t) => text.format(new Date(t * 1000)));
}

function chart(Plot, box, strip, name, title, colour) {
  const figure = document.createElement('div');
  figure.className = 'chart';
  const heading = document.createElement('h3');
  heading.textContent = title;
  figure.append(heading);
  box.append(figure);
  const zone = document.documentElement.dataset.zone || 'UTC';
  const axis = { stroke: resolved('muted'), grid: { stroke: resolved('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui' };
  const width = () => Math.max(200, figure.clientWidth - 20);
  const plot = new Plot({
    width: width(),
    height: 130,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { y: { range: (u, least, most) => [0, most > 0 ? most * 1.1 : 1] } },
    axes: [{ ...axis, size: 24, space: 90, values: (u, list) => times(list, zone) }, { ...axis, size: 52, values: (u, list) => list.map(seconds) }],
    series: [{}, { stroke: colour, width: 1.5, spanGaps: true, points: { size: 4, fill: colour } }],
  }, data(strip, name), figure);
  new ResizeObserver(() => plot.setSize({ width: width(), height: 130 })).observe(figure);
  return { plot, name };
}

async function draw() {
  for (const box of document.querySelectorAll('[data-chart]')) {
    const strip = document.querySelector(box.dataset.chart);
    if (!strip || strip.querySelectorAll('rect').length < 2) continue;
    const have = drawn.get(box);
    if (have) {
      for (const c of have) c.plot.setData(data(strip, c.name));
      continue;
    }
    drawn.set(box, []);
    const Plot = await library();
    drawn.set(box, [
      chart(Plot, box, strip, 'd', strip.dataset.x, resolved('run')),
      chart(Plot, box, strip, 'l', strip.dataset.y, resolved('warn')),
    ]);
  }
}

function again() {
  for (const [box] of drawn) box.replaceChildren();
  drawn.clear();
  draw();
}

export function charts() {
  draw();
  document.addEventListener('refreshed', draw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
}
