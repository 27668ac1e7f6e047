// Draws the timelines of a page on canvases, and zooms and moves them. Each figure.timeline holds its data as JSON:
// {ops: [name], kinds: [{name, style}], groups: [{name, lanes: [{name, rows: [{begin, end, op, layer, kind}]}]}]}, where
// a row has arrays of equal length, times are in nanoseconds, and spans ascend by begin.
// After each drawing, data attributes of the canvas say what it shows.
"use strict";
(() => {
  const kGutter = 74, kHeading = 24, kRow = 20, kGap = 4, kAxis = 24, kEdge = 8;  // pixels
  const kMsPerNanosecond = 1e-6;
  const kLeastView = 1e-5;  // of the whole, or a view would be narrower than the clock is precise

  /// First index for which `values` (ascending) exceeds `bound`.
  const firstAbove = (values, bound) => {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > bound) high = middle; else low = middle + 1;
    }
    return low;
  };

  /// Rows of all lanes with their positions; `reach` is the latest end so far, so it ascends even if spans overlap.
  const layOut = groups => {
    const rows = [], headings = [];
    let top = 0;
    for (const group of groups) {
      headings.push({ name: group.name, top });
      top += kHeading;
      for (const lane of group.lanes)
        lane.rows.forEach((row, i) => {
          const begin = Float64Array.from(row.begin, time => time * kMsPerNanosecond);
          const end = Float64Array.from(row.end, time => time * kMsPerNanosecond);
          const reach = end.slice();
          for (let j = 1; j < reach.length; ++j) reach[j] = Math.max(reach[j], reach[j - 1]);
          rows.push({ ...row, begin, end, reach, top, label: i === 0 ? lane.name : "", lane: lane.name, group: group.name });
          top += kRow + kGap;
        });
    }
    return { rows, headings, height: top };
  };

  /// A round number of milliseconds, so that there is a line about every 90 pixels.
  const tickStep = msPerPixel => {
    const raw = 90 * msPerPixel, power = 10 ** Math.floor(Math.log10(raw));
    return power * [1, 2, 5, 10].find(factor => factor * power >= raw);
  };

  const start = figure => {
    const { ops, kinds, groups } = JSON.parse(figure.querySelector("script").textContent);
    const canvas = figure.querySelector("canvas"), tip = figure.querySelector(".tip");
    const context = canvas.getContext("2d");
    const { rows, headings, height } = layOut(groups);
    const whole = Math.max(...rows.map(row => row.reach[row.reach.length - 1]), kMsPerNanosecond);
    let from = 0, to = whole, drag = null, isDrawn = true;

    const plotWidth = () => Math.max(1, canvas.clientWidth - kGutter - kEdge);
    const timeAt = x => from + (x - kGutter) / plotWidth() * (to - from);
    const xAt = time => kGutter + (time - from) / (to - from) * plotWidth();

    const drawAxis = colours => {
      const step = tickStep((to - from) / plotWidth());
      const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
      context.textAlign = "center";
      for (let i = Math.ceil(from / step); i * step <= to; ++i) {
        const x = Math.round(xAt(i * step));
        context.fillStyle = colours.grid;
        context.fillRect(x, 0, 1, height);
        context.fillStyle = colours.quiet;
        const text = (i * step).toFixed(decimals) + " ms", half = text.length * colours.letter / 2;
        context.fillText(text, Math.min(x, canvas.clientWidth - half), height + 16);
      }
      context.textAlign = "left";
    };

    /// Draws what is visible; of spans that end within a pixel only the first. Returns how many were drawn.
    const drawRow = (row, colours) => {
      let drawn = 0, last = -1;
      for (let i = firstAbove(row.reach, from); i < row.begin.length && row.begin[i] < to; ++i) {
        const right = Math.min(xAt(row.end[i]), kGutter + plotWidth());
        if (right - last < 1) continue;
        const left = Math.max(xAt(row.begin[i]), kGutter), gap = right - left > 4 ? 1 : 0;
        const width = Math.max(right - left - gap, .5);
        context.fillStyle = colours.kinds[row.kind[i]];
        context.fillRect(left, row.top, width, kRow);
        const letters = Math.floor((width - 6) / colours.letter);
        if (letters > 2) {
          context.fillStyle = colours.card;
          context.fillText(ops[row.op[i]].slice(0, letters), left + 3, row.top + kRow - 6);
        }
        last = right;
        ++drawn;
      }
      return drawn;
    };

    const draw = () => {
      isDrawn = true;
      const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
      canvas.style.height = height + kAxis + "px";
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round((height + kAxis) * scale);
      context.scale(scale, scale);
      const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue("--" + name).trim();
      context.font = "11px ui-monospace, 'DejaVu Sans Mono', monospace";
      const colours = {
        grid: colour("grid"), quiet: colour("quiet"), card: colour("card"), letter: context.measureText("m").width,
        kinds: kinds.map(kind => colour("s" + kind.style)),
      };
      drawAxis(colours);
      const drawn = rows.reduce((sum, row) => sum + drawRow(row, colours), 0);
      context.fillStyle = colours.quiet;
      for (const row of rows) context.fillText(row.label, 0, row.top + kRow - 6);
      context.font = "600 13px system-ui, sans-serif";
      context.fillStyle = colour("text");
      for (const heading of headings) context.fillText(heading.name, 0, heading.top + 16);
      if (drag && drag.selects) {
        context.globalAlpha = .2;
        context.fillRect(Math.min(drag.x, drag.begin), 0, Math.abs(drag.x - drag.begin), height);
      }
      Object.assign(canvas.dataset, {
        groups: groups.length, rows: rows.length, spans: rows.reduce((sum, row) => sum + row.begin.length, 0), drawn, from, to,
      });
    };

    const show = (begin, end) => {
      const length = Math.min(whole, Math.max(end - begin, whole * kLeastView));
      from = Math.min(Math.max(0, begin), whole - length);
      to = from + length;
      redraw();
    };
    const redraw = () => {
      if (!isDrawn) return;
      isDrawn = false;
      requestAnimationFrame(draw);
    };
    /// Keeps `time` where it is.
    const zoom = (factor, time) => show(time - (time - from) * factor, time + (to - time) * factor);
    const move = share => show(from + share * (to - from), to + share * (to - from));
    const actions = {
      in: () => zoom(.5, (from + to) / 2), out: () => zoom(2, (from + to) / 2),
      left: () => move(-.4), right: () => move(.4), all: () => show(0, whole),
    };
    const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all" };

    /// The span at a point or within 2 pixels of it, as {row, i}.
    const spanAt = (x, y) => {
      const row = rows.find(each => y >= each.top && y < each.top + kRow);
      if (!row || x < kGutter) return null;
      const slack = 2 * (to - from) / plotWidth(), time = timeAt(x);
      let nearest = null, least = slack;
      for (let i = firstAbove(row.reach, time - slack); i < row.begin.length && row.begin[i] <= time + slack; ++i) {
        const distance = Math.max(row.begin[i] - time, time - row.end[i], 0);
        if (distance <= least && (distance < least || !nearest)) [nearest, least] = [{ row, i }, distance];
        if (distance === 0) break;
      }
      return nearest;
    };
    const showTip = event => {
      const found = drag ? null : spanAt(event.offsetX, event.offsetY);
      tip.hidden = !found;
      if (!found) return;
      const { row, i } = found, ms = time => time.toFixed(4);
      const layer = row.layer[i] < 0 ? "" : `, layer ${row.layer[i]}`;
      tip.textContent = `${ops[row.op[i]]}${layer}, ${kinds[row.kind[i]].name}\n` +
        `${ms(row.begin[i])} to ${ms(row.end[i])} ms (${ms(row.end[i] - row.begin[i])} ms)\n${row.group}, ${row.lane}`;
      const left = Math.min(event.offsetX + 14, canvas.clientWidth - tip.offsetWidth);
      tip.style.left = Math.max(0, left) + "px";
      tip.style.top = canvas.offsetTop + row.top + kRow + 6 + "px";
    };

    for (const button of figure.querySelectorAll("button")) button.addEventListener("click", actions[button.dataset.action]);
    canvas.addEventListener("keydown", event => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      actions[keys[event.key]]();
    });
    canvas.addEventListener("wheel", event => {
      const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      // A wheel that has nothing to zoom scrolls the page.
      if (to - from >= whole && (isSideways || event.deltaY > 0)) return;
      event.preventDefault();
      if (isSideways) move((event.deltaX || event.deltaY) / plotWidth());
      else zoom(Math.exp(Math.min(1, Math.max(-1, event.deltaY * .002))), Math.max(from, timeAt(event.offsetX)));
      tip.hidden = true;
    }, { passive: false });
    canvas.addEventListener("dblclick", actions.all);
    canvas.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      drag = { begin: event.offsetX, x: event.offsetX, selects: !event.shiftKey && event.pointerType !== "touch" };
    });
    canvas.addEventListener("pointermove", event => {
      if (drag && drag.selects) redraw();
      else if (drag) move((drag.x - event.offsetX) / plotWidth());
      if (drag) drag.x = event.offsetX;
      showTip(event);
    });
    canvas.addEventListener("pointerup", event => {
      if (!drag) return;
      const { begin, selects } = drag, x = event.offsetX;
      drag = null;
      if (selects && Math.abs(x - begin) > 4) {
        const ends = [begin, x].map(each => timeAt(Math.max(kGutter, each))).sort((a, b) => a - b);
        show(...ends);
      }
    });
    canvas.addEventListener("pointercancel", () => { drag = null; redraw(); });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    new ResizeObserver(redraw).observe(figure);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    draw();
  };

  document.querySelectorAll("figure.timeline").forEach(start);
})();
