// One comparison as compare.json has it: sentences, table, plots, timelines, commands.
'use strict';
{
  const {element} = skein;
  const kMostThin = 24;  // rounds that are drawn
  const kMostBars = 16;  // workers with a bar each
  const kShownSteps = 3;  // of the slowest strategy; others show more in the same time

  const formats = {
    s: (v) => skein.duration(1000 * v), ms: skein.duration, '%': skein.percent, B: skein.bytes,
    '': (v) => (Math.abs(v) >= 100 ? skein.count(v) : skein.number(v)),
  };
  skein.figureText = (figure, value) => formats[figure.unit](value);

  const spreadOf = (entry, key) => entry.figures[key] || {median: null, count: 0, of: 0};
  const medianOf = (entry, key) => spreadOf(entry, key).median;

  // "11.9 to 13 s", where there are several rounds: a unit that both have is there once.
  skein.rangeText = (figure, spread) => {
    if (spread.of < 2 || spread.count === 0) return '';
    const high = spread.high === null ? 'not reached' : skein.figureText(figure, spread.high);
    const low = skein.figureText(figure, spread.low);
    const unit = high.slice(high.lastIndexOf(' '));
    return low === high ? '' : (low.endsWith(unit) && unit.length < 4 ? low.slice(0, -unit.length) : low) + ' to ' + high;
  };

  // Where an axis of bars must end so that the lines of their ranges fit; nothing: where the longest bar ends.
  const kRound = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];
  skein.axisEnd = (spreads) => {
    const most = (of) => Math.max(0, ...spreads.map(of).filter(skein.known));
    const high = most((spread) => spread.high);
    if (high <= most((spread) => spread.median)) return undefined;
    const size = 10 ** Math.floor(Math.log10(high));
    return size * kRound.find((step) => step * size >= high);
  };

  const known = (comparison, key) => comparison.entries.some((entry) => entry.figures[key]);
  const title = (comparison) => comparison.title || 'Strategies compared';
  skein.comparisonTitle = title;

  const facts = (comparison) => {
    const parts = [comparison.kind === 'simulate' ? 'simulated' : 'trained', comparison.workers + ' workers',
      comparison.rounds === 1 ? 'one round' : comparison.rounds + ' rounds, medians with lowest to highest'];
    if (comparison.target_accuracy) parts.push('target ' + skein.percent(comparison.target_accuracy, 2));
    const step = comparison.entries.map((entry) => entry.summed_speed).find(Boolean);
    if (step) parts.push('summed speed S = ' + skein.count(step) + ' samples/s');
    parts.push(comparison.started, comparison.cores + ' cores', 'Skein ' + comparison.version);
    return parts.filter(Boolean).join(' · ');
  };

  const bestOf = (comparison, figure) => {
    const values = comparison.entries.map((entry) => medianOf(entry, figure.key)).filter(skein.known);
    if (values.length < 2) return null;
    return figure.more_is_better ? Math.max(...values) : Math.min(...values);
  };

  const cell = (comparison, figure, entry) => {
    const spread = spreadOf(entry, figure.key);
    const best = skein.known(spread.median) && spread.median === bestOf(comparison, figure);
    const text = skein.known(spread.median) ? skein.figureText(figure, spread.median)
      : figure.key === 'seconds_to_target' && spread.of > 0 ? 'not reached' : '–';
    const range = skein.rangeText(figure, spread);
    return element('td', {class: best ? 'best' : null, 'data-title': figure.title, 'data-entry': entry.name,
      'data-figure': figure.key, 'data-value': skein.known(spread.median) ? String(spread.median) : null},
      element('span', {}, text, range ? element('span', {class: 'range'}, ' ' + range) : null));
  };

  const table = (comparison) => {
    // What belongs to an update is not compared: that is one step, or a round of several.
    const columns = comparison.figures.filter((figure) => figure.comparable !== false && known(comparison, figure.key));
    const rows = comparison.entries.map((entry, index) => {
      const name = element('td', {style: 'white-space:normal;min-width:130px'}, element('span', {class: 'key', style: 'background:var(--series-' + (index % 9 + 1) + ')'}), entry.name);
      if (Object.keys(entry.figures).length > 0)
        return element('tr', {}, name, ...columns.map((figure) => cell(comparison, figure, entry)));
      return element('tr', {}, name, element('td', {class: 'failed', colspan: columns.length},
        entry.error ? 'failed: ' + entry.error : 'not run'));
    });
    return element('div', {class: 'scroll results', tabindex: '0', role: 'region', 'aria-label': 'results'},
      element('table', {},
        element('thead', {}, element('tr', {}, element('th', {scope: 'col'}, 'strategy'),
          ...columns.map((figure) => element('th', {scope: 'col'}, figure.title)))),
        element('tbody', {}, ...rows)));
  };

  // The value of a curve at `x`, between its points; none outside of it.
  const valueAt = (points, x) => {
    for (let i = 0; i < points.length; ++i) {
      if (points[i].x === x) return points[i].y;
      if (points[i].x > x) {
        if (i === 0) return null;
        const a = points[i - 1], b = points[i];
        return a.y + (b.y - a.y) * (x - a.x) / (b.x - a.x);
      }
    }
    return null;
  };

  const middle = (values) => {
    const sorted = [...values].sort((a, b) => a - b), half = Math.floor(sorted.length / 2);
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };

  // Of rounds that have no place in common, since each ended before another's first evaluation: point by point.
  const medianPoints = (curves) => curves[0].slice(0, Math.min(...curves.map((points) => points.length))).map((_, at) =>
    ({x: middle(curves.map((points) => points[at].x)), y: middle(curves.map((points) => points[at].y))}));

  // Where all rounds have a value: beyond that a median would be of fewer.
  const medianCurve = (curves) => {
    if (curves.length === 1) return curves[0];
    const places = [...new Set(curves.flatMap((points) => points.map((p) => p.x)))].sort((a, b) => a - b);
    const out = [];
    for (const x of places) {
      const values = curves.map((points) => valueAt(points, x)).filter(skein.known);
      if (values.length === curves.length) out.push({x, y: middle(values)});
    }
    return out.length ? out : medianPoints(curves);
  };

  skein.curveSeries = (comparison, from, x, y) => comparison.entries.map((entry, index) => {
    const curves = entry.runs.filter((run) => !run.error).map((run) =>
      run[from].filter((p) => skein.known(p[x]) && skein.known(p[y])).map((p) => ({x: p[x], y: p[y]})))
      .filter((points) => points.length > 0);
    return {name: entry.name, index, points: curves.length ? medianCurve(curves) : [], thin: curves.length > 1 ? curves.slice(0, kMostThin) : []};
  }).filter((series) => series.points.length > 0);

  // A line across, as long as the longest curve.
  const targetLine = (comparison, series) => {
    if (!comparison.target_accuracy || !series.length) return [];
    const end = Math.max(...series.flatMap((one) => [one.points, ...one.thin].map((points) => points[points.length - 1].x)));
    return [{name: 'target ' + skein.percent(comparison.target_accuracy, 2), faint: true, get color() { return skein.color('muted'); },
      points: [0, end].map((x) => ({x, y: comparison.target_accuracy}))}];
  };

  const about = (comparison) => (comparison.rounds > 1 ? 'Thick: the median of the rounds. Thin: each round.' : null);

  const curves = (into, comparison) => {
    const time = {title: comparison.kind === 'simulate' ? 'virtual seconds' : 'seconds of training', format: skein.number, min: 0};
    const samples = {title: 'samples', format: skein.number, min: 0};
    const draw = (spec, from, x, y) => {
      const series = skein.curveSeries(comparison, from, x, y);
      if (y === 'accuracy') series.push(...targetLine(comparison, series));
      if (series.length) skein.linePlot(into, {about: about(comparison), height: 300, ...spec, series});
    };
    draw({title: 'Accuracy over time', x: time, y: {format: skein.percent}}, 'curve', 'seconds', 'accuracy');
    draw({title: 'Accuracy over samples', x: samples, y: {format: skein.percent}}, 'curve', 'samples', 'accuracy');
    if (!comparison.entries.some((entry) => entry.runs.some((run) => run.curve.some((p) => skein.known(p.accuracy)))))
      draw({title: 'Loss over time', x: time, y: {logarithmic: true}}, 'curve', 'seconds', 'loss');
    draw({title: 'Consensus distance over time', about: 'Mean squared distance of the workers’ models from their mean.',
      x: time, y: {logarithmic: true, format: skein.number}}, 'consensus', 'seconds', 'value');
  };

  // A bar for each entry, in its own colour.
  const bars = (into, comparison, key, spec) => {
    const entries = comparison.entries.filter((entry) => skein.known(medianOf(entry, key)));
    if (!entries.length) return;
    const figure = comparison.figures.find((one) => one.key === key);
    skein.barPlot(into, {height: 60 + 30 * entries.length, horizontal: true, ...spec,
      labels: entries.map((entry) => entry.name),
      y: {format: (value) => skein.figureText(figure, value), max: skein.axisEnd(entries.map((entry) => spreadOf(entry, key))), ...spec.y},
      series: [{name: spec.title, values: entries.map((entry) => medianOf(entry, key)),
        indices: entries.map((entry) => comparison.entries.indexOf(entry)),
        ranges: entries.map((entry) => spreadOf(entry, key))}]});
  };

  // Of more workers than can have a bar each: the one in the middle, and a line from the least busy to the busiest.
  const utilisationOfMany = (into, comparison, entries) => {
    const busy = entries.map((entry) => entry.per_worker.map((worker) => worker.busy_fraction.median).filter(skein.known));
    const some = entries.filter((_, at) => busy[at].length > 0), values = busy.filter((each) => each.length > 0);
    if (!some.length) return;
    skein.barPlot(into, {title: 'Busy computing, the middle worker', height: 60 + 30 * some.length, horizontal: true,
      about: 'The rest of the time a worker waits. There are too many workers for a bar each: lines go from the least busy worker to the busiest.',
      labels: some.map((entry) => entry.name), y: {format: skein.percent, max: 1},
      series: [{name: 'median of the workers', values: values.map(middle), indices: some.map((entry) => comparison.entries.indexOf(entry)),
        ranges: values.map((each) => ({low: Math.min(...each), high: Math.max(...each)}))}]});
  };

  const utilisation = (into, comparison) => {
    const entries = comparison.entries.filter((entry) => entry.per_worker.length > 0);
    const workers = Math.max(0, ...entries.map((entry) => entry.per_worker.length));
    if (!workers) return;
    if (workers > kMostBars) {
      utilisationOfMany(into, comparison, entries);
      return;
    }
    const series = [...Array(workers).keys()].map((rank) => ({name: 'worker ' + rank, index: rank,
      values: entries.map((entry) => (entry.per_worker[rank] ? entry.per_worker[rank].busy_fraction.median : null))}));
    skein.barPlot(into, {title: 'Busy computing, each worker', about: 'The rest of the time a worker waits.', height: 300,
      labels: entries.map((entry) => entry.name), series, wide: true, y: {format: skein.percent, max: 1}});
  };

  const allBars = (into, comparison) => {
    if (comparison.target_accuracy)
      bars(into, comparison, 'seconds_to_target', {title: 'Time to ' + skein.percent(comparison.target_accuracy, 2), about: 'Entries without a bar did not reach it.'});
    if (known(comparison, 'of_summed_speed'))
      bars(into, comparison, 'of_summed_speed', {title: 'Throughput over the summed speed S', about: 'S: what the workers would compute together if nobody ever waited.', y: {max: 1}});
    else bars(into, comparison, 'samples_per_second', {title: 'Samples per second'});
    bars(into, comparison, 'waiting_ms_per_1000_samples', {title: 'Waiting per 1,000 samples',
      about: 'With nothing to compute: for the network, and for slower workers. Mean over the workers, while all together train on 1,000 samples.'});
    bars(into, comparison, 'bytes_sent', {title: 'Bytes sent, all workers together'});
    utilisation(into, comparison);
  };

  // Lanes of trace files, as the timeline has them.
  const kinds = {forward: 'forward', backward: 'backward', update: 'update', wait: 'waiting', 'all-reduce': 'communication',
    'reduce-scatter': 'communication', 'all-gather': 'communication', 'hidden update': 'hidden', loading: 'loading',
    evaluation: 'evaluation', checkpoint: 'checkpoint'};

  const timelines = (comparison) => {
    const entries = comparison.entries.filter((entry) => entry.timeline);
    if (!entries.length) return [];
    const end = Math.max(...entries.map(({timeline}) => Math.min(1, kShownSteps / timeline.steps) * timeline.length_ms));
    const box = element('div', {class: 'timelines'}), shown = Math.max(...entries.map(({timeline}) => timeline.workers.length));
    const which = shown < comparison.workers ? ' Shown are the first ' + shown + ' of ' + comparison.workers + ' workers.' : '';
    for (const entry of entries) {
      const {timeline} = entry;
      const plot = skein.timelinePlot(box, {title: entry.name, about: timeline.from_ms > 0 ? 'From ' + skein.duration(timeline.from_ms) + ' after the first step on.' : 'From the first step on.'});
      plot.update(timeline.workers.map((worker) => ({name: 'worker ' + worker.rank, spans: worker.spans
        .filter(([lane, begin]) => kinds[lane] && begin < end)
        .map(([lane, begin, finish]) => ({kind: kinds[lane], begin, end: Math.min(end, finish), name: lane}))})),
        {begin: 0, end});
    }
    return [element('h3', {}, 'What each worker did'),
      element('p', {class: 'facts'}, 'A few steps in the middle of the first round; every strategy has the same scale. Hatched: waiting, which is communication that computing does not hide.' + which), box];
  };

  const searches = (comparison) => {
    const entries = comparison.entries.filter((entry) => entry.search);
    if (!entries.length) return [];
    const first = entries[0].search;
    return [element('h3', {}, 'Search'),
      element('p', {class: 'facts'}, 'Every entry had ' + first.trials.length + ' trials of ' + skein.count(first.samples_each) +
        ' samples, judged by ' + (first.judged_by === 'time' ? 'the time to the target' : 'the accuracy at equal samples') + '.'),
      skein.table([
        {title: 'strategy', value: (entry) => entry.name},
        {title: 'chosen', value: (entry) => (entry.search.chosen
          ? Object.entries(entry.search.chosen).map(([key, value]) => key + ' ' + value).join(', ') : 'none: every trial failed')},
        {title: 'at the edge of what was tried', value: (entry) => entry.search.at_the_edge.join(', ') || 'no'},
        {title: 'cost', value: (entry) => skein.count(entry.search.samples) + ' samples, ' + skein.duration(1000 * entry.search.wall_seconds)},
      ], entries)];
  };

  const command = (text) => {
    const code = element('pre', {}, text);
    const button = element('button', {type: 'button', onclick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = 'copied';
      } catch (_) {
        getSelection().selectAllChildren(code);
        button.textContent = 'selected';
      }
      setTimeout(() => { button.textContent = 'copy'; }, 1500);
    }}, 'copy');
    return element('div', {class: 'command'}, code, button);
  };

  skein.comparisonCommands = (comparison) => [element('h3', {}, 'Commands'),
    element('p', {class: 'facts'}, 'All of it:'), command(comparison.typed),
    element('details', {}, element('summary', {}, 'Every run by itself'),
      ...comparison.entries.flatMap((entry) => entry.runs.flatMap((run) => [
        element('p', {class: 'facts'}, entry.name + (comparison.rounds > 1 ? ', round ' + run.round : '') +
          (run.reused ? ' (of an earlier comparison)' : '') + (run.error ? ': failed, ' + run.error : '')),
        command(run.command)])))];

  skein.sentences = (texts) => element('ul', {class: 'claims'}, ...texts.map((text) => element('li', {}, text)));

  skein.showComparison = (into, comparison, withTitle) => {
    const section = element('section', {class: 'comparison', id: comparison.id});
    into.append(section);
    if (withTitle) section.append(element('h2', {}, title(comparison)));
    section.append(element('p', {class: 'facts'}, facts(comparison)));
    if (!comparison.complete)
      section.append(element('p', {class: 'note-box'}, comparison.running
        ? 'Runs are being made: this page looks again every few seconds.' : 'Not all runs were made: this is what is known.'));
    if (comparison.recommendation) section.append(element('p', {class: 'recommendation'}, comparison.recommendation));
    section.append(skein.sentences(comparison.claims), table(comparison));
    const plots = element('div', {class: 'plots', style: 'margin-top:14px'});
    section.append(plots);
    curves(plots, comparison);
    allBars(plots, comparison);
    section.append(...timelines(comparison), ...searches(comparison), ...skein.comparisonCommands(comparison));
  };
}
