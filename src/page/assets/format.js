// Figures as people read them. One global, `skein`, which the other files add to.
'use strict';
var skein = window.skein || {};

skein.known = (value) => typeof value === 'number' && Number.isFinite(value);

// 0.0123, 1.23, 123.4, 12,345, 1.23 M: about `digits` that count.
skein.number = (value, digits = 3) => {
  if (!skein.known(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-4) return value.toExponential(digits - 1);
  if (size >= 1e9) return skein.number(value / 1e9, digits) + ' G';
  if (size >= 1e6) return skein.number(value / 1e6, digits) + ' M';
  if (size >= 1000) return Math.round(value).toLocaleString('en-US');
  return String(Number(value.toPrecision(digits)));
};

// For axes: 500, 5 k, 1.2 M.
skein.short = (value) => (Math.abs(value) >= 1000 && Math.abs(value) < 1e6 ? skein.number(value / 1000) + ' k' : skein.number(value));

skein.count = (value) => (skein.known(value) ? Math.round(value).toLocaleString('en-US') : '–');

skein.percent = (value, digits = 1) => (skein.known(value) ? Number((100 * value).toFixed(digits)) + ' %' : '–');

const scaled = (value, step, names) => {
  if (!skein.known(value)) return '–';
  let at = 0;
  while (Math.abs(value) >= step && at + 1 < names.length) {
    value /= step;
    ++at;
  }
  return Number(value.toPrecision(3)).toString() + ' ' + names[at];
};

skein.bytes = (value) => scaled(value, 1000, ['B', 'kB', 'MB', 'GB', 'TB', 'PB']);
skein.rate = (bytesPerSecond) => scaled(8 * bytesPerSecond, 1000, ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s']);

// A time that is guessed: whole seconds, then as a duration.
skein.aboutTime = (ms) => {
  if (!skein.known(ms)) return '–';
  const s = Math.max(1, Math.round(ms / 1000));
  return s < 60 ? s + ' s' : skein.duration(1000 * s);
};

// Of milliseconds: "420 µs", "12.3 ms", "4.2 s", "3 min 12 s", "2 h 05 min".
skein.duration = (ms) => {
  if (!skein.known(ms)) return '–';
  const size = Math.abs(ms);
  if (size === 0) return '0';
  if (size < 1e-3) return Number((ms * 1e6).toPrecision(3)) + ' ns';
  if (size < 1) return Number((ms * 1e3).toPrecision(3)) + ' µs';
  if (size < 999.5) return Number(ms.toPrecision(3)) + ' ms';
  const s = ms / 1000;
  if (s < 59.95) return Number(s.toPrecision(3)) + ' s';
  const whole = Math.round(s);
  if (whole < 3600) return Math.floor(whole / 60) + ' min ' + (whole % 60) + ' s';
  const minutes = Math.round(s / 60);
  return Math.floor(minutes / 60) + ' h ' + String(minutes % 60).padStart(2, '0') + ' min';
};

// A moment of a window that is `span` ms long, with so many digits that ticks differ: "11.55 s", "2 min 05.5 s", "1 h 02 min 05 s".
skein.moment = (ms, span) => {
  if (!skein.known(ms) || !(span > 0) || Math.abs(ms) + span < 1000) return skein.duration(ms);
  const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(span / 20000))));
  const text = (Math.abs(ms) / 1000).toFixed(digits), all = Number(text);
  const padded = (value, decimals) => value.toFixed(decimals).padStart(decimals ? decimals + 3 : 2, '0');
  const minutes = Math.floor(all / 60), seconds = all - 60 * minutes;
  const words = all < 60 ? text + ' s' : minutes < 60 ? minutes + ' min ' + padded(seconds, digits) + ' s' :
    Math.floor(minutes / 60) + ' h ' + padded(minutes % 60, 0) + ' min ' + padded(seconds, digits) + ' s';
  return (ms < 0 ? '-' : '') + words;
};

// A label that is longer than `most` letters, as two lines that are cut between words; what does not fit is "…".
skein.inTwoLines = (text, most) => {
  if (text.length <= most) return text;
  const cut = text.lastIndexOf(' ', most), at = cut > 0 ? cut : most;
  const rest = text.slice(at).trim();
  return [text.slice(0, at), rest.length <= most ? rest : rest.slice(0, most - 1) + '…'];
};

// An element with attributes and children; a text is a child, never HTML.
skein.element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
};

// The JSON object that the page came with.
skein.embedded = () => JSON.parse(document.getElementById('skein-data').textContent);

// A table: `columns` are [{title, value(row) → text or element}].
skein.table = (columns, rows) =>
  skein.element('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'table'},
    skein.element('table', {},
      skein.element('thead', {}, skein.element('tr', {}, ...columns.map((c) => skein.element('th', {scope: 'col'}, c.title)))),
      skein.element('tbody', {}, ...rows.map((row) =>
        skein.element('tr', {}, ...columns.map((c) => skein.element('td', {}, c.value(row))))))));

// The small boxes with one figure each: `tiles` are [{name, value, note}]; scripts find a figure by `key`, and `raw`.
skein.tiles = (into, tiles) => {
  into.replaceChildren(...tiles.map((tile) =>
    skein.element('div', {class: 'tile'},
      skein.element('div', {class: 'name'}, tile.name),
      skein.element('div', {class: 'value', 'data-figure': tile.key, 'data-raw': tile.raw}, tile.value),
      tile.note ? skein.element('div', {class: 'note'}, tile.note) : null)));
};
