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

  // ---------------------------------------------------------------------------------------------------------- words

  // The panel's own sentences, as they stand in the package's catalogue; a report brings its own with it.
  // WORDS begin
  const WORDS = {
    en: {
      panel_name: "In-place report",
      panel_fixes: "Fixes",
      panel_changes_in: "Changes in {name}",
      panel_removed: "removed",
      panel_added: "added",
      panel_go_to: "Go to {place}",
      panel_accept: "Accept",
      panel_accept_and_run: "Accept and run",
      panel_undo: "Undo",
      panel_dismiss: "Dismiss",
      panel_accept_with: "Accept with",
      panel_accepted_fix: "Accepted fix",
      panel_from_file: "from the file, not checked here: run the cell",
      panel_restarted: "The kernel does not know this report any more: it was restarted, or is another one. Accept changes the text alone.",
      panel_earlier: "from an earlier session of the kernel",
      panel_restarted_since: "The kernel has been restarted since.",
      panel_file_stays: "{what} stays as it is now: only that kernel could bring its old text back.",
      panel_no_kernel: "There is no kernel. Accept changes the text alone.",
      panel_nothing_here: "This fix is in a file, which the kernel has to write: run the cell again for a report of its own.",
      panel_accepting: "Accepting …",
      panel_running: "Running {cells} …",
      panel_accepted: "Accepted: {what} {count:plural|has|have} the new text.",
      panel_ran: "{cells} ran again, without an error.",
      panel_raised: "{cells} raised an error again.",
      panel_spared: "{cells} did not have to run: the kernel has the fix, too.",
      panel_text_only: "Only the text was changed: {reason}.",
      panel_not_trusted: "this report is from the file and was not checked here",
      panel_kernel_forgot: "the kernel does not know this report",
      panel_still_to_run: "Still to run: {cells}.",
      panel_ran_by_hand: "{cells} has been run since, without an error.",
      panel_failed_by_hand: "{cells} has been run since, and raised an error.",
      panel_undone: "Undone: {what} {count:plural|is as it was|are as they were}.",
      panel_refused: "{reason}. Nothing was changed.",
      panel_not_undone: "Not undone: {reason}.",
      panel_live_stays: "What was changed in the kernel stays: {reason}.",
      panel_result_stays: "What the run computed stays.",
      panel_gone: "{cells} is no longer in this notebook. Nothing was changed.",
      panel_not_here: "{cells} is no longer in this notebook.",
      panel_edited: "{cells} has been edited since this report. Nothing was changed.",
      panel_locked: "{cells} is locked. Nothing was changed.",
      panel_touched: "{cells} {count:plural|was|were} edited, moved or removed since. Nothing was changed.",
      panel_closed: "The cell of this report is no longer open.",
      panel_failed: "This did not work: {reason}",
      panel_another_version: "This report is of another version of inplace_magic.",
    },
    zh: {
      panel_name: "in-place 报告",
      panel_fixes: "修复",
      panel_changes_in: "{name} 中的改动",
      panel_removed: "删除",
      panel_added: "新增",
      panel_go_to: "转到 {place}",
      panel_accept: "采用",
      panel_accept_and_run: "采用并运行",
      panel_undo: "撤销",
      panel_dismiss: "关闭",
      panel_accept_with: "采用方式：",
      panel_accepted_fix: "已采用的修复",
      panel_from_file: "来自文件，未在此处检查：请运行单元格",
      panel_restarted: "内核已不认识这份报告：它重启过，或是另一个内核。采用只会修改文本。",
      panel_earlier: "来自内核之前的会话",
      panel_restarted_since: "内核之后重启过。",
      panel_file_stays: "{what} 保持现状：只有那个内核能恢复原文本。",
      panel_no_kernel: "没有内核。采用只会修改文本。",
      panel_nothing_here: "这个修复在文件中，须由内核写入：请重新运行单元格以得到新的报告。",
      panel_accepting: "正在采用 …",
      panel_running: "正在运行 {cells} …",
      panel_accepted: "已采用：{what} 已换成新文本。",
      panel_ran: "{cells} 已重新运行，没有错误。",
      panel_raised: "{cells} 再次报错。",
      panel_spared: "{cells} 无需运行：内核中也已修复。",
      panel_text_only: "只修改了文本：{reason}。",
      panel_not_trusted: "这份报告来自文件，未在此处检查",
      panel_kernel_forgot: "内核不认识这份报告",
      panel_still_to_run: "仍需运行：{cells}。",
      panel_ran_by_hand: "{cells} 之后又运行过，没有错误。",
      panel_failed_by_hand: "{cells} 之后又运行过，并报错。",
      panel_undone: "已撤销：{what} 已恢复原样。",
      panel_refused: "{reason}。没有任何改变。",
      panel_not_undone: "没有撤销：{reason}。",
      panel_live_stays: "内核中的改动保留：{reason}。",
      panel_result_stays: "运行得到的结果保留。",
      panel_gone: "{cells} 已不在这个笔记本中。没有任何改变。",
      panel_not_here: "{cells} 已不在这个笔记本中。",
      panel_edited: "{cells} 在报告之后被编辑过。没有任何改变。",
      panel_locked: "{cells} 已锁定。没有任何改变。",
      panel_touched: "{cells} 之后被编辑、移动或删除过。没有任何改变。",
      panel_closed: "这份报告的单元格已不再打开。",
      panel_failed: "操作没有成功：{reason}",
      panel_another_version: "这份报告来自另一个版本的 inplace_magic。",
    },
  };
  // WORDS end

  /** A sentence in a report's language. `{n:plural|one|more}` chooses by a number. */
  function say(language, kind, given = {}) {
    const sentence = (WORDS[language] ?? WORDS.en)[kind];
    return sentence.replace(/\{(\w+)(?::plural\|([^|}]*)\|([^}]*))?\}/g, (_, name, one, more) =>
      one === undefined ? given[name] : given[name] === 1 ? one : more
    );
  }

  const SIGNS = { '-': 'panel_removed', '+': 'panel_added' };

  /** In[2], In[3] */
  const listOf = counts => counts.map(n => `In[${n}]`).join(', ');

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
    if (before.endsWith('\n') && after.endsWith('\n')) for (const lines of [old, now]) lines.pop(); // ends, no empty line
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

  function drawRow({ sign, text }, language) {
    const gutter = el('span', { class: 'ipm-sign', 'aria-hidden': 'true' }, sign);
    const row = el('div', { class: 'ipm-row', 'data-sign': sign }, gutter);
    if (SIGNS[sign]) row.append(el('span', { class: 'ipm-spoken' }, `${say(language, SIGNS[sign])}: `));
    row.append(el('code', { dir: 'ltr' }, text || ' '));
    return row;
  }

  function drawDiff(label, before, after, language) {
    const runs = hunks(diffLines(before, after));
    const body = el('div', { class: 'ipm-diff', role: 'group', 'aria-label': say(language, 'panel_changes_in', { name: visible(label) }) });
    runs.forEach((run, at) => {
      if (at > 0) body.append(el('div', { class: 'ipm-gap' }, '\u22ee'));
      body.append(...run.map(row => drawRow(row, language)));
    });
    return el('div', {}, el('div', { class: 'ipm-label' }, label), body);
  }

  // --------------------------------------------------------------------------------------------------------- report

  /** A line's code, its marked stretches as marks; where they overlap, the one that changed is on top. */
  function drawCode({ text, marks }) {
    const code = el('code', { class: 'ipm-code', dir: 'ltr' });
    const edges = [...new Set([0, text.length, ...marks.flatMap(({ start, end }) => [start, end])])];
    const at = edges.filter(edge => edge >= 0 && edge <= text.length).sort((one, other) => one - other);
    at.slice(1).forEach((end, i) => {
      const part = text.slice(at[i], end);
      const here = marks.filter(mark => mark.start <= at[i] && end <= mark.end);
      const role = here.some(mark => mark.role === 'changed') ? 'changed' : here[0]?.role;
      code.append(role ? el('mark', { 'data-role': role }, part) : visible(part));
    });
    return code;
  }

  /** A line of an excerpt: its number, which leads there, its code, and below it the labels of its marks. */
  function drawLine(line, block, { language, goTo }) {
    const label = `${block.name}:${line.number}`;
    const where =
      goTo && block.cell !== null
        ? button(String(line.number), () => goTo({ cell: block.cell, line: line.number }), {
            class: 'ipm-where',
            'aria-label': visible(label),
            title: say(language, 'panel_go_to', { place: visible(label) }),
          })
        : el('span', { class: 'ipm-where' }, String(line.number));
    const labels = line.marks.map(mark => {
      const drawn = prose('span', { class: 'ipm-note', 'data-role': mark.role }, mark.label);
      // Of several marks on one line each names its code; a caret would not do, since lines wrap.
      if (line.marks.length > 1) {
        drawn.prepend(el('code', { class: 'ipm-part', dir: 'ltr' }, line.text.slice(mark.start, mark.end)), ' ');
      }
      return drawn;
    });
    return [el('span', { class: 'ipm-number' }, where), el('div', { class: 'ipm-line' }, drawCode(line), ...labels)];
  }

  function drawBlock(block, hooks) {
    const lines = block.lines.flatMap(line => drawLine(line, block, hooks));
    return el(
      'div',
      { class: 'ipm-block', role: 'group', 'aria-label': visible(block.name) },
      el('div', { class: 'ipm-label' }, block.name),
      el('div', { class: 'ipm-excerpt' }, ...lines)
    );
  }

  /** Verified is what this kernel has verified; what a file says of itself is not. */
  function drawVerdict(fix, { language, trusted }) {
    const text = trusted ? fix.status : say(language, 'panel_from_file');
    return el('p', { class: 'ipm-proof', 'data-sure': String(trusted && fix.sure) }, text);
  }

  function drawFix(payload, at, hooks) {
    const [fix, shown] = [payload.fixes[at], payload.report.fixes[at]];
    const { language } = hooks;
    const cells = Object.entries(fix.cells).filter(([n]) => typeof payload.sources[n] === 'string');
    const files = Object.entries(fix.files).filter(([path]) => typeof payload.files[path] === 'string');
    return el(
      'div',
      { class: 'ipm-fix' },
      drawVerdict(shown, hooks),
      ...(shown.why ? [prose('p', {}, shown.why)] : []),
      ...cells.map(([n, text]) => drawDiff(`In[${n}]`, payload.sources[n], text, language)),
      ...files.map(([path, text]) => drawDiff(shown.files[path] ?? path, payload.files[path], text, language)),
      ...shown.clauses.map(clause => prose('p', { class: 'ipm-clause' }, clause))
    );
  }

  /** Tabs for several fixes, after the ARIA pattern: one tab stop, the arrows move and choose. */
  function drawTabs(fixes, bodies, choose, { language, trusted }) {
    const tabs = fixes.map((fix, at) => {
      const id = freshId();
      bodies[at].id = freshId();
      bodies[at].setAttribute('role', 'tabpanel');
      bodies[at].setAttribute('aria-labelledby', id);
      const title = fix.title.replaceAll('`', '');
      const marks = { id, role: 'tab', 'aria-controls': bodies[at].id, title: visible(`${fix.name} ${title}`) };
      const tab = button(`${fix.name} `, () => select(at), { ...marks, 'data-sure': String(trusted && fix.sure) });
      tab.append(el('span', { class: 'ipm-tab-title' }, title));
      return tab;
    });
    function select(chosen) {
      tabs.forEach((tab, at) => {
        tab.setAttribute('aria-selected', String(at === chosen));
        tab.tabIndex = at === chosen ? 0 : -1;
        bodies[at].hidden = at !== chosen;
      });
      choose(chosen);
    }
    const name = say(language, 'panel_fixes');
    const list = el('div', { class: 'ipm-tabs', role: 'tablist', 'aria-label': name }, ...tabs);
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
  function drawActions(fix, number, { here, trusted, live, accept, language }) {
    const magic = number === 1 ? '%autograd_fix' : `%autograd_fix ${number}`;
    const tell = kind => el('span', {}, say(language, kind));
    if (!here) return [tell('panel_accept_with'), el('code', {}, magic)];
    const known = trusted && live === 'known';
    if (!known && Object.keys(fix.cells).length === 0) return [tell('panel_nothing_here')];
    const plain = button(say(language, 'panel_accept'), () => accept(false));
    if (!trusted) return [plain];
    if (!known) return [plain, ...(live === 'asking' ? [] : [tell(live)])];
    return [button(say(language, 'panel_accept_and_run'), () => accept(true), { class: 'ipm-main' }), plain];
  }

  function drawFixes(payload, hooks) {
    const { fixes, noFix, pending } = payload.report;
    const wait = pending ? [el('p', { class: 'ipm-pending', role: 'status' }, pending)] : [];
    if (fixes.length === 0) return pending ? wait : noFix ? [el('p', {}, noFix)] : [];
    const bodies = fixes.map((_, at) => drawFix(payload, at, hooks));
    const actions = el('div', { class: 'ipm-actions' });
    const choose = at => {
      const accept = run => hooks.accept(at, run);
      actions.replaceChildren(...(pending ? [] : drawActions(payload.fixes[at], at + 1, { ...hooks, accept })));
    };
    if (bodies.length > 1) return [drawTabs(fixes, bodies, choose, hooks), ...bodies, actions, ...wait];
    choose(0);
    return [...bodies, actions, ...wait];
  }

  /** The whole panel. `hooks` says where it stands, what is known of its kernel, and what its buttons do. */
  function drawReport(payload, hooks) {
    const { report } = payload;
    const notes = report.notes.map(note => prose('li', {}, note));
    const earlier = ['panel_restarted', 'panel_no_kernel'].includes(hooks.live);
    const status = !hooks.trusted ? say(hooks.language, 'panel_from_file') : earlier ? say(hooks.language, 'panel_earlier') : report.status;
    return [
      el(
        'div',
        { class: 'ipm-head' },
        el('span', { class: 'ipm-headline' }, report.headline),
        el('span', { class: 'ipm-time' }, status)
      ),
      ...report.blocks.map(block => drawBlock(block, hooks)),
      ...report.sentences.map(sentence => prose('p', { class: 'ipm-sentence' }, sentence)),
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

  /** What waits in the kernel's queue behind a cell that fails is answered "aborted": that is asked again. */
  async function replyTo(panel, request) {
    for (let patience = 20; ; patience--) {
      const { content } = await panel.sessionContext.session.kernel.requestExecute(request).done;
      if (content.status !== 'aborted' || patience === 0) return content;
      await new Promise(resolve => setTimeout(resolve, 250));
    }
  }

  /** Runs our magic out of sight. The answer is empty where the kernel did it, else the reason why not. */
  async function askKernel(panel, options, language) {
    const code = `get_ipython().run_line_magic("autograd_fix", "${options}")`;
    const request = { code, silent: true, store_history: false, stop_on_error: false, allow_stdin: false };
    try {
      const { status, ename, evalue } = await replyTo(panel, request);
      return status === 'ok' ? '' : `${evalue || ename || status}`.split('\n')[0].slice(0, 160).replace(/[.\u3002]$/, '');
    } catch {
      return say(language, 'panel_no_kernel').replace(/[.\u3002].*$/, '');
    }
  }

  /** Whether the kernel knows a report: it does not after a restart, nor does another kernel. */
  async function liveState(panel, payload) {
    if (!/^[\w-]+$/.test(payload.id)) return 'panel_restarted';
    if (!panel.sessionContext.session?.kernel) return 'panel_no_kernel';
    return (await askKernel(panel, `--known --diagnosis ${payload.id}`, 'en')) ? 'panel_restarted' : 'known';
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
    const refuse = kind => new Refusal(say(payload.report.language, kind, { cells: `In[${n}]` }));
    const cell = cellOf(holder, payload, n);
    if (!cell) throw refuse('panel_gone');
    if (!sameText(sourceOf(cell), payload.sources[n])) throw refuse('panel_edited');
    if (cell.model.getMetadata('editable') === false) throw refuse('panel_locked');
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

  /** Asks the kernel to fix or restore what is live, files among it; only on behalf of a report that is trusted. */
  async function askLive(panel, payload, number, verb) {
    const { language } = payload.report;
    if (!/^[\w-]+$/.test(payload.id)) return say(language, 'panel_kernel_forgot');
    return askKernel(panel, `${number} --${verb} --diagnosis ${payload.id}`, language);
  }

  /** The first of the cells that raised, or null. */
  async function runInOrder(NotebookActions, panel, cells, tell) {
    for (const { n, cell } of cells) {
      tell(n);
      if (!(await runCell(NotebookActions, panel, cell))) return n;
    }
    return null;
  }

  /** What a fix changes, as a person calls it. */
  function namesOf(payload, index) {
    const [fix, shown] = [payload.fixes[index], payload.report.fixes[index]];
    return [...Object.keys(fix.cells).map(n => `In[${n}]`), ...Object.keys(fix.files).map(path => shown.files[path] ?? path)];
  }

  /** The sentences that stay in the bar. `failed` is the cell that raised, if one did. */
  function outcome(payload, index, plan, { failed, liveTrouble, unrun }) {
    const tell = (kind, given) => say(payload.report.language, kind, given);
    const names = namesOf(payload, index);
    const words = names.length ? [tell('panel_accepted', { what: names.join(', '), count: names.length })] : [];
    if (failed !== null) words.push(tell('panel_raised', { cells: `In[${failed}]` }));
    else if (plan.running.length) words.push(tell('panel_ran', { cells: listOf(plan.running.map(({ n }) => n)) }));
    const spared = plan.changed.map(({ n }) => n).filter(n => !payload.fixes[index].run.includes(n));
    if (liveTrouble) words.push(tell('panel_text_only', { reason: liveTrouble }));
    else if (spared.length) words.push(tell('panel_spared', { cells: listOf(spared) }));
    if (unrun.length) words.push(tell('panel_still_to_run', { cells: listOf(unrun) }));
    return words.join(' ');
  }

  async function accept(front, holder, payload, index, run) {
    const { NotebookActions } = front;
    const { language } = payload.report;
    const fix = payload.fixes[index];
    const { panel } = holder;
    const trusted = holder.cell.model.trusted;
    const plan = planOf(holder, payload, fix, run && trusted);
    const ask = () => (trusted ? askLive(panel, payload, index + 1, 'live') : say(language, 'panel_not_trusted'));
    const inFile = Object.keys(fix.files).length > 0;
    if (inFile && !trusted) throw new Refusal(say(language, 'panel_nothing_here'));
    // A file is the kernel's to write, which may refuse: before anything else is touched.
    const refused = inFile ? await ask() : '';
    if (refused) throw new Refusal(say(language, 'panel_refused', { reason: refused }));
    const edited = plan.cells.filter(({ cell, before }) => cell.isDisposed || sourceOf(cell) !== before);
    if (edited.length) {
      await askLive(panel, payload, index + 1, 'undo');
      throw new Refusal(say(language, 'panel_edited', { cells: listOf(edited.map(({ n }) => n)) }));
    }

    for (const { cell, after } of plan.changed) replaceSource(cell, after);
    plan.failing.model.outputs.clear();
    const bar = addBar(front, holder, payload, plan.failing);
    bar.say(say(language, 'panel_accepting'), 'neutral');

    const liveTrouble = inFile ? '' : await ask();
    const failed = await runInOrder(NotebookActions, panel, plan.running, n =>
      bar.say(say(language, 'panel_running', { cells: `In[${n}]` }), 'neutral')
    );
    const ran = plan.running.map(({ n }) => n);
    const wanted = liveTrouble ? ascending([...plan.changed.map(({ n }) => n), ...fix.run]) : fix.run;
    const unrun = wanted.filter(n => !ran.includes(n));
    const state = failed !== null ? 'error' : liveTrouble || unrun.length ? 'neutral' : 'ok';
    const said = outcome(payload, index, plan, { failed, liveTrouble, unrun });
    bar.say(said, state);
    const given = { live: !liveTrouble, gone: false };
    bar.offer(say(language, 'panel_undo'), () => undo(bar, panel, payload, index, plan, given));
    bar.follow(plan);
    bar.followKernel(panel.sessionContext, () => {
      if (!given.gone) bar.say(afterRestart(bar, payload, index), 'neutral');
      given.gone = true;
    });
  }

  /** What is left of an accepted fix in a kernel that is gone: the text; a file only that kernel could take back. */
  function afterRestart(bar, payload, index) {
    const tell = (kind, given) => say(payload.report.language, kind, given);
    const names = namesOf(payload, index);
    const files = Object.values(payload.report.fixes[index].files);
    const words = names.length ? [tell('panel_accepted', { what: names.join(', '), count: names.length })] : [];
    words.push(tell('panel_restarted_since'));
    if (files.length) {
      words.push(tell('panel_file_stays', { what: files.join(', ') }));
      bar.offer(null);
    }
    return words.join(' ');
  }

  /** `given`: whether the kernel has the fix, too, and whether that kernel is gone. */
  async function undo(bar, panel, payload, index, plan, given) {
    const tell = (kind, given) => say(payload.report.language, kind, given);
    const touched = ({ cell, before, after }) => cell.isDisposed || ![before, after].includes(sourceOf(cell));
    const lost = plan.cells.filter(touched).map(({ n }) => n);
    if (lost.length) {
      bar.say(tell('panel_touched', { cells: listOf(lost), count: lost.length }), 'error');
      return;
    }
    bar.offer(null);
    bar.unfollow();
    const liveTrouble = given.live && !given.gone ? await askLive(panel, payload, index + 1, 'undo') : '';
    for (const { cell, before, outputs, executionCount } of plan.cells) {
      if (sourceOf(cell) !== before) replaceSource(cell, before);
      cell.model.outputs.fromJSON(outputs);
      cell.model.executionCount = executionCount;
    }
    const inFile = Object.keys(payload.fixes[index].files).length > 0;
    const names = inFile && liveTrouble ? plan.changed.map(({ n }) => `In[${n}]`) : namesOf(payload, index);
    const words = names.length ? [tell('panel_undone', { what: names.join(', '), count: names.length })] : [];
    if (liveTrouble) words.push(tell(inFile ? 'panel_not_undone' : 'panel_live_stays', { reason: liveTrouble }));
    if (plan.running.length && !given.gone) words.push(tell('panel_result_stays'));
    bar.say(words.join(' '), liveTrouble ? 'error' : 'neutral');
    bar.untilNextRun();
  }

  /**
   * The one line that is left of the panel: what was done, and Undo. It is no output, so it is never saved. The cells
   * that it names lead to them, and it says so when one of them has been run by hand since.
   */
  function addBar(front, holder, payload, cell) {
    const { language } = payload.report;
    for (const old of [...cell.layout.widgets].filter(widget => widget.hasClass('ipm-bar'))) old.dispose();
    const status = statusLine();
    const actions = el('div', { class: 'ipm-actions' });
    const name = say(language, 'panel_accepted_fix');
    const node = el('div', { role: 'group', 'aria-label': name, tabindex: '-1', lang: language }, status, actions);
    const widget = new front.Widget({ node });
    widget.addClass('ipm');
    widget.addClass('ipm-bar');
    const below = cell.layout.widgets.findIndex(child => child.hasClass('jp-Cell-outputWrapper'));
    cell.layout.insertWidget(below < 0 ? cell.layout.widgets.length : below, widget);
    const dismiss = button(say(language, 'panel_dismiss'), () => widget.dispose());
    actions.append(dismiss);
    node.focus({ preventScroll: true });
    node.scrollIntoView({ block: 'nearest' });

    // By the number that the page shows: a cell that ran again has another one.
    const numberOf = n => cellOf(holder, payload, n)?.model.executionCount ?? n;
    const link = n => button(`In[${numberOf(n)}]`, () => goTo(front, holder, payload, { cell: n, line: 1 }).catch(() => {}), { class: 'ipm-where' });
    const tell = (words, state) => {
      node.dataset.state = state;
      status.replaceChildren(...words.split(/In\[(\d+)\]/).map((part, at) => (at % 2 ? link(Number(part)) : visible(part))));
    };
    const stops = [];
    const stop = () => stops.splice(0).forEach(one => one());
    widget.disposed.connect(stop);
    return {
      say: tell,
      untilNextRun: () => cell.model.outputs.changed.connect(() => widget.dispose()),
      offer: (label, action) => actions.replaceChildren(...(label ? [button(label, action)] : []), dismiss),
      unfollow: stop,
      /** From now on: what is run by hand is told. */
      follow: plan => {
        const executed = front.NotebookActions.executed;
        const note = (_, { cell: ran, success }) => {
          const known = plan.cells.find(one => one.cell === ran);
          if (!known) return;
          const failed = !success || ran.model.outputs.toJSON().some(output => output.output_type === 'error');
          const kind = failed ? 'panel_failed_by_hand' : 'panel_ran_by_hand';
          tell(say(language, kind, { cells: `In[${known.n}]` }), failed ? 'error' : 'ok');
        };
        executed?.connect(note);
        stops.push(() => executed?.disconnect(note));
      },
      /** From now on: that the kernel is restarted, dies or is exchanged is told. */
      followKernel: (context, gone) => {
        const note = (_, status) => ['restarting', 'autorestarting', 'dead'].includes(status) && gone();
        context.statusChanged.connect(note);
        context.kernelChanged.connect(gone);
        stops.push(() => context.statusChanged.disconnect(note), () => context.kernelChanged.disconnect(gone));
      },
    };
  }

  // --------------------------------------------------------------------------------------------------------- plugin

  const isOurs = payload =>
    payload?.version === 1 && Array.isArray(payload.fixes) && payload.report?.fixes?.length === payload.fixes.length;

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
        this.live = 'asking';
        this.draw();
        this.ask();
      }

      /** Only now is it known in which notebook the panel stands. */
      onAfterAttach() {
        this.draw();
        this.ask();
      }

      dispose() {
        this.context?.statusChanged.disconnect(this.onStatus, this);
        super.dispose();
      }

      /** The kernel is asked whether it knows the report, and again when it comes back after a restart. */
      async ask() {
        const holder = this.isAttached ? holderOf(front.tracker, this) : null;
        if (!holder || !isOurs(this.payload) || this.payload.report.pending || !holder.cell.model.trusted) return;
        if (!this.context) {
          this.context = holder.panel.sessionContext;
          this.context.statusChanged.connect(this.onStatus, this);
        }
        await this.context.ready;
        const live = await liveState(holder.panel, this.payload);
        if (this.isDisposed || live === this.live) return;
        this.live = live;
        this.draw();
      }

      onStatus(_, status) {
        const gone = { restarting: 'panel_restarted', autorestarting: 'panel_restarted', dead: 'panel_no_kernel' }[status];
        if (!gone || this.live === gone) return;
        this.live = gone;
        this.draw();
      }

      draw() {
        if (!this.payload) return;
        this.status = statusLine();
        const focused = this.node.contains(document.activeElement) ? document.activeElement.textContent : null;
        try {
          if (!isOurs(this.payload)) throw new TypeError(say('en', 'panel_another_version'));
          this.node.lang = this.payload.report.language;
          this.node.setAttribute('aria-label', say(this.payload.report.language, 'panel_name'));
          this.node.replaceChildren(...drawReport(this.payload, this.hooks()), this.status);
        } catch (error) {
          console.warn(NAME, error);
          this.node.replaceChildren(el('pre', { class: 'ipm-file' }, this.text));
        }
        if (focused) [...this.node.querySelectorAll('button')].find(one => one.textContent === focused)?.focus();
      }

      hooks() {
        const holder = this.isAttached ? holderOf(front.tracker, this) : null;
        return {
          here: holder !== null,
          trusted: holder?.cell.model.trusted ?? false,
          live: this.live,
          language: this.payload.report.language,
          goTo: holder && (place => this.attempt(found => goTo(front, found, this.payload, place))),
          accept: (index, run) => this.attempt(found => accept(front, found, this.payload, index, run)),
        };
      }

      /** Does something to the notebook that holds this panel; a refusal becomes a word in the status line. */
      async attempt(action) {
        this.status.textContent = '';
        try {
          const holder = holderOf(front.tracker, this);
          if (!holder) throw new Refusal(say(this.payload.report.language, 'panel_closed'));
          await action(holder);
        } catch (error) {
          if (!(error instanceof Refusal)) console.error(NAME, error);
          const failed = () => say(this.payload.report.language, 'panel_failed', { reason: error.message });
          this.status.textContent = error instanceof Refusal ? error.message : failed();
        }
      }
    };
  }

  async function goTo({ app }, holder, payload, place) {
    const cell = cellOf(holder, payload, place.cell);
    if (!cell) throw new Refusal(say(payload.report.language, 'panel_not_here', { cells: `In[${place.cell}]` }));
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
.ipm-block { margin: 6px 0; }
.ipm-excerpt {
  display: grid;
  grid-template-columns: minmax(2.5em, max-content) minmax(0, 1fr);
  background: var(--jp-layout-color1);
  border: 1px solid var(--jp-border-color2);
  border-radius: var(--jp-border-radius, 2px);
}
.ipm-number { text-align: end; padding: 2px 8px; border-inline-end: 1px solid var(--jp-border-color2); }
.ipm-line { padding: 2px 8px; min-width: 0; }
.ipm-code { display: block; }
.ipm mark { background: none; color: inherit; text-decoration: underline; text-decoration-thickness: 2px; text-underline-offset: 3px; }
.ipm mark[data-role='changed'] {
  background: color-mix(in srgb, var(--ipm-removed) 22%, transparent);
  text-decoration-color: var(--ipm-removed);
}
.ipm mark:not([data-role='changed']) {
  background: var(--jp-layout-color2);
  text-decoration-color: var(--jp-content-font-color2);
}
.ipm-note { display: block; border-inline-start: 3px solid var(--jp-border-color1); padding-inline-start: 8px; margin: 2px 0; }
.ipm-note[data-role='changed'] { border-color: var(--ipm-removed); font-weight: 600; }
.ipm-part { background: var(--jp-layout-color2) !important; border-radius: 3px; padding: 0 4px !important; font-weight: 400; }
.ipm-pending { color: var(--jp-content-font-color2); }
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
.ipm .ipm-tabs button {
  display: flex;
  gap: .5ch;
  max-width: 100%;
  border: 0;
  border-bottom: 3px solid transparent;
  background: none;
  white-space: nowrap;
}
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
.ipm-proof { font-weight: 600; }
.ipm-proof[data-sure='true']::before,
.ipm-tabs button[data-sure='true']::before { content: '\\2713'; color: var(--ipm-added); }
.ipm-proof[data-sure='true']::before { margin-right: .5ch; }
.ipm-tab-title {
  min-width: 0; max-width: 22em; overflow: hidden; text-overflow: ellipsis;
  font-family: var(--jp-code-font-family); font-weight: 400;
}
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
  border-left: 4px solid var(--jp-border-color1);
  padding: 2px 8px;
}
.ipm-bar[data-state='ok'] { border-left-color: var(--jp-success-color1, #2e7d32); }
.ipm-bar[data-state='error'] { border-left-color: var(--jp-error-color1, #c62828); }
.ipm-bar:focus { outline: none; }
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
