// The live page: asks the server for what is new, once a second while the run goes on, and shows it.
'use strict';
{
  const {element} = skein;
  const byId = (id) => document.getElementById(id);
  const token = new URLSearchParams(location.search).get('token') || '';
  const problems = [];
  window.addEventListener('error', (event) => problems.push(event.message));
  window.addEventListener('unhandledrejection', (event) => problems.push(String(event.reason)));

  const noContact = new Error('no contact');
  const ask = async (path) => {
    let answer;
    try {
      answer = await fetch(path + (path.includes('?') ? '&' : '?') + 'token=' + encodeURIComponent(token));
      if (answer.ok) return await answer.json();
    } catch (_) {
      throw noContact;
    }
    throw new Error(path + ': ' + answer.status);
  };

  // Rows that the server has given so far, with the names of their columns.
  const run = {state: null, steps: [], evaluations: [], stride: 0, evaluationStride: 0, generation: -1, usage: []};
  const named = (columns, rows) => rows.map((row) => Object.fromEntries(columns.map((name, at) => [name, row[at]])));

  const take = (state) => {
    if (state.generation !== run.generation) run.steps = [], run.evaluations = [];
    for (const name of ['steps', 'evaluations']) {
      run[name].length = state[name].from;
      run[name].push(...named(state[name].columns, state[name].rows));
    }
    run.generation = state.generation;
    run.stride = state.steps.stride;
    run.evaluationStride = state.evaluations.stride;
    run.state = state;
  };

  byId('buttons').append(skein.themeButton());

  // --- plots ---------------------------------------------------------------------------------------------------------
  const samplesAxis = {title: 'samples', format: skein.short, min: 0};
  const line = (id, title, y, about) => skein.linePlot(byId('plots'), {id, title, about, x: samplesAxis, y, series: [], height: 220});
  // When a start was, in ms of Unix time; 0: not known.
  const startedAt = (start) => Date.parse(((start && start.started) || '').replace(' UTC', 'Z').replace(' ', 'T')) || 0;
  const started = () => startedAt(run.state && run.state.starts[0]);
  const lanes = skein.lanes(byId('timeline'), ask, started);
  const plots = {
    loss: line('plot-loss', 'Loss', {}),
    accuracy: line('plot-accuracy', 'Accuracy', {format: skein.percent}, 'of evaluations'),
    speed: line('plot-speed', 'Throughput', {format: skein.number, min: 0}, 'samples per second, all workers'),
    exposed: line('plot-exposed', 'Iteration', {format: skein.duration, min: 0}, 'and how much of it rank 0 waits for communication'),
    rate: line('plot-rate', 'Learning rate', {min: 0}),
  };
  // Shown only where something is known.
  const late = (make) => {
    let plot = null;
    return (series) => {
      if (!plot && series.some((one) => one.points.length > 0)) plot = make();
      if (plot) plot.update(series);
    };
  };
  const consensus = late(() => line('plot-consensus', 'Consensus distance', {}, 'mean squared distance of the workers\' models from their mean'));
  const timeAxis = {title: 'since the run began', format: skein.duration, min: 0};
  const memory = late(() => skein.linePlot(byId('plots'), {id: 'plot-memory', title: 'Memory', about: 'of each worker\'s process',
    x: timeAxis, y: {format: skein.bytes, min: 0}, series: [], height: 220}));
  const gpu = late(() => skein.linePlot(byId('plots'), {id: 'plot-gpu', title: 'GPU memory', about: 'taken of each worker\'s GPU',
    x: timeAxis, y: {format: skein.bytes, min: 0}, series: [], height: 220}));
  const gpuBusy = late(() => skein.linePlot(byId('plots'), {id: 'plot-gpu-busy', title: 'GPU in use', about: 'part of the time in which each worker\'s GPU had something to do',
    x: timeAxis, y: {format: skein.percent, min: 0, max: 1}, series: [], height: 220}));
  let usage = null;

  // Where a step is on the axis of samples. Strategies at their own pace know what all have computed only when they meet: steps
  // with the same number lie evenly between it and the next.
  const places = () => {
    const rows = run.steps, out = [];
    for (let first = 0, next; first < rows.length; first = next) {
      for (next = first + 1; next < rows.length && rows[next].samples === rows[first].samples;) ++next;
      const width = next < rows.length ? rows[next].samples - rows[first].samples : 0;
      for (let at = first; at < next; ++at) out.push(rows[first].samples + width * (at - first) / (next - first));
    }
    return out;
  };

  const points = (name, x) => run.steps.map((row, at) => ({x: x[at], y: row[name]})).filter((point) => skein.known(point.y));

  // Over some hundredths of the time, since single steps say little.
  const speeds = (x) => {
    const rows = run.steps, out = [];
    if (rows.length < 2) return out;
    const window = Math.max(0.5, 0.03 * (rows[rows.length - 1].seconds - rows[0].seconds));
    for (let end = 1, first = 0; end < rows.length; ++end) {
      while (first + 1 < end && rows[end].seconds - rows[first + 1].seconds >= window) ++first;
      const seconds = rows[end].seconds - rows[first].seconds;
      if (seconds >= window || (end === rows.length - 1 && out.length === 0 && seconds > 0))
        out.push({x: x[end], y: (x[end] - x[first]) / seconds});
    }
    return out;
  };

  // A mean over the neighbourhood, beside what was measured.
  const smooth = (all) => {
    const out = [];
    const keep = Math.exp(-1 / Math.max(1, all.length / 60));
    let sum = 0, weight = 0;
    for (const p of all) {
      sum = keep * sum + (1 - keep) * p.y;
      weight = keep * weight + (1 - keep);
      out.push({x: p.x, y: sum / weight});
    }
    return out;
  };

  const draw = () => {
    const x = places(), loss = points('loss', x);
    plots.loss.update([
      {name: 'training', points: loss, index: loss.length > 100 ? 6 : 0, faint: loss.length > 100},
      {name: 'training, smoothed', points: loss.length > 100 ? smooth(loss) : [], index: 0},
      {name: 'evaluation', points: run.evaluations.map((row) => ({x: row.samples, y: row.loss})), index: 1},
    ].filter((one) => one.points.length > 0 || one.name === 'training'));
    plots.accuracy.update([{name: 'accuracy', points: run.evaluations.map((row) => ({x: row.samples, y: row.accuracy})), index: 0}]);
    plots.speed.update([{name: 'samples per second', points: speeds(x), index: 0}]);
    plots.exposed.update([
      {name: 'iteration', points: points('iteration_ms', x), index: 0},
      {name: 'waiting for communication', points: points('exposed_comm_ms', x), index: 1},
    ]);
    plots.rate.update([{name: 'learning rate', points: points('learning_rate', x), index: 0}]);
    consensus([{name: 'consensus distance', points: points('consensus_distance', x), index: 0}]);
  };

  const saysDevice = (row) => skein.known(row.device_busy) && row.device_known > 0;
  const sumOf = (rows, name) => rows.reduce((sum, row) => sum + (row[name] || 0), 0);

  const drawUsage = (answer) => {
    for (const rank of answer.ranks) rank.rows = named(answer.columns, rank.rows);
    run.usage = answer.ranks;
    if (answer.ranks.length === 0) return;
    const origin = started();
    const series = (value) => answer.ranks.map((rank, place) => ({name: 'rank ' + rank.rank, index: place,
      points: rank.rows.filter((row) => skein.known(value(row))).map((row) => ({x: row.end - origin, y: value(row)}))}));
    memory(series((row) => row.resident_bytes));
    gpu(series((row) => row.device_bytes));
    gpuBusy(series((row) => (saysDevice(row) ? Math.min(1, row.device_busy / row.device_known) : null)));
    const sometimes = ['loading', 'evaluation', 'checkpoint'].filter((name) => answer.ranks.some((rank) => rank.rows.some((row) => row[name] > 0)));
    const parts = ['forward', 'backward', 'update', 'waiting', ...sometimes];
    usage = usage || skein.barPlot(byId('timeline'), {id: 'plot-usage', title: 'Where the time goes', wide: true, stacked: true, horizontal: true,
      about: 'each worker\'s time, all of the run; communication and updates that are hidden behind computing are not in it', y: {format: skein.percent, max: 1}, height: 60 + 26 * answer.ranks.length});
    const sums = answer.ranks.map((rank) => parts.map((name) => sumOf(rank.rows, name)));
    const all = sums.map((row) => row.reduce((a, b) => a + b, 0) || 1);
    usage.setHeight(60 + 26 * answer.ranks.length);
    usage.update(parts.map((name, at) => ({name: skein.kinds[name].name, lane: name, values: sums.map((row, rank) => row[at] / all[rank])})),
      answer.ranks.map((rank) => 'rank ' + rank.rank));
  };

  // --- figures -------------------------------------------------------------------------------------------------------
  const badges = {running: ['running', 'good'], finished: ['finished', 'good'], stopped: ['stopped as asked', 'warn'],
    ended: ['ended before its end', 'warn'], waiting: ['has not begun', '']};

  const tiles = () => {
    const {state, steps, evaluations} = run;
    const last = steps[steps.length - 1], evaluated = evaluations[evaluations.length - 1];
    const summary = state.summary, budget = state.starts.length ? state.starts[state.starts.length - 1].budget : undefined;
    const recent = steps.slice(-20).map((row) => row.exposed_comm_ms).filter(skein.known);
    const recentMs = steps.slice(-20).map((row) => row.iteration_ms).filter(skein.known);
    const mean = (list) => (list.length ? list.reduce((a, b) => a + b, 0) / list.length : NaN);
    const speed = summary ? summary.samples_per_second : state.samples_per_second;
    const left = budget && last && speed > 0 && state.status === 'running' ? (budget - last.samples) / speed : NaN;
    const smoothed = last ? mean(steps.slice(-20).map((row) => row.loss).filter(skein.known)) : NaN;
    const exposed = summary ? summary.exposed_comm_ms : mean(recent);
    const done = summary ? summary.samples : last ? last.samples : undefined;
    skein.tiles(byId('tiles'), [
      {key: 'samples', raw: done, name: 'samples', value: skein.count(done), note: budget ? 'of ' + skein.count(budget) : ''},
      {key: 'step', raw: last && last.step, name: 'step', value: last ? skein.count(last.step) : '–', note: last ? skein.duration(1000 * last.seconds) + ' of training' : ''},
      {key: 'loss', raw: smoothed, name: 'training loss', value: skein.number(smoothed, 4), note: 'mean of the last steps'},
      {key: 'accuracy', raw: evaluated && evaluated.accuracy, name: 'accuracy', value: evaluated ? skein.percent(evaluated.accuracy, 2) : '–',
        note: evaluated ? 'loss ' + skein.number(evaluated.loss, 4) + ' at ' + skein.count(evaluated.samples) + ' samples' : 'not evaluated yet'},
      {key: 'speed', raw: speed, name: 'samples per second', value: skein.number(speed, 4), note: summary ? 'of the whole run' : skein.known(left) ? 'about ' + skein.aboutTime(1000 * left) + ' left' : ''},
      {key: 'exposed', raw: exposed, name: 'exposed communication', value: skein.duration(exposed),
        note: summary ? 'mean of all workers and steps' : 'of ' + skein.duration(mean(recentMs)) + ' a step'},
    ]);
    const part = budget && done ? Math.min(1, done / budget) : 0;
    byId('progress').firstElementChild.style.width = 100 * part + '%';
    byId('progress').setAttribute('aria-valuenow', String(Math.round(100 * part)));
  };

  const heading = () => {
    const {state} = run, config = (state.run && state.run.config) || {}, start = state.starts[state.starts.length - 1] || {};
    const [text, kind] = badges[state.status] || [state.status, ''];
    byId('status').textContent = text;
    byId('status').className = 'badge ' + kind;
    const title = config.model ? config.model + ' on ' + config.data : 'Skein';
    byId('title').textContent = title;
    document.title = title + ' – Skein';
    byId('about').textContent = start.strategy ? start.strategy + ', ' + start.workers + ' worker' + (start.workers === 1 ? '' : 's') +
      (start.device && start.device !== 'cpu' ? ', ' + start.device : '') : '';
    byId('config').textContent = JSON.stringify(config, null, 2);
    byId('footer').textContent = state.folder + (state.run && state.run.run_id ? ' · run ' + state.run.run_id : '') +
      (state.run && state.run.version ? ' · Skein ' + state.run.version : '');
    const notes = [];
    const here = state.ranks.length;
    if (start.workers > state.most_ranks && here >= state.most_ranks)
      notes.push('Timelines are those of the first ' + state.most_ranks + ' of ' + start.workers + ' workers.');
    else if (here > 0 && start.workers > here)
      notes.push('Here are timelines of ' + here + ' of ' + start.workers + ' workers: those of other hosts keep theirs there, in the same folder.');
    if (state.behind_bytes > 1e6) notes.push('Reading: ' + skein.bytes(state.behind_bytes) + ' to go.');
    byId('notes').replaceChildren(...notes.map((note) => element('p', {class: 'note-box'}, note)));
  };

  const workers = () => {
    const {state} = run, summary = state.summary;
    const rows = summary && summary.per_worker ? summary.per_worker : state.ranks;
    byId('workers-box').hidden = rows.length === 0;
    const live = Object.fromEntries(state.ranks.map((rank) => [rank.rank, rank]));
    const usageOf = Object.fromEntries(run.usage.map((rank) => [rank.rank, rank.rows]));
    const busy = (row) => {
      if (skein.known(row.busy_fraction)) return row.busy_fraction;
      const rows = usageOf[row.rank];
      if (!rows) return NaN;
      const computing = sumOf(rows, 'forward') + sumOf(rows, 'backward') + sumOf(rows, 'update');
      return computing / (computing + sumOf(rows, 'waiting'));
    };
    const known = (row) => live[row.rank] || {};
    // Of all ranks, for all of the run.
    const gpuBusy = Object.fromEntries(run.usage.map((rank) => {
      const rows = rank.rows.filter(saysDevice);
      return [rank.rank, rows.length ? Math.min(1, sumOf(rows, 'device_busy') / sumOf(rows, 'device_known')) : NaN];
    }));
    // A run that was started again has all its workers again.
    const since = startedAt(state.starts[state.starts.length - 1]);
    const again = state.events.map((event) => event.kind).lastIndexOf('restart');
    const lost = new Set(state.events.slice(again + 1).filter((event) => event.kind === 'lost' && !(event.unix_ms < since)).map((event) => event.rank));
    const columns = [
      {title: 'worker', value: (row) => 'rank ' + row.rank + (row.lost || lost.has(row.rank) ? ', lost' : '')},
      {title: 'busy', value: (row) => skein.percent(busy(row))},
      {title: 'memory', value: (row) => skein.bytes(known(row).resident_bytes)},
    ];
    if (state.ranks.some((rank) => skein.known(rank.device_bytes)))
      columns.push({title: 'GPU memory', value: (row) => skein.bytes(known(row).device_bytes)});
    if (Object.values(gpuBusy).some(skein.known))
      columns.push({title: 'GPU in use', value: (row) => skein.percent(gpuBusy[row.rank])});
    if (summary) {
      columns.push({title: 'samples', value: (row) => skein.count(row.samples)},
        {title: 'exposed communication', value: (row) => skein.duration(row.exposed_comm_ms)},
        {title: 'sent', value: (row) => skein.bytes(row.bytes_sent)});
    }
    if (new Set(state.ranks.map((rank) => rank.host)).size > 1) columns.push({title: 'host', value: (row) => known(row).host || '–'});
    // The box stays: it may have the focus, or be scrolled.
    const table = skein.table(columns, rows), box = byId('workers').firstElementChild;
    if (box) box.replaceChildren(...table.children);
    else byId('workers').append(table);
  };

  const events = () => {
    const {starts, events: seen} = run.state;
    const when = (ms) => (Math.abs(ms) < 8e15 ? new Date(ms).toISOString().replace('T', ' ').slice(0, 19) + ' UTC' : '');
    const list = starts.map((start, at) => ({
      ms: startedAt(start), warn: false,
      text: at === 0 && !start.resumed_from ? 'started with ' + start.workers + ' workers' :
        'resumed with ' + start.workers + ' workers at ' + skein.count(start.samples) + ' samples',
    })).concat(seen.map((event) => ({ms: event.unix_ms || 0, text: event.text, warn: event.kind === 'lost' || event.kind === 'failed'})));
    list.sort((a, b) => a.ms - b.ms);
    byId('events-box').hidden = list.length === 0;
    byId('events').replaceChildren(...list.map((event) => element('li', {},
      element('span', {class: 'muted'}, (event.ms ? when(event.ms) : '') + '  '), element('span', {class: event.warn ? 'warn' : null}, event.text))));
  };

  // --- the loop ------------------------------------------------------------------------------------------------------
  let failures = 0, turns = 0, draws = 0, lastKey = '';

  // For ?check: what a test wants to know of the page, on its root element.
  const checked = new URLSearchParams(location.search).has('check');
  const check = () => {
    const root = document.documentElement, data = root.dataset;
    data.turns = String(turns);
    data.draws = String(draws);
    data.problems = problems.join('; ');
    data.drawn = skein.plots.filter(skein.drawn).map((plot) => plot.element.id).join(' ');
    data.blank = skein.plots.filter((plot) => !skein.drawn(plot)).map((plot) => plot.element.id).join(' ');
    data.scrolls = String(root.scrollWidth > root.clientWidth);
    const ticks = lanes.plot.chart ? lanes.plot.chart.scales.x.ticks.map((tick) => tick.label) : [];
    data.repeatedTicks = ticks.filter((label, at) => ticks.indexOf(label) !== at).join('|');
    data.background = getComputedStyle(document.body).backgroundColor;
    const controls = [...document.querySelectorAll('a[href], button, summary, [tabindex]')].filter((one) => one.checkVisibility());
    const name = (one) => (one.getAttribute('aria-label') || one.textContent).trim();
    const focused = (one) => {
      one.focus();
      return document.activeElement === one && one.tabIndex === 0 && getComputedStyle(one).outlineStyle !== 'none';
    };
    data.controls = controls.map(name).join('|');
    data.outOfReach = controls.filter((one) => !focused(one)).map(name).join('|');
  };
  const turn = async () => {
    let pause = 1000;
    try {
      take(await ask('/api/state?generation=' + run.generation + '&stride=' + run.stride + '&steps=' + run.steps.length +
        '&evaluations=' + run.evaluations.length + '&evaluation_stride=' + run.evaluationStride));
      failures = 0;
      const {state} = run;
      const key = JSON.stringify([state.generation, run.steps.length, run.steps[run.steps.length - 1], run.evaluations.length, state.status,
        state.events.length, state.starts.length, state.ranks.map((rank) => rank.latest_ms)]);  // which go on where rank 0 is lost
      if (key !== lastKey) {
        heading();
        tiles();
        draw();
        if (draws++ % 3 === 0 || state.status !== 'running') drawUsage(await ask('/api/usage'));
        workers();
        events();
        if (lanes.follows()) await lanes.refresh();
        lastKey = key;
      }
      ++turns;
      if (state.behind_bytes > 1e6) pause = 50;
      else if (state.status !== 'running' && state.status !== 'waiting') pause = 5000;
    } catch (error) {
      if (error !== noContact) problems.push(String(error));
      pause = Math.min(10000, 1000 * ++failures);
      if (failures > 1) {
        byId('status').textContent = run.state ? 'no contact: the run has ended, or its page; skein watch shows its folder' : 'no contact';
        byId('status').className = 'badge warn';
      }
    }
    if (checked) check();
    setTimeout(turn, document.hidden ? Math.max(pause, 5000) : pause);
  };
  skein.live = {run, plots, lanes, problems};
  turn();
}
