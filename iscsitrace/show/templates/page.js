"use strict";
(() => {
  document.documentElement.classList.add("live");

  // --- tabs: arrows select a tab, one panel is shown
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const choose = (chosen, hasFocus) => {
    for (const tab of tabs) {
      const isChosen = tab === chosen;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !isChosen;
    }
    if (hasFocus) chosen.focus();
  };
  tabs.forEach((tab, place) => {
    tab.addEventListener("click", () => choose(tab, true));
    tab.addEventListener("keydown", (event) => {
      const next = {ArrowRight: place + 1, ArrowLeft: place - 1 + tabs.length, Home: 0, End: tabs.length - 1}[event.key];
      if (next === undefined) return;
      event.preventDefault();
      choose(tabs[next % tabs.length], true);
    });
  });
  if (tabs.length) choose(tabs[0], false);

  // --- long tables: a button in each heading sorts, a field filters
  for (const table of document.querySelectorAll("table.long")) {
    const body = table.tBodies[0], rows = [...body.rows], headings = [...table.tHead.rows[0].cells];
    if (rows.length < 2) continue;
    const text = (row, place) => row.cells[place].textContent.trim();
    const number = (row, place) => parseFloat(text(row, place).replace(/[>,]/g, ""));
    headings.forEach((heading, place) => {
      const isNumber = heading.classList.contains("number");
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        // numbers begin with the largest
        const first = isNumber ? "descending" : "ascending", second = isNumber ? "ascending" : "descending";
        const order = heading.getAttribute("aria-sort") === first ? second : first;
        for (const each of headings) each.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        rows.sort((a, b) => {
          if (!isNumber) return sign * text(a, place).localeCompare(text(b, place), "en", {numeric: true});
          const one = number(a, place), other = number(b, place);
          // what has no number is the last in either order
          return Number.isNaN(one) - Number.isNaN(other) || sign * (one - other) || 0;
        });
        body.append(...rows);
      });
    });
    const bar = document.createElement("div"), label = document.createElement("label");
    const field = document.createElement("input"), found = document.createElement("output");
    bar.className = "filter";
    field.type = "search";
    found.setAttribute("aria-live", "polite");
    label.append("Filter rows ", field);
    bar.append(label, found);
    table.parentElement.before(bar);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const row of rows) {
        const all = [...row.cells].map((cell) => cell.textContent.trim().toLowerCase()).join(" ");
        row.hidden = !words.every((word) => all.includes(word));
        count += !row.hidden;
      }
      found.textContent = words.length ? `${count} of ${rows.length} rows` : "";
    });
  }

  // --- heat map: the cell under the mouse, or the one that arrows chose, in words
  for (const table of document.querySelectorAll("table.heat")) {
    const region = table.parentElement, place = region.previousElementSibling;
    const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].slice(2));
    let at = null;
    const show = (cell) => {
      at?.classList.remove("at");
      at = cell;
      at.classList.add("at");
      const [name, host] = at.parentElement.cells[0].childNodes;
      place.textContent = `${name.textContent} (${host.textContent}), ${at.title}`;
    };
    table.addEventListener("pointerover", ({target}) => { if (target.title) show(target); });
    table.addEventListener("click", ({target}) => { if (target.title) show(target); });
    region.addEventListener("keydown", (event) => {
      const [down, right] = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key] || [];
      if (down === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const row = at ? rows.findIndex((cells) => cells.includes(at)) : 0, column = at ? rows[row].indexOf(at) : -1;
      const next = at ? rows[row + down]?.[column + right] : rows[0][0];
      if (!next) return;
      show(next);
      next.scrollIntoView({block: "nearest", inline: "nearest"});
    });
  }

  // --- zoom: the view box of each plot
  const STEP = 1.5, MOST = 64, MOVE = 0.2;

  for (const figure of document.querySelectorAll("figure.plot")) {
    const canvas = figure.querySelector(".canvas");
    const svg = canvas.querySelector("svg");
    const place = figure.querySelector(".place");
    const axes = JSON.parse(figure.dataset.axes);
    const [left, top, width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    let view = {x: left, y: top, width, height};

    const show = (wanted) => {
      const size = Math.min(1, Math.max(1 / MOST, wanted.width / width));
      view = {width: width * size, height: height * size};
      view.x = Math.min(left + width - view.width, Math.max(left, wanted.x));
      view.y = Math.min(top + height - view.height, Math.max(top, wanted.y));
      svg.setAttribute("viewBox", [view.x, view.y, view.width, view.height].map((each) => +each.toFixed(3)).join(" "));
      showPosition(null);
    };
    const zoom = (factor, at) => {
      const middle = at || {x: view.x + view.width / 2, y: view.y + view.height / 2};
      show({
        x: middle.x - (middle.x - view.x) / factor,
        y: middle.y - (middle.y - view.y) / factor,
        width: view.width / factor,
      });
    };
    const move = (x, y) => show({x: view.x + x * view.width, y: view.y + y * view.height, width: view.width});
    const home = () => show({x: left, y: top, width});
    const isWhole = () => view.width >= width;

    // --- the position of the mouse in the units of the axes
    const value = (axis, share) => axis.limits[0] + share * (axis.limits[1] - axis.limits[0]);
    const number = (amount, range) =>
      amount.toFixed(Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(Math.abs(range) || 1)))));
    const showPosition = (at) => {
      const words = [];
      const point = at || {x: view.x + view.width / 2, y: view.y + view.height / 2};
      const under = axes.find(({box}) =>
        point.x >= box[0] && point.x <= box[0] + box[2] && point.y >= box[1] && point.y <= box[1] + box[3]);
      if (under) {
        const {box} = under;
        const scale = (name) => Math.abs(under[name].limits[1] - under[name].limits[0]) * (view.width / width);
        if (at) {
          if (under.x) words.push(`${number(value(under.x, (at.x - box[0]) / box[2]), scale("x"))} ${under.x.label}`);
          if (under.y) words.push(`${number(value(under.y, 1 - (at.y - box[1]) / box[3]), scale("y"))} ${under.y.label}`);
        } else if (!isWhole() && under.x) {
          const edge = (x) => Math.min(1, Math.max(0, (x - box[0]) / box[2]));
          const from = value(under.x, edge(view.x)), to = value(under.x, edge(view.x + view.width));
          words.push(`${number(from, scale("x"))} to ${number(to, scale("x"))} ${under.x.label}`);
        }
      }
      place.textContent = words.join("; ") || (isWhole() ? "" : `${(width / view.width).toFixed(1)} times`);
    };

    const point = (event) => {
      const inverse = svg.getScreenCTM().inverse();
      return new DOMPoint(event.clientX, event.clientY).matrixTransform(inverse);
    };

    const actions = {
      in: () => zoom(STEP),
      out: () => zoom(1 / STEP),
      left: () => move(-MOVE, 0),
      right: () => move(MOVE, 0),
      up: () => move(0, -MOVE),
      down: () => move(0, MOVE),
      home,
    };
    const keys = {
      "+": "in", "=": "in", "-": "out", "0": "home", Home: "home", Escape: "home",
      ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down",
    };
    for (const button of figure.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => actions[button.dataset.zoom]());
    }
    canvas.addEventListener("keydown", (event) => {
      const name = keys[event.key];
      // arrows scroll the page unless the plot is zoomed
      if (!name || event.ctrlKey || event.metaKey || event.altKey || (event.key.startsWith("Arrow") && isWhole())) return;
      event.preventDefault();
      actions[name]();
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      if (event.deltaY > 0 && isWhole()) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, point(event));
    }, {passive: false});
    svg.addEventListener("dblclick", home);

    // --- drag: a box to zoom into; with Shift, move the plot
    let start = null, box = null;
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button) return;
      start = {...{at: point(event), view, isMove: event.shiftKey}};
      canvas.focus({preventScroll: true});
      svg.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    svg.addEventListener("pointermove", (event) => {
      const at = point(event);
      if (!start) return showPosition(at);
      if (start.isMove) return show({x: view.x + start.at.x - at.x, y: view.y + start.at.y - at.y, width: view.width});
      box = box || svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "rect"));
      box.setAttribute("class", "box");
      box.setAttribute("x", Math.min(at.x, start.at.x));
      box.setAttribute("y", Math.min(at.y, start.at.y));
      box.setAttribute("width", Math.abs(at.x - start.at.x));
      box.setAttribute("height", Math.abs(at.y - start.at.y));
    });
    const end = (event) => {
      const at = point(event);
      if (box) {
        box.remove();
        const wide = Math.abs(at.x - start.at.x), high = Math.abs(at.y - start.at.y);
        if (event.type === "pointerup" && Math.max(wide / view.width, high / view.height) > 0.01) {
          const wanted = Math.max(wide, high * width / height);
          show({x: (at.x + start.at.x - wanted) / 2, y: (at.y + start.at.y - wanted * height / width) / 2, width: wanted});
        }
      }
      start = box = null;
    };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
    svg.addEventListener("pointerleave", () => { if (!start) showPosition(null); });
  }
})();
