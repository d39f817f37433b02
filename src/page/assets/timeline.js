// What each worker did when: horizontal bars in lanes, a row for computing and one for communication.
//
// spec: {title, about, id, height, empty}; update(workers, {begin, end}) with workers
//   [{name, spans: [{kind, begin, end, name}]}], times in milliseconds. Kinds are those of skein.kinds.
'use strict';
{
  // In the order of the legend; `row` 0 is the computing thread's, row 1 runs beside it.
  skein.kinds = {
    forward: {name: 'forward', row: 0}, backward: {name: 'backward', row: 0}, update: {name: 'update', row: 0},
    waiting: {name: 'waiting', row: 0}, loading: {name: 'loading data', row: 0}, evaluation: {name: 'evaluation', row: 0},
    checkpoint: {name: 'checkpoint', row: 0}, communication: {name: 'communication', row: 1},
    hidden: {name: 'hidden update', row: 1}, other: {name: 'other', row: 0},
  };

  skein.timelinePlot = (into, spec) => {
    let workers = [], range = {};
    const kinds = () => Object.keys(skein.kinds).filter((kind) => workers.some((w) => w.spans.some((s) => s.kind === kind)));
    const hasRow = (row) => workers.some((w) => w.spans.some((s) => skein.kinds[s.kind].row === row));
    const rows = () => (hasRow(1) ? [0, 1] : [0]);
    const labels = () => workers.flatMap((worker) => rows().map((row) => worker.name + '|' + row));
    const datasets = () => kinds().map((kind) => ({
      label: skein.kinds[kind].name, hidden: plot.hidden.has(skein.kinds[kind].name), grouped: false, borderSkipped: false,
      backgroundColor: skein.laneFill(kind), borderColor: skein.color(kind === 'waiting' ? 'lane-waiting' : 'surface'), borderWidth: 0.5,
      barPercentage: 1, categoryPercentage: 0.84, minBarLength: 1,
      data: workers.flatMap((worker) => worker.spans.filter((span) => span.kind === kind).map((span) => ({
        x: [span.begin, span.end], y: worker.name + '|' + skein.kinds[kind].row, title: span.name,
      }))),
    }));
    const plot = skein.figure(into, {wide: true, ...spec}, () => {
      const options = skein.chartOptions(spec);
      const names = {...options.axis({ticks: 100}), type: 'category', offset: true};
      names.grid = {display: false};
      names.ticks.autoSkip = true;
      names.ticks.callback = function(value) {
        const [name, row] = this.getLabelForValue(value).split('|');
        return row === '0' ? name : '';
      };
      options.indexAxis = 'y';
      const moment = (ms) => skein.moment(ms, range.end - range.begin);
      options.scales = {x: options.axis({title: spec.xTitle, format: moment, ...range}), y: names};
      options.scales.x.min = range.begin;
      options.scales.x.max = range.end;
      options.interaction = {mode: 'nearest', intersect: true, axis: 'xy'};
      delete options.plugins.tooltip.itemSort;
      options.plugins.tooltip.callbacks = {
        title: (items) => items.map((item) => item.label.split('|')[0]).join(''),
        label: (item) => ' ' + (item.raw.title || item.dataset.label) + ': ' + skein.duration(item.raw.x[1] - item.raw.x[0]) +
          ', from ' + moment(item.raw.x[0]),
      };
      return new Chart(plot.canvas, {type: 'bar', data: {labels: labels(), datasets: datasets()}, options});
    });
    plot.update = (next = workers, nextRange = range) => {
      workers = next;
      range = nextRange;
      plot.setEmpty(!workers.some((worker) => worker.spans.length > 0));
      if (!plot.chart) plot.redraw();
      plot.setHeight(60 + workers.length * (rows().length > 1 ? 38 : 24));
      plot.chart.data = {labels: labels(), datasets: datasets()};
      plot.chart.options.scales.x.min = range.begin;
      plot.chart.options.scales.x.max = range.end;
      plot.chart.update('none');
      legend();
    };
    const legend = () => skein.drawLegend(plot, kinds().map((kind) => ({
      name: skein.kinds[kind].name, style: {color: skein.color('lane-' + kind), fill: skein.laneFill(kind)},
    })), true, () => plot.update());
    skein.onTheme(legend);
    plot.update();
    return plot;
  };
}
