/**
 * The panel under a failing cell, in JupyterLab 4 and Notebook 7: draws a diagnosis and accepts its fixes.
 *
 * Plain JavaScript that the browser loads as it stands. It speaks the contract of a federated module by hand (see the
 * end of the file), so that there is no build step. In the order of this file: words, small DOM tools, the diff, the
 * report, the notebook and its kernel, accepting and undoing, and the plugin.
 */
(() => {
  'use strict';

  const NAME = 'inplace-magic';
  const MIME = 'application/vnd.inplace-magic.v1+json';
  const CONTEXT_LINES = 2;
  const MOST_FURTHER = 5;

  // ---------------------------------------------------------------------------------------------------------- words

  // The same words as in the package's html and text, so that a person meets one report.

  const HERE = { saved: 'saved here', changed: 'changed here', needed: 'needed here' };
  const REFUSED = ['leaf', 'view_of_leaf', 'multi_output_view', 'no_grad_view', 'overlap', 'out_grad'];
  const HERE_IN_FAMILY = {
    second_backward: { saved: 'made here', changed: 'freed here', needed: 'needed again here' },
    inference: { changed: 'made in inference mode here' },
    ...Object.fromEntries(REFUSED.map(family => [family, { changed: 'refused here' }])),
  };

  const GRADIENTS = {
    same: 'gradients are those your code means',
    truncated: 'cuts the graph: earlier steps get no gradient from here',
    different: 'gradients differ from those of the code as written',
    unknown: 'gradients were not compared',
  };

  function hereOf(role, family) {
    return HERE_IN_FAMILY[family]?.[role] ?? HERE[role];
  }

  /** The roles of a conflict in the order in which they happened; a refused write has no backward of its own. */
  function rolesOf({ changed, saved, needed }, family) {
    const sameLine = (one, other) => one && other && labelOf(one) === labelOf(other);
    if (family === 'inference') return sameLine(saved, needed) ? ['changed', 'needed'] : ['changed', 'saved', 'needed'];
    const refused = REFUSED.includes(family) && sameLine(changed, needed);
    return refused ? ['saved', 'changed'] : ['saved', 'changed', 'needed'];
  }

  function tookOf({ family, seconds }) {
    const kept = family === 'silent' ? 'your session is as the cell left it' : 'your session is as it was';
    return seconds > 0 ? `${Math.max(seconds, 0.1).toFixed(seconds < 9.95 ? 1 : 0)} s, ${kept}` : kept;
  }

  /** What a note says that the word before it does not. */
  function beyond(here, note) {
    if (here.startsWith(note)) return '';
    return (note.startsWith(here) ? note.slice(here.length) : note).replace(/^[ ,:;]+/, '');
  }

  /** What is known of a fix: how it was tried, and what it does to the gradient. */
  function proofOf({ verified, gradients, proof }) {
    const effect = GRADIENTS[gradients] ?? GRADIENTS.unknown;
    const measured = proof.trim().replace(/\.+$/, '');
    if (verified) {
      const ran = gradients === 'same' ? `proved: ran, ${effect}` : `ran past the failure; ${effect}`;
      return measured ? withEffect(measured, effect) : ran;
    }
    // The words for a fix that was tried would be a lie here, whoever wrote the sentence.
    const untried = !measured || /prove|proof|verif/i.test(measured);
    return withEffect(untried ? 'only a suggestion: it has not been run' : measured, effect);
  }

  function withEffect(said, effect) {
    const told = said.toLowerCase().includes(effect.toLowerCase());
    return told || (effect === GRADIENTS.unknown && said.includes('compared')) ? said : `${said}; ${effect}`;
  }

  /** The sentence that stands where the fix would, unless a note says it already and says why. */
  function noFix({ conflicts, notes }) {
    if (notes.some(note => note.includes('proved'))) return '';
    return `${conflicts.length ? 'This is what' : 'No more'} is known; no fix was proved.`;
  }

  const SIGNS = { '-': 'removed', '+': 'added' };

  /** In[2], In[3] and In[5] */
  function listOf(counts) {
    const names = counts.map(n => `In[${n}]`);
    return names.length < 2 ? names.join('') : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
  }

  /** Characters that steer rather than show, written as their escapes: what is read must be what is applied. */
  function visible(text) {
    return text.replace(/(?![\t\n])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, mark => {
      const code = mark.codePointAt(0).toString(16);
      const [letter, digits] = code.length < 3 ? ['x', 2] : code.length < 5 ? ['u', 4] : ['U', 8];
      return `\\${letter}${code.padStart(digits, '0')}`;
    });
  }

  // ------------------------------------------------------------------------------------------------------ DOM tools

  let lastId = 0;
  const freshId = () => `${NAME}-${++lastId}`;

  /** An element. Strings among the children become text, never markup. */
  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      node.setAttribute(name, value);
    }
    node.append(...children.map(child => (typeof child === 'string' ? visible(child) : child)));
    return node;
  }

  /** Prose with its `backticks` as code. */
  function prose(tag, attributes, text) {
    const parts = text.split(/`([^`]+)`/);
    return el(tag, attributes, ...parts.map((part, at) => (at % 2 ? el('code', { dir: 'ltr' }, part) : part)));
  }

  /**
   * A button that keeps its keys to itself: in command mode the notebook would take Enter and the arrows. The attribute
   * has to be on the focused element, because the notebook's shortcuts are matched there first.
   */
  function button(label, action, attributes = {}) {
    const node = el('button', { type: 'button', 'data-lm-suppress-shortcuts': 'true', ...attributes }, label);
    node.addEventListener('click', action);
    return node;
  }

  const statusLine = () => el('div', { class: 'ipm-status', role: 'status', 'aria-live': 'polite' });

  // ----------------------------------------------------------------------------------------------------------- diff

  /** The longest common subsequence of two lists of lines, as rows {sign, text}. */
  function matchLines(before, after) {
    const common = Array.from({ length: before.length + 1 }, () => new Uint32Array(after.length + 1));
    for (let i = before.length - 1; i >= 0; i--) {
      for (let j = after.length - 1; j >= 0; j--) {
        common[i][j] =
          before[i] === after[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
      }
    }
    const rows = [];
    let [i, j] = [0, 0];
    while (i < before.length || j < after.length) {
      if (i < before.length && j < after.length && before[i] === after[j]) {
        rows.push({ sign: ' ', text: before[i] });
        i++;
        j++;
      } else if (i < before.length && (j === after.length || common[i + 1][j] >= common[i][j + 1])) {
        rows.push({ sign: '-', text: before[i++] });
      } else {
        rows.push({ sign: '+', text: after[j++] });
      }
    }
    return rows;
  }

  function diffLines(before, after) {
    const [old, now] = [before.split('\n'), after.split('\n')];
    const shorter = Math.min(old.length, now.length);
    let head = 0;
    while (head < shorter && old[head] === now[head]) head++;
    let tail = 0;
    while (tail < shorter - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++;
    const same = lines => lines.map(text => ({ sign: ' ', text }));
    return [
      ...same(old.slice(0, head)),
      ...matchLines(old.slice(head, old.length - tail), now.slice(head, now.length - tail)),
      ...same(old.slice(old.length - tail)),
    ];
  }

  /** The changed rows with a few lines around them, in runs. */
  function hunks(rows) {
    const near = rows.map((_, at) =>
      rows.slice(Math.max(0, at - CONTEXT_LINES), at + CONTEXT_LINES + 1).some(row => row.sign !== ' ')
    );
    const runs = [];
    rows.forEach((row, at) => {
      if (!near[at]) return;
      if (at === 0 || !near[at - 1]) runs.push([]);
      runs.at(-1).push(row);
    });
    return runs;
  }

  function drawRow({ sign, text }) {
    const gutter = el('span', { class: 'ipm-sign', 'aria-hidden': 'true' }, sign);
    const row = el('div', { class: 'ipm-row', 'data-sign': sign }, gutter);
    if (SIGNS[sign]) row.append(el('span', { class: 'ipm-spoken' }, `${SIGNS[sign]}: `));
    row.append(el('code', { dir: 'ltr' }, text || ' '));
    return row;
  }

  function drawDiff(label, before, after) {
    const runs = hunks(diffLines(before, after));
    const body = el('div', { class: 'ipm-diff', role: 'group', 'aria-label': `Changes in ${label}` });
    runs.forEach((run, at) => {
      if (at > 0) body.append(el('div', { class: 'ipm-gap' }, '\u22ee'));
      body.append(...run.map(drawRow));
    });
    return el('div', {}, el('div', { class: 'ipm-label' }, label), body);
  }

  // --------------------------------------------------------------------------------------------------------- report

  function labelOf(place) {
    return place.cell === null ? `${place.filename ?? '?'}:${place.line}` : `In[${place.cell}]:${place.line}`;
  }

  /** Where something happened; a button where that place can be gone to. */
  function drawWhere(place, goTo) {
    const label = labelOf(place);
    if (!goTo || place.cell === null) return el('span', { class: 'ipm-where' }, label);
    return button(label, () => goTo(place), { class: 'ipm-where', title: `Go to ${visible(label)}` });
  }

  function drawPlace(place, role, family, goTo) {
    const here = hereOf(role, family);
    const note = prose('span', { class: 'ipm-note' }, beyond(here, place.note.trim()));
    note.prepend(el('b', { class: 'ipm-here', 'data-role': role }, here), ' ');
    return el('li', {}, drawWhere(place, goTo), el('code', { class: 'ipm-code', dir: 'ltr' }, place.text.trim()), note);
  }

  function drawConflict(conflict, family, goTo) {
    const list = el('ul', { class: 'ipm-places' });
    for (const role of rolesOf(conflict, family)) {
      if (conflict[role]) list.append(drawPlace(conflict[role], role, family, goTo));
    }
    return [list, ...(conflict.sentence ? [prose('p', { class: 'ipm-sentence' }, conflict.sentence)] : [])];
  }

  /** The conflicts after the first, one place each. */
  function drawFurther(conflicts, goTo) {
    if (conflicts.length === 0) return [];
    const known = conflicts.map(({ changed, saved, needed }) => changed ?? saved ?? needed).filter(place => place);
    const places = [...new Map(known.map(place => [labelOf(place), place])).values()];
    const line = el('p', { class: 'ipm-further' }, `and ${conflicts.length} more of the same kind`);
    places.slice(0, MOST_FURTHER).forEach((place, at) => line.append(at ? ', ' : ': ', drawWhere(place, goTo)));
    if (places.length > MOST_FURTHER) line.append(', \u2026');
    return [line];
  }

  function drawFile(name, text) {
    return el(
      'details',
      {},
      el('summary', {}, `${name}: a file, to be changed by you; its new text`),
      el('pre', { class: 'ipm-file' }, text)
    );
  }

  function drawLive(changes) {
    if (changes.length === 0) return [];
    const lines = changes.map(change => el('li', {}, el('code', { dir: 'ltr' }, change)));
    return [el('p', {}, 'Done to the live objects too:'), el('ul', { class: 'ipm-live' }, ...lines)];
  }

  /** Which cells run again, where it is more than the failing one. */
  function drawRuns(run) {
    if (run.length < 2) return [];
    return [el('p', {}, `Then run again, in this order: ${run.map(n => `In[${n}]`).join(', ')}`)];
  }

  /** The claim at its beginning stands out. */
  function drawProof(fix) {
    const [claim, ...rest] = proofOf(fix).split(/(?=[:;])/);
    const sure = String(fix.verified && fix.gradients === 'same');
    return el('p', { class: 'ipm-proof', 'data-sure': sure }, rest.length ? el('b', {}, claim) : claim, ...rest);
  }

  function drawFix(payload, fix) {
    const cells = Object.entries(fix.cells).filter(([n]) => typeof payload.sources[n] === 'string');
    return el(
      'div',
      { class: 'ipm-fix' },
      prose('p', { class: 'ipm-title' }, fix.title),
      drawProof(fix),
      ...(fix.why ? [prose('p', {}, fix.why)] : []),
      ...cells.map(([n, text]) => drawDiff(`In[${n}]`, payload.sources[n], text)),
      ...Object.entries(fix.files).map(([name, text]) => drawFile(name, text)),
      ...drawLive(fix.live),
      ...drawRuns(fix.run)
    );
  }

  /** Tabs for several fixes, after the ARIA pattern: one tab stop, the arrows move and choose. */
  function drawTabs(fixes, bodies, choose) {
    const tabs = fixes.map((fix, at) => {
      const id = freshId();
      bodies[at].id = freshId();
      bodies[at].setAttribute('role', 'tabpanel');
      bodies[at].setAttribute('aria-labelledby', id);
      const marks = { id, role: 'tab', 'aria-controls': bodies[at].id, title: visible(fix.title) };
      return button(`Fix ${at + 1}`, () => select(at), marks);
    });
    function select(chosen) {
      tabs.forEach((tab, at) => {
        tab.setAttribute('aria-selected', String(at === chosen));
        tab.tabIndex = at === chosen ? 0 : -1;
        bodies[at].hidden = at !== chosen;
      });
      choose(chosen);
    }
    const list = el('div', { class: 'ipm-tabs', role: 'tablist', 'aria-label': 'Fixes' }, ...tabs);
    list.addEventListener('keydown', event => {
      const at = tabs.indexOf(event.target);
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = (to + tabs.length) % tabs.length;
      select(next);
      tabs[next].focus();
    });
    select(0);
    return list;
  }

  /** What stands under a fix: the buttons, or a word on how to do without. */
  function drawActions(fix, number, { here, trusted, accept }) {
    const magic = number === 1 ? '%autograd_fix' : `%autograd_fix ${number}`;
    if (!here) return [el('span', {}, 'Accept with ', el('code', {}, magic))];
    const nothing = Object.keys(fix.cells).length + fix.live.length === 0;
    if (nothing) return [el('span', {}, 'This fix is in a file: nothing here to accept.')];
    const plain = button('Accept', () => accept(false));
    if (!trusted) return [plain, el('span', {}, 'Trust this notebook to run the fix from here.')];
    return [button('Accept and run', () => accept(true), { class: 'ipm-main' }), plain];
  }

  function drawFixes(payload, hooks) {
    if (payload.fixes.length === 0) return noFix(payload) ? [el('p', {}, noFix(payload))] : [];
    const bodies = payload.fixes.map(fix => drawFix(payload, fix));
    const actions = el('div', { class: 'ipm-actions' });
    const choose = at => {
      const accept = run => hooks.accept(at, run);
      actions.replaceChildren(...drawActions(payload.fixes[at], at + 1, { ...hooks, accept }));
    };
    if (bodies.length > 1) return [drawTabs(payload.fixes, bodies, choose), ...bodies, actions];
    choose(0);
    return [...bodies, actions];
  }

  /** The whole panel. `hooks` says where it stands and what its buttons do. */
  function drawReport(payload, hooks) {
    const [first, ...others] = payload.conflicts;
    const notes = payload.notes.map(note => prose('li', {}, note));
    return [
      el(
        'div',
        { class: 'ipm-head' },
        el('span', { class: 'ipm-headline' }, payload.headline),
        el('span', { class: 'ipm-time' }, tookOf(payload))
      ),
      ...(first ? drawConflict(first, payload.family, hooks.goTo) : []),
      ...drawFurther(others, hooks.goTo),
      ...(notes.length ? [el('ul', { class: 'ipm-notes' }, ...notes)] : []),
      ...drawFixes(payload, hooks),
    ];
  }

  // --------------------------------------------------------------------------------------- the notebook, the kernel

  /** Said to the person instead of doing anything. */
  class Refusal extends Error {}

  const sourceOf = cell => cell.model.sharedModel.getSource();

  // IPython keeps a cell's text without the empty lines at its end; they are no difference, and they stay.
  const emptyEnd = text => text.match(/\n*$/)[0];
  const sameText = (one, other) => typeof other === 'string' && one.replace(/\n+$/, '') === other.replace(/\n+$/, '');

  function panelWith(tracker, test) {
    return tracker.find(panel => panel.content.widgets.some(test));
  }

  /**
   * The cell that holds an output, and its notebook panel; null in a console or a preview. An output view stands
   * outside the notebook and shares the cell's outputs. The kernel's cell id would not do: copies of a file share it.
   */
  function holderOf(tracker, widget) {
    for (let at = widget; at; at = at.parent) {
      const held = cell => cell === at || (cell.model.outputs !== undefined && cell.model.outputs === at.model);
      const panel = panelWith(tracker, held);
      if (panel) return { panel, cell: panel.content.widgets.find(held) };
    }
    return null;
  }

  /** The cell that ran as In[n], or undefined. */
  function cellOf(holder, payload, n) {
    // The failing cell is the one that holds the report, unless that cell ran later, to show the report once more.
    if (n === payload.cell && [n, null].includes(holder.cell.model.executionCount)) return holder.cell;
    const cells = holder.panel.content.widgets.filter(cell => cell.model.type === 'code');
    const known = cells.find(cell => cell.model.id === payload.cell_ids[n]);
    if (known) return known;
    const alike = cells.filter(cell => sameText(sourceOf(cell), payload.sources[n]));
    return alike.length === 1 ? alike[0] : undefined;
  }

  async function showLine(app, { panel }, cell, line) {
    const notebook = panel.content;
    app.shell.activateById(panel.id);
    notebook.deselectAll();
    notebook.activeCellIndex = notebook.widgets.indexOf(cell);
    await notebook.scrollToItem?.(notebook.activeCellIndex);
    await cell.ready;
    notebook.mode = 'edit';
    const at = Math.min(line, cell.editor.lineCount) - 1;
    const text = cell.editor.getLine(at);
    const indent = text.length - text.trimStart().length;
    cell.editor.setSelection({ start: { line: at, column: indent }, end: { line: at, column: text.length } });
    cell.editor.revealPosition({ line: at, column: indent });
    cell.editor.focus();
  }

  /** One step of the cell's own undo, also straight after typing. */
  function replaceSource(cell, text) {
    const shared = cell.model.sharedModel;
    shared.undoManager?.stopCapturing();
    shared.setSource(text);
    shared.undoManager?.stopCapturing();
  }

  /** Runs our magic out of sight. The answer is empty where the kernel did it, else the reason why not. */
  async function askKernel(panel, options) {
    const code = `get_ipython().run_line_magic("autograd_fix", "${options}")`;
    const request = { code, silent: true, store_history: false, stop_on_error: false, allow_stdin: false };
    try {
      const reply = await panel.sessionContext.session.kernel.requestExecute(request).done;
      const { status, ename, evalue } = reply.content;
      return status === 'ok' ? '' : `${evalue || ename || status}`.split('\n')[0].slice(0, 160).replace(/\.$/, '');
    } catch {
      return 'there is no kernel';
    }
  }

  /** Whether the cell ran without an error. One that is marked as allowed to raise counts as run for the notebook. */
  async function runCell(NotebookActions, panel, cell) {
    const ran = await askToRun(NotebookActions, panel, cell);
    return ran && !cell.model.outputs.toJSON().some(output => output.output_type === 'error');
  }

  /** JupyterLab 4.0 has no runCells. */
  function askToRun(NotebookActions, { content, sessionContext }, cell) {
    if (NotebookActions.runCells) return NotebookActions.runCells(content, [cell], sessionContext);
    content.deselectAll();
    content.activeCellIndex = content.widgets.indexOf(cell);
    return NotebookActions.run(content, sessionContext);
  }

  // ------------------------------------------------------------------------------------------------ accept and undo

  /** Everything that undo needs of one cell. */
  function remember(n, cell, rewritten) {
    const { outputs, executionCount } = cell.model;
    const before = sourceOf(cell);
    const after = rewritten === undefined ? before : rewritten.replace(/\n+$/, '') + emptyEnd(before);
    return { n, cell, before, after, outputs: outputs.toJSON(), executionCount };
  }

  function concerned(holder, payload, n) {
    const cell = cellOf(holder, payload, n);
    if (!cell) throw new Refusal(`In[${n}] is no longer in this notebook. Nothing was changed.`);
    if (!sameText(sourceOf(cell), payload.sources[n])) {
      throw new Refusal(`In[${n}] has been edited since this report. Nothing was changed.`);
    }
    if (cell.model.getMetadata('editable') === false) throw new Refusal(`In[${n}] is locked. Nothing was changed.`);
    return cell;
  }

  const ascending = counts => [...new Set(counts)].sort((a, b) => a - b);

  /** The cells that a fix changes or runs, all checked before anything is touched. */
  function planOf(holder, payload, fix, run) {
    const failing = payload.cell === null ? [] : [payload.cell];
    const running = !run ? [] : fix.run.length ? fix.run : failing;
    const counts = ascending([...Object.keys(fix.cells).map(Number), ...running, ...failing]);
    const cells = counts.map(n => remember(n, concerned(holder, payload, n), fix.cells[n]));
    return {
      cells,
      changed: cells.filter(({ before, after }) => before !== after),
      running: running.map(n => cells.find(known => known.n === n)),
      failing: cells.find(({ n }) => n === payload.cell)?.cell ?? holder.cell,
    };
  }

  /** Asks the kernel to fix or restore what is live; only on behalf of a report that is trusted. */
  async function askLive(panel, payload, number, verb) {
    if (!/^[\w-]+$/.test(payload.id)) return 'the report has no proper id';
    return askKernel(panel, `${number} --${verb} --diagnosis ${payload.id}`);
  }

  /** The first of the cells that raised, or null. */
  async function runInOrder(NotebookActions, panel, cells, say) {
    for (const { n, cell } of cells) {
      say(`Running In[${n}] \u2026`);
      if (!(await runCell(NotebookActions, panel, cell))) return n;
    }
    return null;
  }

  /** The sentence that stays in the bar. `failed` is the cell that raised, if one did. */
  function outcome(plan, fix, failed, liveTrouble, unrun) {
    const words = [acceptedWords(plan)];
    if (failed !== null) words.push(`In[${failed}] raised an error again.`);
    else if (plan.running.length) words.push(ranWords(plan));
    if (liveTrouble) words.push(`Nothing live was changed: ${liveTrouble}.`);
    else words.push(...sparedWords(plan, fix));
    if (unrun.length) words.push(`Still to run: ${listOf(unrun)}.`);
    return words.join(' ');
  }

  /** Other cells are named by the numbers that the report gave them; the cell above needs no name. */
  function acceptedWords({ changed, failing }) {
    const elsewhere = changed.some(({ cell }) => cell !== failing);
    return elsewhere ? `Fix accepted in ${listOf(changed.map(({ n }) => n))}.` : 'Fix accepted.';
  }

  function ranWords({ running, failing }) {
    const elsewhere = running.some(({ cell }) => cell !== failing);
    return `${elsewhere ? listOf(running.map(({ n }) => n)) : 'The cell'} ran again, without an error.`;
  }

  /** The front end marks a cell as changed since it ran; here that needs no run. */
  function sparedWords({ changed, failing }, fix) {
    const spared = changed.filter(({ n, cell }) => cell !== failing && !fix.run.includes(n)).map(({ n }) => n);
    return spared.length ? [`${listOf(spared)} did not have to run: the kernel has the fix too.`] : [];
  }

  async function accept({ Widget, NotebookActions }, holder, payload, index, run) {
    const fix = payload.fixes[index];
    const { panel } = holder;
    const trusted = holder.cell.model.trusted;
    if (run && !trusted) throw new Refusal('Trust this notebook to run the fix from here. Nothing was changed.');
    const plan = planOf(holder, payload, fix, run);

    for (const { cell, after } of plan.changed) replaceSource(cell, after);
    plan.failing.model.outputs.clear();
    const bar = addBar(Widget, plan.failing);
    bar.say('Accepting \u2026');

    const liveTrouble = trusted ? await askLive(panel, payload, index + 1, 'live') : 'this notebook is not trusted';
    const failed = await runInOrder(NotebookActions, panel, plan.running, bar.say);
    const ran = plan.running.map(({ n }) => n);
    const wanted = liveTrouble ? ascending([...plan.changed.map(({ n }) => n), ...fix.run]) : fix.run;
    bar.say(outcome(plan, fix, failed, liveTrouble, wanted.filter(n => !ran.includes(n))));
    bar.offer('Undo', () => undo(bar, panel, payload, index, plan, !liveTrouble));
  }

  async function undo(bar, panel, payload, index, plan, live) {
    const touched = ({ cell, before, after }) => cell.isDisposed || ![before, after].includes(sourceOf(cell));
    const lost = plan.cells.filter(touched).map(({ n }) => n);
    if (lost.length) {
      bar.say(`${listOf(lost)} edited, moved or removed since. Nothing was changed.`);
      return;
    }
    bar.offer(null);
    for (const { cell, before, outputs, executionCount } of plan.cells) {
      if (sourceOf(cell) !== before) replaceSource(cell, before);
      cell.model.outputs.fromJSON(outputs);
      cell.model.executionCount = executionCount;
    }
    const words = ['Undone: the old text is back.'];
    const liveTrouble = live ? await askLive(panel, payload, index + 1, 'undo') : '';
    if (liveTrouble) words.push(`What was changed live stays: ${liveTrouble}.`);
    if (plan.running.length) words.push('What the run computed stays.');
    bar.say(words.join(' '));
    bar.untilNextRun();
  }

  /** The one line that is left of the panel: what was done, and Undo. It is no output, so it is never saved. */
  function addBar(Widget, cell) {
    for (const old of [...cell.layout.widgets].filter(widget => widget.hasClass('ipm-bar'))) old.dispose();
    const status = statusLine();
    const actions = el('div', { class: 'ipm-actions' });
    const node = el('div', { role: 'group', 'aria-label': 'Accepted fix', tabindex: '-1' }, status, actions);
    const widget = new Widget({ node });
    widget.addClass('ipm');
    widget.addClass('ipm-bar');
    const below = cell.layout.widgets.findIndex(child => child.hasClass('jp-Cell-outputWrapper'));
    cell.layout.insertWidget(below < 0 ? cell.layout.widgets.length : below, widget);
    const dismiss = button('Dismiss', () => widget.dispose());
    actions.append(dismiss);
    node.focus({ preventScroll: true });
    node.scrollIntoView({ block: 'nearest' });
    return {
      say: words => {
        status.textContent = words;
      },
      untilNextRun: () => cell.model.outputs.changed.connect(() => widget.dispose()),
      offer: (label, action) => actions.replaceChildren(...(label ? [button(label, action)] : []), dismiss),
    };
  }

  // --------------------------------------------------------------------------------------------------------- plugin

  const isOurs = payload => payload?.version === 1 && Array.isArray(payload.fixes) && Array.isArray(payload.conflicts);

  /** The class of the widget that the notebook makes for each output of our type. */
  function rendererClass(front) {
    return class extends front.Widget {
      constructor() {
        super();
        this.addClass('ipm');
        this.addClass('ipm-panel');
        this.node.setAttribute('role', 'group');
        this.node.setAttribute('aria-label', 'In-place report');
      }

      async renderModel(model) {
        this.payload = model.data[MIME];
        this.text = String(model.data['text/plain'] ?? '');
        this.draw();
      }

      /** Only now is it known in which notebook the panel stands. */
      onAfterAttach() {
        this.draw();
      }

      draw() {
        if (!this.payload) return;
        this.status = statusLine();
        try {
          if (!isOurs(this.payload)) throw new TypeError('a report of another version');
          this.node.replaceChildren(...drawReport(this.payload, this.hooks()), this.status);
        } catch (error) {
          console.warn(NAME, error);
          this.node.replaceChildren(el('pre', { class: 'ipm-file' }, this.text));
        }
      }

      hooks() {
        const holder = this.isAttached ? holderOf(front.tracker, this) : null;
        return {
          here: holder !== null,
          trusted: holder?.cell.model.trusted ?? false,
          goTo: holder && (place => this.attempt(found => goTo(front, found, this.payload, place))),
          accept: (index, run) => this.attempt(found => accept(front, found, this.payload, index, run)),
        };
      }

      /** Does something to the notebook that holds this panel; a refusal becomes a word in the status line. */
      async attempt(action) {
        this.status.textContent = '';
        try {
          const holder = holderOf(front.tracker, this);
          if (!holder) throw new Refusal('The cell of this report is no longer open.');
          await action(holder);
        } catch (error) {
          if (!(error instanceof Refusal)) console.error(NAME, error);
          this.status.textContent = error instanceof Refusal ? error.message : `This did not work: ${error.message}`;
        }
      }
    };
  }

  async function goTo({ app }, holder, payload, place) {
    const cell = cellOf(holder, payload, place.cell);
    if (!cell) throw new Refusal(`In[${place.cell}] is no longer in this notebook.`);
    await showLine(app, holder, cell, place.line);
  }

  function addStyle() {
    document.head.append(el('style', { id: `${NAME}-style` }));
    document.getElementById(`${NAME}-style`).textContent = STYLE;
  }

  function pluginOf({ rendermime, notebook, widgets }) {
    return {
      id: `${NAME}:panel`,
      description: 'Draws the report of an in-place autograd error and accepts its fixes.',
      autoStart: true,
      requires: [rendermime.IRenderMimeRegistry, notebook.INotebookTracker],
      activate: (app, registry, tracker) => {
        addStyle();
        const { Widget } = widgets;
        const { NotebookActions } = notebook;
        const Renderer = rendererClass({ app, tracker, Widget, NotebookActions });
        // Safe, so that it also draws in a notebook that is not trusted: it makes no markup and runs nothing.
        registry.addFactory({ safe: true, mimeTypes: [MIME], defaultRank: 0, createRenderer: () => new Renderer() }, 0);
      },
    };
  }

  const STYLE = `
.ipm {
  --ipm-added: var(--jp-success-color1, #2e7d32);
  --ipm-removed: var(--jp-error-color1, #c62828);
  color: var(--jp-content-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1, 13px);
  line-height: 1.5;
  overflow-wrap: anywhere;
  container-type: inline-size;
}
.ipm-panel {
  border: var(--jp-border-width, 1px) solid var(--jp-border-color1);
  border-left: 4px solid var(--jp-warn-color1, #e65100);
  border-radius: var(--jp-border-radius, 2px);
  background: var(--jp-layout-color1);
  padding: 8px 12px;
  margin: 4px 0;
}
.ipm p { margin: 6px 0; }
.ipm code,
.ipm-file,
.ipm-where,
.ipm-label {
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
}
.ipm code, .ipm-file { background: none; color: inherit; white-space: pre-wrap; padding: 0; }
.ipm code { unicode-bidi: isolate; }
.ipm-head { display: flex; flex-wrap: wrap; gap: 0 16px; justify-content: space-between; }
.ipm-headline { font-weight: 600; }
.ipm-time, .ipm-label { color: var(--jp-content-font-color2); }
.ipm-places {
  display: grid;
  grid-template-columns: fit-content(30%) fit-content(45%) minmax(9em, 1fr);
  gap: 2px 16px;
  list-style: none;
  margin: 6px 0;
  padding: 0;
  align-items: baseline;
}
.ipm-places li { display: contents; }
.ipm-where { justify-self: start; text-align: start; }
.ipm-code {
  display: -webkit-box;
  -webkit-box-orient: vertical;
  -webkit-line-clamp: 3;
  overflow: hidden;
}
.ipm-here {
  background: var(--jp-layout-color2);
  border-radius: 8px;
  padding: 1px 7px;
  white-space: nowrap;
}
.ipm-here[data-role='changed'] {
  background: color-mix(in srgb, var(--ipm-removed) 22%, transparent);
}
.ipm button.ipm-where {
  border: 0;
  background: none;
  padding: 0;
  color: var(--jp-content-link-color);
  font: inherit;
  font-family: var(--jp-code-font-family);
  text-decoration: underline;
}
.ipm-notes, .ipm-live { margin: 6px 0; padding-left: 20px; }
.ipm-notes { color: var(--jp-content-font-color2); }
.ipm-tabs {
  display: flex;
  flex-wrap: wrap;
  gap: 4px;
  margin-top: 8px;
  border-bottom: 1px solid var(--jp-border-color1);
}
.ipm .ipm-tabs button { border: 0; border-bottom: 3px solid transparent; background: none; }
.ipm .ipm-tabs button[aria-selected='true'] {
  border-bottom-color: var(--jp-brand-color1);
  font-weight: 600;
}
.ipm-title { font-weight: 600; }
.ipm-diff {
  border: 1px solid var(--jp-border-color2);
  border-radius: var(--jp-border-radius, 2px);
  margin: 2px 0 6px;
  padding: 2px 0;
}
.ipm-row {
  display: flex;
  gap: 8px;
  padding: 0 8px;
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
}
.ipm-row code { flex: 1; min-width: 0; }
.ipm-sign { flex: none; width: 1ch; white-space: pre; user-select: none; }
.ipm-row[data-sign='-'] {
  background: rgba(198, 40, 40, .14);
  background: color-mix(in srgb, var(--ipm-removed) 16%, transparent);
}
.ipm-row[data-sign='+'] {
  background: rgba(46, 125, 50, .14);
  background: color-mix(in srgb, var(--ipm-added) 18%, transparent);
}
.ipm-gap { padding: 0 8px; color: var(--jp-content-font-color2); }
.ipm-spoken {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
  white-space: nowrap;
}
.ipm-proof b { color: var(--jp-content-font-color1); }
.ipm-proof[data-sure='true'] b::before { content: '\\2713\\00a0'; color: var(--ipm-added); }
.ipm-file {
  border: 1px solid var(--jp-border-color2);
  margin: 4px 0;
  padding: 4px 8px;
  max-height: 30em;
  overflow: auto;
}
.ipm-actions { display: flex; flex-wrap: wrap; align-items: center; gap: 8px; }
.ipm-panel > .ipm-actions { margin: 8px 0 4px; }
.ipm button {
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius, 2px);
  background: var(--jp-layout-color2);
  color: var(--jp-content-font-color1);
  font: inherit;
  padding: 3px 12px;
  cursor: pointer;
}
.ipm button:hover { background: var(--jp-layout-color3); }
.ipm button.ipm-main,
.ipm button.ipm-main:hover {
  border-color: var(--jp-brand-color1);
  background: var(--jp-brand-color1);
  color: var(--jp-ui-inverse-font-color1);
}
.ipm button.ipm-main:hover { filter: brightness(1.08); }
.ipm button:focus-visible,
.ipm summary:focus-visible {
  outline: 2px solid var(--jp-content-font-color1);
  outline-offset: 2px;
}
.ipm-panel > .ipm-status { font-weight: 600; }
.ipm-bar {
  display: flex; flex-wrap: wrap; align-items: center; gap: 4px 16px;
  margin: 4px 0 4px calc(var(--jp-cell-collapser-width, 8px) + var(--jp-cell-prompt-width, 64px));
  border-left: 4px solid var(--jp-success-color1, #2e7d32);
  padding: 2px 8px;
}
.ipm-bar:focus { outline: none; }
@container (max-width: 34em) {
  .ipm-places { grid-template-columns: fit-content(35%) minmax(0, 1fr); }
  .ipm-note { grid-column: 2; }
}
`;

  // ------------------------------------------------------------------------------------------- the federated module

  let shared;

  /** A package of the page itself: the version in use, or else the highest. */
  async function pageModule(name) {
    const versions = Object.entries(shared[name]).sort(([a], [b]) => b.localeCompare(a, undefined, { numeric: true }));
    const [, entry] = versions.find(([, candidate]) => candidate.loaded) ?? versions[0];
    return (await entry.get())();
  }

  async function extensionModule() {
    const [rendermime, notebook, widgets] = await Promise.all(
      ['@jupyterlab/rendermime', '@jupyterlab/notebook', '@lumino/widgets'].map(pageModule)
    );
    return { __esModule: true, default: pluginOf({ rendermime, notebook, widgets }) };
  }

  (window._JUPYTERLAB ??= {})[NAME] = {
    init: scope => {
      shared = scope;
    },
    get: async () => {
      const module = await extensionModule();
      return () => module;
    },
  };
})();
