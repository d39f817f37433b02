// Light or dark, and what colours, dashes and shapes that means for the n-th series.
'use strict';
{
  const root = document.documentElement;
  const system = window.matchMedia('(prefers-color-scheme: dark)');
  const listeners = [];
  let chosen = null;
  try {
    chosen = localStorage.getItem('skein-theme');
  } catch (_) { /* a page that was opened as a file may not have a storage */ }
  const wanted = new URLSearchParams(location.search).get('theme');
  if (wanted === 'light' || wanted === 'dark') chosen = wanted;

  const apply = () => {
    root.dataset.theme = chosen || (system.matches ? 'dark' : 'light');
    for (const listener of listeners) listener();
  };
  system.addEventListener('change', apply);

  skein.onTheme = (listener) => listeners.push(listener);
  skein.dark = () => root.dataset.theme === 'dark';
  skein.color = (name) => getComputedStyle(root).getPropertyValue('--' + name).trim();

  // The button that changes it; it says what it will do.
  skein.themeButton = () => {
    const button = skein.element('button', {type: 'button', class: 'theme', onclick: () => {
      chosen = skein.dark() ? 'light' : 'dark';
      try {
        localStorage.setItem('skein-theme', chosen);
      } catch (_) { /* then it holds until the page is left */ }
      apply();
    }});
    const label = () => { button.textContent = skein.dark() ? 'Light' : 'Dark'; };
    skein.onTheme(label);
    label();
    return button;
  };

  const kSeries = 9;
  const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3], [], [7, 4], [2, 3], [10, 3, 2, 3], [5, 5]];
  const shapes = ['circle', 'triangle', 'rect', 'rectRot', 'star', 'cross', 'crossRot', 'triangle', 'circle'];

  // Of the series at `index`: a colour and, for those who cannot tell colours apart, a dash and a shape.
  skein.seriesStyle = (index) => {
    const at = index % kSeries;
    return {color: skein.color('series-' + (at + 1)), dash: dashes[at], shape: shapes[at]};
  };
  // How what a worker does is filled. Waiting is hatched: to be told apart without colours.
  skein.laneFill = (kind) => {
    const color = skein.color('lane-' + kind);
    if (kind !== 'waiting') return color;
    const tile = skein.element('canvas', {width: 8, height: 8}), draw = tile.getContext('2d');
    draw.strokeStyle = color;
    draw.lineWidth = 2.4;
    for (const at of [-8, 0, 8]) {
      draw.moveTo(at, 8);
      draw.lineTo(at + 8, 0);
    }
    draw.stroke();
    return draw.createPattern(tile, 'repeat');
  };
  apply();
}
