// Two comparisons side by side.
'use strict';
{
  const {element} = skein;

  const spreadCell = (figure, spread) => {
    const range = skein.rangeText(figure, spread);
    return element('span', {}, skein.known(spread.median) ? skein.figureText(figure, spread.median)
      : figure.key === 'seconds_to_target' && spread.of > 0 ? 'not reached' : '–',
      range ? element('span', {class: 'range'}, ' ' + range) : null);
  };

  const verdict = (change) => {
    if (change.spread === 'within') return 'within the spread';
    if (change.spread === 'unknown') return 'spread unknown';
    return element('span', {class: change.better ? 'better' : 'worse'}, (change.better ? '▲ better' : '▼ worse') + ', beyond the spread');
  };

  const rows = (data) => data.changes.flatMap((entry) => {
    const figures = data.after.figures.filter((figure) => entry.figures[figure.key]);
    if (!entry.in_before || !entry.in_after)
      return [element('tr', {}, element('td', {}, entry.name),
        element('td', {class: 'failed', colspan: 5}, entry.in_before ? 'only before' : 'only after'))];
    return figures.map((figure, index) => {
      const change = entry.figures[figure.key];
      const cells = [['figure', figure.title], ['before', spreadCell(figure, change.before)], ['after', spreadCell(figure, change.after)],
        ['change', skein.known(change.ratio) ? (change.ratio >= 1 ? '+' : '') + skein.percent(change.ratio - 1) : '–'], ['', verdict(change)]];
      const value = (side) => (skein.known(change[side].median) ? String(change[side].median) : null);
      return element('tr', {'data-entry': entry.name, 'data-figure': figure.key, 'data-before': value('before'), 'data-after': value('after')},
        element('td', {}, index === 0 ? entry.name : ''), ...cells.map(([title, text]) => element('td', {'data-title': title}, text)));
    });
  });

  const table = (data) => element('div', {class: 'scroll results', tabindex: '0', role: 'region', 'aria-label': 'changes'},
    element('table', {}, element('thead', {}, element('tr', {}, ...['strategy', 'figure', 'before', 'after', 'change', '']
      .map((title) => element('th', {scope: 'col'}, title)))), element('tbody', {}, ...rows(data))));

  const bars = (into, data, key) => {
    const figure = data.after.figures.find((one) => one.key === key);
    const entries = data.changes.filter((entry) => entry.figures[key]);
    if (!entries.length) return;
    const values = (side) => entries.map((entry) => entry.figures[key][side].median);
    skein.barPlot(into, {title: figure.title, height: 60 + 44 * entries.length, horizontal: true, labels: entries.map((entry) => entry.name),
      y: {format: (value) => skein.figureText(figure, value),
        max: skein.axisEnd(entries.flatMap((entry) => [entry.figures[key].before, entry.figures[key].after]))},
      series: [{name: 'before', values: values('before'), ranges: entries.map((entry) => entry.figures[key].before), index: 6},
        {name: 'after', values: values('after'), ranges: entries.map((entry) => entry.figures[key].after), index: 0}]});
  };

  const curves = (into, data) => {
    for (const entry of data.changes.filter((one) => one.in_before && one.in_after)) {
      const of = (comparison, name, index) => skein.curveSeries(comparison, 'curve', 'seconds', 'accuracy')
        .filter((series) => series.name === entry.name).map((series) => ({...series, name, index}));
      const series = [...of(data.before, 'before', 6), ...of(data.after, 'after', 0)];
      if (series.length) skein.linePlot(into, {title: 'Accuracy over time: ' + entry.name, series,
        x: {title: 'seconds', format: skein.number, min: 0}, y: {format: skein.percent}});
    }
  };

  skein.showDifference = (into, data) => {
    into.append(element('p', {class: 'facts'}, 'Before: ' + data.before_file + ' · after: ' + data.after_file),
      skein.sentences(data.sentences), table(data));
    const plots = element('div', {class: 'plots', style: 'margin-top:14px'});
    into.append(plots);
    for (const key of ['seconds_to_target', 'accuracy', 'samples_per_second', 'waiting_ms_per_1000_samples', 'bytes_sent']) bars(plots, data, key);
    curves(plots, data);
    into.append(element('h2', {}, 'Before'), ...skein.comparisonCommands(data.before),
      element('h2', {}, 'After'), ...skein.comparisonCommands(data.after));
  };
}
