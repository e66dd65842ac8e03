"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const message = document.getElementById("message");
  const announce = text => { message.textContent = text; };

  // ---- the tooltip: the same for the mouse and for the keyboard

  const tip = document.getElementById("tip");
  const hideTip = () => { tip.hidden = true; };
  function showTip(value, x, y) {
    const lines = typeof value === "object" ? Object.entries(value) : [["", String(value)]];
    tip.replaceChildren(...lines.map(([name, text]) => make("div", {}, make("b", {}, name), String(text))));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
    tip.style.top = `${y + 16 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 16}px`;
  }
  const onHover = (_, event, item, value) => value ? showTip(value, event.clientX, event.clientY) : hideTip();
  addEventListener("keydown", event => { if (event.key === "Escape") hideTip(); });
  // Not on scroll: the focus of a mark scrolls too.
  for (const kind of ["wheel", "touchmove"]) addEventListener(kind, hideTip, { passive: true });

  // ---- charts: what is hidden is hidden in all of them, each has its own scale

  const SHAPES = {
    circle: "M7 2.5a4.5 4.5 0 1 0 .01 0z", square: "M3 3h8v8h-8z", "triangle-up": "M7 2l5 9h-10z",
    diamond: "M7 1.5l4.5 5.5-4.5 5.5-4.5-5.5z", cross: "M5 2h4v3h3v4h-3v3h-4v-3h-3v-4h3z",
    "triangle-down": "M7 12l5-9h-10z", "triangle-right": "M12 7l-9 5v-10z", stroke: "M1 6h12v3h-12z",
  };
  const hidden = new Set();
  const charts = [];
  const isPhone = matchMedia("screen and (max-width: 640px)");

  const named = (spec, channel) => spec.layer.map(layer => (layer.encoding || {})[channel])
    .find(encoding => encoding && encoding.type === "nominal" && encoding.scale && encoding.scale.domain);
  const hasLogarithm = spec => spec.layer.some(layer => ["x", "y"].some(axis =>
    ((layer.encoding || {})[axis] || {}).scale && layer.encoding[axis].scale.type === "log"));

  // The spec with only the rows that are shown, without Vega's own legend, and with linear axes where they are wanted.
  function variant(chart) {
    const spec = structuredClone(chart.spec);
    delete spec.params;
    if (chart.key) for (const name of Object.keys(spec.datasets || {}))
      spec.datasets[name] = spec.datasets[name].filter(row => !hidden.has(row[chart.key]));
    for (const layer of spec.layer) {
      const encoding = layer.encoding || {};
      delete layer.params;
      if (encoding.opacity && encoding.opacity.condition) delete encoding.opacity;
      for (const channel of ["color", "shape"])
        if (encoding[channel] && encoding[channel].type === "nominal") encoding[channel].legend = null;
      if (!chart.linear) continue;
      for (const axis of ["x", "y"]) {
        const scale = encoding[axis] && encoding[axis].scale;
        if (!scale || scale.type !== "log") continue;
        encoding[axis].scale = { type: "linear", domain: [0, scale.domain[1]], nice: false };
        if (axis === "y" && encoding.y.axis) delete encoding.y.axis.values;
      }
    }
    spec.description = chart.title;
    if (isPhone.matches) fitWidth(spec, chart.figure.clientWidth - 10);
    return spec;
  }
  // A chart that is made smaller as a picture has letters that nobody can read. It gets the width that there is instead.
  function fitWidth(spec, room) {
    if (room < 200) return;  // hidden
    Object.assign(spec, { width: room, autosize: { type: "fit-x", contains: "padding" } });
    const words = [].concat(spec.title.subtitle || []).join(" ").split(" "), most = room / 6.6, lines = [""];
    for (const word of words) {
      const line = lines.pop();
      lines.push(...(line && line.length + 1 + word.length > most ? [line, word] : [line ? `${line} ${word}` : word]));
    }
    Object.assign(spec.title, { subtitle: lines, frame: "bounds" });
  }

  async function draw(chart) {
    const target = make("div");
    const result = await vegaEmbed(target, variant(chart), { renderer: "svg", actions: false, tooltip: onHover });
    if (chart.view) chart.view.finalize();
    chart.view = result.view;
    chart.live.replaceChildren(target);
    const still = chart.figure.querySelector(".static");
    if (still) still.remove();
    if (chart.legend) chart.legend.hidden = false;  // the still picture has a legend of its own
    chart.live.hidden = false;
    makeMarksFocusable(chart);
  }
  // One after the other, so that a click during a drawing waits for it.
  const redraw = chart => (chart.drawing = (chart.drawing || Promise.resolve()).then(() => draw(chart)).catch(console.error));

  // Tab reaches a chart once; arrows go from mark to mark.
  function makeMarksFocusable(chart) {
    const marks = all('[role="graphics-symbol"]', chart.live).filter(mark => mark.__data__ && mark.__data__.tooltip);
    marks.forEach((mark, index) => mark.setAttribute("tabindex", index ? -1 : 0));
    chart.marks = marks;
  }
  function moveFocus(items, event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    const index = items.indexOf(event.target);
    if (index < 0 || !(event.key in steps)) return;
    const next = items[Math.max(0, Math.min(items.length - 1, index + steps[event.key]))];
    items.forEach(item => item.setAttribute("tabindex", item === next ? 0 : -1));
    next.focus();
    event.preventDefault();
  }
  function onMarkFocus(event) {
    const item = event.target.__data__;
    if (!item || !item.tooltip) return;
    requestAnimationFrame(() => {  // after the page has scrolled to it
      if (document.activeElement !== event.target) return;
      const box = event.target.getBoundingClientRect();
      showTip(item.tooltip, box.right, box.bottom);
    });
  }

  function setHidden(names) {
    const changed = new Set([...names, ...hidden].filter(name => names.has(name) !== hidden.has(name)));
    hidden.clear();
    names.forEach(name => hidden.add(name));
    for (const chart of charts) {
      for (const button of chart.buttons) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.name)));
      if (chart.buttons.some(button => changed.has(button.dataset.name))) redraw(chart);
    }
  }
  function onLegend(chart, name, alone) {
    const names = new Set(hidden);
    const others = chart.buttons.map(button => button.dataset.name).filter(other => other !== name);
    if (alone) {
      const isAlone = !names.has(name) && others.every(other => names.has(other));
      others.forEach(other => isAlone ? names.delete(other) : names.add(other));
      names.delete(name);
    } else if (!names.delete(name)) names.add(name);
    setHidden(names);
    announce(`${name}: ${names.has(name) ? "hidden" : "shown"}`);
  }
  function makeLegend(chart) {
    const colour = named(chart.spec, "color"), shape = named(chart.spec, "shape");
    if (!colour) return;
    chart.key = colour.field;
    const used = new Set(Object.values(chart.spec.datasets || {}).flat().map(row => row[colour.field]));
    const box = make("div", { class: "legend", hidden: "", role: "group", "aria-label": `Shown in the chart: ${chart.title}` });
    colour.scale.domain.forEach((name, index) => {
      if (!used.has(name)) return;
      const kind = shape ? shape.scale.range[shape.scale.domain.indexOf(name)] : colour.field === "line" ? "stroke" : "square";
      const button = make("button", { type: "button", "aria-pressed": "true", title: "Click: hide or show. With Shift: only this one." });
      button.innerHTML = `<svg viewBox="0 0 14 14" aria-hidden="true"><path d="${SHAPES[kind] || SHAPES.circle}"/></svg>`;
      button.querySelector("path").setAttribute("fill", colour.scale.range[index % colour.scale.range.length]);
      button.append(name);
      button.dataset.name = name;
      button.tabIndex = chart.buttons.length ? -1 : 0;
      button.addEventListener("click", event => onLegend(chart, name, event.shiftKey));
      chart.buttons.push(button);
      box.append(button);
    });
    box.addEventListener("keydown", event => moveFocus(chart.buttons, event));
    chart.legend = box;
    chart.figure.append(box);
  }
  function makeScaleSwitch(chart) {
    if (!hasLogarithm(chart.spec)) return;
    const button = make("button", { type: "button", class: "switch", "aria-pressed": "false", "aria-label": `Linear axes: ${chart.title}` }, "Linear axes");
    button.addEventListener("click", () => {
      chart.linear = !chart.linear;
      button.setAttribute("aria-pressed", String(chart.linear));
      announce(`${chart.title}: ${chart.linear ? "linear" : "logarithmic"} axes`);
      redraw(chart);
    });
    chart.figure.prepend(make("div", { class: "controls" }, button));
  }

  for (const figure of all("figure")) {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    const chart = { figure, spec, title: spec.title.text, live: figure.querySelector(".live"), buttons: [], marks: [], linear: false };
    charts.push(chart);
    makeLegend(chart);
    makeScaleSwitch(chart);
    chart.live.addEventListener("keydown", event => moveFocus(chart.marks, event));
    chart.live.addEventListener("focusin", onMarkFocus);
    chart.live.addEventListener("focusout", hideTip);
  }

  // Weak and strong scaling answer different questions, so a page with both can show one of them.
  const strong = new Set(JSON.parse(document.querySelector("main").dataset.strong));
  const titles = new Set(charts.filter(chart => chart.key === "series").flatMap(chart => chart.buttons.map(button => button.dataset.name)));
  const weak = new Set([...titles].filter(title => !strong.has(title)));
  if (strong.size && weak.size) {
    const box = make("fieldset", { class: "choice" }, make("legend", {}, "Scaling shown"));
    for (const [label, without] of [["weak and strong", new Set()], ["weak", strong], ["strong", weak]]) {
      const input = make("input", { type: "radio", name: "scaling" });
      input.checked = !without.size;
      input.addEventListener("change", () => { setHidden(new Set(without)); announce(`${label} scaling is shown`); });
      box.append(make("label", {}, input, label));
    }
    document.querySelector("header").after(box);
  }

  // ---- tables: sort, filter, copy

  const UNITS = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, min: 60, h: 3600 };
  function cellText(cell) {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), parts = [];
    while (walker.nextNode()) if (walker.currentNode.data.trim()) parts.push(walker.currentNode.data.trim());
    return parts.join(" ").replace(/(\d),(?=\d{3}(?!\d))/g, "$1").replace(/\u202f/g, " ").replace(/\s+/g, " ");
  }
  function cellNumber(text) {
    const match = /^([−-]?\d[\d.]*(?:e[+-]?\d+)?)(?: ([A-Za-z]+))?/.exec(text);
    return match ? Number(match[1].replace("−", "-")) * (UNITS[match[2]] || 1) : NaN;
  }
  function compareCells(first, second) {
    const a = cellNumber(first), b = cellNumber(second);
    if (!Number.isNaN(a) && !Number.isNaN(b)) return a - b;
    return Number.isNaN(a) - Number.isNaN(b) || first.localeCompare(second, undefined, { numeric: true });
  }
  // Rows whose reason runs across the columns have no value to sort by, and come last either way.
  function sortRows(table, rows, column, direction) {
    const body = table.tBodies[0], width = table.tHead.rows[0].cells.length;
    const text = new Map(rows.map(row => [row, row.cells.length === width ? cellText(row.cells[column]) : null]));
    const order = direction === "none" ? rows : [...rows].sort((a, b) => {
      const [first, second] = [text.get(a), text.get(b)];
      if (first === null || second === null) return (first === null) - (second === null);
      return (direction === "ascending" ? 1 : -1) * compareCells(first, second);
    });
    body.append(...order);
    table.classList.toggle("sorted", direction !== "none");
  }
  function addSorting(table, rows, name) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (!cellText(head)) return;
      head.scope = "col";
      const button = make("button", { type: "button" }, ...head.childNodes);
      button.addEventListener("click", () => {
        const next = { ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")] || "ascending";
        heads.forEach(other => other.removeAttribute("aria-sort"));
        if (next !== "none") head.setAttribute("aria-sort", next);
        sortRows(table, rows, column, next);
        announce(`${name}: ${next === "none" ? "original order" : `sorted by ${cellText(head)}, ${next}`}`);
      });
      head.append(button);
    });
  }
  function toCsv(table) {
    const quote = text => /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
    const rows = [table.tHead.rows[0], ...table.tBodies[0].rows].filter(row => !row.hidden);
    return rows.map(row => [...row.cells].map(cell => quote(cellText(cell))).join(",")).join("\n") + "\n";
  }
  async function copyText(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = make("textarea", { class: "unseen", "aria-hidden": "true" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }
  function addCopying(tools, label, name, text) {
    const button = make("button", { type: "button", "aria-label": `${label}: ${name}` }, label);
    button.addEventListener("click", async () => {
      await copyText(text());
      button.focus();
      announce(`${name}: copied`);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 1500);
    });
    tools.append(button);
  }
  function addFilter(tools, rows, name) {
    const input = make("input", { type: "search", "aria-label": `Filter rows: ${name}` });
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !cellText(row).toLowerCase().includes(wanted);
      announce(`${name}: ${rows.filter(row => !row.hidden).length} of ${rows.length} rows`);
    });
    tools.append(make("label", {}, "Filter", input));
  }

  const FILTERED = 6;  // rows from which on a table has a filter
  for (const table of all("table")) {
    const rows = [...table.tBodies[0].rows], name = table.getAttribute("aria-label") || "Table";
    const tools = make("div", { class: "tools" });
    const box = table.closest(".scroll");
    if (rows.length > 1) addSorting(table, rows, name);
    else Object.entries({ tabindex: 0, role: "group", "aria-label": name }).forEach(pair => box.setAttribute(...pair));
    if (rows.length >= FILTERED) addFilter(tools, rows, name);
    addCopying(tools, "Copy as CSV", name, () => toCsv(table));
    box.before(tools);
  }
  for (const command of all(".command")) {
    const text = command.querySelector("code").textContent;
    addCopying(command, "Copy", command.querySelector("pre").getAttribute("aria-label"), () => text);
  }

  // ---- print: what a reader of paper cannot open is open

  const opened = [];
  addEventListener("beforeprint", () => {
    opened.push(...all("details.on-paper:not([open])"));
    opened.forEach(details => { details.open = true; });
  });
  addEventListener("afterprint", () => opened.splice(0).forEach(details => { details.open = false; }));

  // ---- draw: what is visible first, and never all at once

  const visible = charts.filter(chart => chart.figure.offsetParent);
  const order = [...visible, ...charts.filter(chart => !visible.includes(chart))];
  (async () => {
    for (const chart of order) {
      await redraw(chart);
      await new Promise(resolve => setTimeout(resolve));
    }
    document.body.dataset.drawn = "all";
  })();
})();
