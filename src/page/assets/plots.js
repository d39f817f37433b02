// Plots over Chart.js: lines and bars with a legend that a keyboard can use, redrawn when the theme changes.
//
// Every plot has the element that it made, `chart`, and update(series). A series is
//   {name, points: [{x, y}], index, color, hidden, faint, thin: [points, …]} of lines; `index` says its style, else its
//     place does; a `faint` one is narrow and has no marks; `thin` are more lines of the same colour, behind it;
//   {name, values: [one per label], index, color, indices: [one per label], ranges: [{low, high}, …]} of bars; `indices`
//     give each bar a style of its own, `ranges` a whisker.
'use strict';
{
  const {element} = skein;
  skein.plots = [];

  // What all charts have in common, in the colours of now.
  skein.chartOptions = (spec) => {
    const text = skein.color('muted');
    const axis = (of = {}, extra = {}) => ({
      title: {display: Boolean(of.title), text: of.title || '', color: text, font: {size: 12}},
      ticks: {color: text, maxRotation: 0, autoSkipPadding: 14, maxTicksLimit: of.ticks || 8, font: {size: 11.5},
        callback: of.format ? (value) => of.format(value) : undefined},
      grid: {color: skein.color('grid'), drawBorder: false, borderColor: skein.color('line')},
      type: of.logarithmic ? 'logarithmic' : 'linear', min: of.min, max: of.max, ...extra,
    });
    return {
      animation: false, responsive: true, maintainAspectRatio: false, axis,
      plugins: {
        legend: {display: false},
        tooltip: {
          backgroundColor: skein.color('surface'), titleColor: skein.color('text'), bodyColor: skein.color('text'),
          borderColor: skein.color('line'), borderWidth: 1, usePointStyle: true, boxPadding: 4,
          itemSort: (a, b) => b.raw.y - a.raw.y,
        },
      },
    };
  };

  // A figure with caption, legend and canvas, into which `make` puts a chart of the theme's colours.
  skein.figure = (into, spec, make) => {
    const canvas = element('canvas', {role: 'img', 'aria-label': spec.title});
    const legend = element('ul', {class: 'legend', 'aria-label': 'series'});
    const empty = element('div', {class: 'empty'}, spec.empty || 'no data yet');
    const box = element('div', {class: 'canvas', style: spec.height ? 'height:' + spec.height + 'px' : null}, canvas, empty);
    const figure = element('figure', {class: 'plot' + (spec.wide ? ' wide' : ''), id: spec.id},
      element('figcaption', {}, spec.title), spec.about ? element('p', {class: 'about'}, spec.about) : null, legend, box);
    into.append(figure);
    const plot = {element: figure, canvas, box, legend, hidden: new Set(), chart: null};
    // To another height, at once.
    plot.setHeight = (height) => {
      const text = height + 'px';
      if (box.style.height === text) return;
      box.style.height = text;
      if (plot.chart) plot.chart.resize();
    };
    plot.say = (text) => { empty.textContent = text; };  // while it is empty
    plot.setEmpty = (isEmpty) => {
      empty.style.display = isEmpty ? '' : 'none';
      canvas.style.visibility = isEmpty ? 'hidden' : '';
    };
    plot.redraw = () => {
      if (plot.chart) plot.chart.destroy();
      plot.chart = make(plot);
    };
    skein.onTheme(() => {
      if (plot.chart) plot.redraw();
    });
    skein.plots.push(plot);
    return plot;
  };

  // Whether anything is drawn: of more than one colour.
  skein.drawn = (plot) => {
    const {width, height} = plot.canvas;
    if (!width || !height) return false;
    const pixels = new Uint32Array(plot.canvas.getContext('2d').getImageData(0, 0, width, height).data.buffer);
    return pixels.some((pixel) => pixel !== pixels[0]);
  };

  const sample = (style, bar) => {
    const canvas = element('canvas', {width: 44, height: 24, style: 'width:22px;height:12px', 'aria-hidden': 'true'});
    const draw = canvas.getContext('2d');
    draw.scale(2, 2);
    draw.strokeStyle = draw.fillStyle = style.color;
    if (bar) {
      draw.fillStyle = style.fill || style.color;
      draw.fillRect(4, 1, 14, 10);
      return canvas;
    }
    draw.lineWidth = 2;
    draw.setLineDash(style.dash);
    draw.beginPath();
    draw.moveTo(0, 6);
    draw.lineTo(22, 6);
    draw.stroke();
    draw.setLineDash([]);
    if (style.shape) Chart.helpers.drawPoint(draw, {pointStyle: style.shape, radius: 4, borderWidth: 1.5}, 11, 6);
    return canvas;
  };

  // Buttons that show and hide a series each; none where there is one series that needs no name.
  skein.drawLegend = (plot, entries, bar, changed) => {
    const key = JSON.stringify([entries.map((e) => [e.name, e.style.color]), [...plot.hidden]]);
    if (plot.legendKey === key) return;
    plot.legendKey = key;
    const focused = plot.legend.contains(document.activeElement) ? document.activeElement.textContent : null;
    plot.legend.replaceChildren(...(entries.length < 2 ? [] : entries.map((entry) => {
      const shown = !plot.hidden.has(entry.name);
      return element('li', {}, element('button', {type: 'button', 'aria-pressed': String(shown), onclick: () => {
        if (shown) plot.hidden.add(entry.name);
        else plot.hidden.delete(entry.name);
        changed();
      }}, sample(entry.style, bar), entry.name));
    })));
    for (const button of plot.legend.querySelectorAll('button')) if (button.textContent === focused) button.focus();
  };

  // spec: {title, about, id, wide, height, x: {title, format, min, max, logarithmic}, y: the same, series, stepped}.
  skein.linePlot = (into, spec) => {
    let series = spec.series || [];
    const thin = () => series.flatMap((one, place) => (one.thin || []).map((points) => ({
      label: one.name, data: points, hidden: plot.hidden.has(one.name), stepped: spec.stepped, tension: 0, order: 1,
      borderColor: (one.color || skein.seriesStyle(one.index ?? place).color) + '66', borderWidth: 0.9, pointRadius: 0, pointHitRadius: 0,
    })));
    const datasets = () => series.map((one, place) => {
      const style = skein.seriesStyle(one.index ?? place);
      const logarithmic = spec.y && spec.y.logarithmic;  // has no place for 0
      const points = one.points.filter((p) => skein.known(p.x) && skein.known(p.y) && (p.y > 0 || !logarithmic));
      const every = Math.max(1, Math.ceil(points.length / 8));
      const marked = (at) => points.length <= 30 || at === points.length - 1 || at % every === Math.floor(every / 2);
      return {
        label: one.name, data: points, hidden: plot.hidden.has(one.name), stepped: spec.stepped, tension: 0,
        borderColor: (one.color || style.color) + (one.faint ? '99' : ''), backgroundColor: one.color || style.color,
        borderWidth: one.faint ? 1 : one.thin && one.thin.length ? 2.6 : 1.8, borderDash: one.faint ? [] : style.dash,
        pointStyle: style.shape, pointHitRadius: 8,
        pointRadius: one.faint || (series.length < 2 && points.length > 30) ? 0 : (context) => (marked(context.dataIndex) ? 3 : 0),
      };
    }).concat(thin());
    const format = (spec.y && spec.y.format) || skein.number, formatX = (spec.x && spec.x.format) || skein.count;
    const plot = skein.figure(into, spec, () => {
      const options = skein.chartOptions(spec);
      options.parsing = false;
      options.interaction = {mode: 'nearest', axis: 'x', intersect: false};
      options.scales = {x: options.axis({format: formatX, ticks: 7, ...spec.x}, {bounds: spec.x && spec.x.min !== undefined ? 'data' : 'ticks'}), y: options.axis({format, ...spec.y})};
      options.plugins.tooltip.callbacks = {
        title: (items) => (items.length ? ((spec.x && spec.x.title) || 'x') + ' ' + formatX(items[0].parsed.x) : ''),
        label: (item) => ' ' + item.dataset.label + ': ' + format(item.parsed.y),
      };
      return new Chart(plot.canvas, {type: 'line', data: {datasets: datasets()}, options});
    });
    plot.update = (next = series) => {
      series = next;
      plot.setEmpty(!series.some((one) => one.points.length > 0));
      if (!plot.chart) plot.redraw();
      plot.chart.data.datasets = datasets();
      plot.chart.update('none');
      legend();
    };
    const legend = () => skein.drawLegend(plot, series.map((one, place) => ({
      name: one.name, style: {...skein.seriesStyle(one.index ?? place), ...(one.color ? {color: one.color} : {}),
      ...(one.faint ? {dash: [], shape: false} : {})},
    })), false, () => plot.update());
    for (const one of series) if (one.hidden) plot.hidden.add(one.name);
    skein.onTheme(legend);
    plot.update(series);
    return plot;
  };

  // Lines from low to high over the bars of series that have ranges.
  const whiskers = {id: 'whiskers', afterDatasetsDraw: (chart) => {
    const across = chart.options.indexAxis === 'y', scale = chart.scales[across ? 'x' : 'y'], draw = chart.ctx;
    draw.save();
    draw.strokeStyle = skein.color('text');
    draw.lineWidth = 1.4;
    draw.beginPath();
    chart.data.datasets.forEach((dataset, index) => {
      if (!dataset.ranges || !chart.isDatasetVisible(index)) return;
      chart.getDatasetMeta(index).data.forEach((bar, at) => {
        const range = dataset.ranges[at];
        if (!range || !skein.known(range.low) || !skein.known(range.high) || range.low === range.high) return;
        const low = scale.getPixelForValue(range.low), high = scale.getPixelForValue(range.high), middle = across ? bar.y : bar.x;
        const line = (a, b, c, d) => (across ? (draw.moveTo(a, b), draw.lineTo(c, d)) : (draw.moveTo(b, a), draw.lineTo(d, c)));
        line(low, middle, high, middle);
        for (const end of [low, high]) line(end, middle - 4, end, middle + 4);
      });
    });
    draw.stroke();
    draw.restore();
  }};

  // spec: as of lines, with {labels, stacked, horizontal}; update(series, labels).
  skein.barPlot = (into, spec) => {
    let series = spec.series || [], labels = spec.labels || [];
    const fillOf = (one, place) => (one.lane ? skein.laneFill(one.lane) : colorOf(one, place));
    const colorOf = (one, place) =>
      (one.lane ? skein.color('lane-' + one.lane) : one.color || skein.seriesStyle(one.index ?? place).color);
    const datasets = () => series.map((one, place) => ({
      label: one.name, data: one.values, hidden: plot.hidden.has(one.name), ranges: one.ranges,
      backgroundColor: one.indices ? one.indices.map((index) => skein.seriesStyle(index).color) : fillOf(one, place),
      borderColor: skein.color('surface'), borderWidth: 1, maxBarThickness: 44, categoryPercentage: 0.8,
    }));
    const format = (spec.y && spec.y.format) || skein.number;
    const plot = skein.figure(into, spec, () => {
      const options = skein.chartOptions(spec);
      const values = options.axis({min: 0, format, ...spec.y}, {stacked: Boolean(spec.stacked)});
      const names = {...options.axis({...spec.x}), type: 'category', stacked: Boolean(spec.stacked)};
      delete names.min;
      names.ticks.callback = function(value) { return skein.inTwoLines(this.getLabelForValue(value), 26); };
      names.grid = {display: false};
      options.indexAxis = spec.horizontal ? 'y' : 'x';
      options.scales = spec.horizontal ? {x: values, y: names} : {x: names, y: values};
      options.interaction = {mode: 'index', axis: options.indexAxis, intersect: false};
      delete options.plugins.tooltip.itemSort;
      options.plugins.tooltip.callbacks = {label: (item) => ' ' + item.dataset.label + ': ' + format(item.raw)};
      return new Chart(plot.canvas, {type: 'bar', data: {labels, datasets: datasets()}, options, plugins: [whiskers]});
    });
    plot.update = (next = series, nextLabels = labels) => {
      series = next;
      labels = nextLabels;
      plot.setEmpty(labels.length === 0);
      if (!plot.chart) plot.redraw();
      plot.chart.data = {labels, datasets: datasets()};
      plot.chart.update('none');
      legend();
    };
    const legend = () => skein.drawLegend(plot, series.map((one, place) => ({name: one.name, style: {color: colorOf(one, place), fill: fillOf(one, place)}})),
      true, () => plot.update());
    skein.onTheme(legend);
    plot.update(series, labels);
    return plot;
  };
}
