// The live page's timeline: a window that follows the run, or that its buttons move.
'use strict';
{
  const {element} = skein;
  // By Lane of core/trace.h.
  const kinds = ['forward', 'backward', 'communication', 'communication', 'communication', 'update', 'waiting', 'device', 'communication',
    'hidden', 'loading', 'evaluation', 'checkpoint'];
  const names = ['forward', 'backward', 'all-reduce', 'reduce-scatter', 'all-gather', 'update', 'waiting', 'GPU computing', 'GPU sums and updates',
    'hidden update', 'loading data', 'evaluation', 'checkpoint'];
  skein.kinds.device = {name: 'GPU computing', row: 1};

  // `ask(path)` gives the server's answer to a question; `origin()` when the run began, in ms of Unix time.
  skein.lanes = (into, ask, origin) => {
    const plot = skein.timelinePlot(into, {
      title: 'What each worker does', id: 'plot-timeline', xTitle: 'since the run began',
      about: 'Upper row: what the worker itself does or waits for. Lower row: communication, and updates that are hidden behind computing, both beside it.',
      empty: 'reading …',
    });
    let end = 0, width = 0, last = null;  // 0: the newest; some ten steps

    const go = (change) => {
      if (!last) return;
      const span = last.end_us - last.begin_us;
      change(span);
      refresh();
    };
    const button = (text, label, act) => element('button', {type: 'button', 'aria-label': label, title: label, onclick: act}, text);
    const live = button('Latest', 'follow the run', () => { end = 0; refresh(); });
    const bar = element('div', {class: 'toolbar', role: 'group', 'aria-label': 'window of the timeline'},
      button('◀', 'earlier', () => go((span) => { end = last.end_us - span / 2; })),
      button('▶', 'later', () => go((span) => { end = last.end_us + span / 2 >= last.latest_us ? 0 : last.end_us + span / 2; })),
      button('−', 'longer window', () => go((span) => { width = span * 2; })),
      button('+', 'shorter window', () => go((span) => { width = span / 2; })), live);
    plot.legend.before(bar);
    bar.hidden = true;

    const show = (answer) => {
      last = answer;
      bar.hidden = false;
      const base = origin() || answer.oldest_us / 1000;
      const at = (us) => (answer.begin_us + us) / 1000 - base;
      live.setAttribute('aria-pressed', String(end === 0));
      plot.update(answer.ranks.map((rank) => {
        const steps = rank.steps;
        const stepAt = (us) => steps.find(([, end]) => end >= us);
        return {
          name: 'rank ' + rank.rank,
          spans: rank.spans.map(([lane, begin, duration]) => {
            const [step] = stepAt(begin + duration / 2) || [];
            return {kind: kinds[lane] || 'other', begin: at(begin), end: at(begin + duration),
              name: (names[lane] || 'other') + (step === undefined ? '' : ' (step ' + step + ')')};
          }),
        };
      }), {begin: at(0), end: at(answer.end_us - answer.begin_us)});
    };

    // Follows the run, unless somebody looks at something else.
    const refresh = async () => {
      const answer = await ask('/api/timeline?end=' + Math.round(end) + '&width=' + Math.round(width));
      if (answer && answer.ranks.length > 0) show(answer);
      else plot.say('no timeline: it is kept where the run has --page or --timeline');
    };
    return {plot, refresh, follows: () => end === 0, shown: () => last};
  };
}
