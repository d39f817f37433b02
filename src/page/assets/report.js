// The page of one comparison, of several below each other, or of what differs between two.
'use strict';
{
  const {element} = skein;
  const problems = [];
  window.addEventListener('error', (event) => problems.push(event.message));
  const data = skein.embedded();
  const top = document.getElementById('top'), main = document.getElementById('main');
  const list = data.comparisons || [];
  const title = data.title || (data.changes ? 'Two comparisons' : list.length === 1 ? skein.comparisonTitle(list[0]) : 'Comparisons');
  document.title = 'Skein: ' + title;
  top.append(element('h1', {}, title), element('span', {class: 'space'}), skein.themeButton());
  if (data.changes) skein.showDifference(main, data);
  if (list.length > 1) {
    list.forEach((comparison, index) => { comparison.id = 'comparison-' + (index + 1); });
    main.append(element('nav', {class: 'clusters', 'aria-label': 'comparisons'}, ...list.map((comparison) =>
      element('a', {href: '#' + comparison.id}, skein.comparisonTitle(comparison)))));
    main.append(element('ul', {class: 'claims'}, ...list.filter((comparison) => comparison.recommendation).map((comparison) =>
      element('li', {}, element('strong', {}, skein.comparisonTitle(comparison) + ': '), comparison.recommendation))));
  }
  for (const comparison of list) skein.showComparison(main, comparison, list.length > 1);
  // The file is written anew after every run; who is reading further down stays there.
  if (list.some((comparison) => comparison.running)) setTimeout(() => location.reload(), 5000);

  // With ?check in its address the page says of itself, for tests, what it has drawn.
  if (new URLSearchParams(location.search).has('check')) setTimeout(() => {
    const root = document.documentElement, said = root.dataset;
    said.drawn = String(skein.plots.filter(skein.drawn).length);
    said.blank = skein.plots.filter((plot) => !skein.drawn(plot)).map((plot) => plot.canvas.getAttribute('aria-label')).join('; ');
    said.scrolls = String(root.scrollWidth > root.clientWidth);
    said.problems = problems.join('; ');
  }, 500);
}
