// What other limits would keep. One statistic moved: exact, from counts over the documents that pass all other rules.
// Several: estimated from a sample of documents, of which the page holds a byte a statistic (exact where it holds all).
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const panel = document.getElementById("panel");
  const answer = document.getElementById("answer");
  const command = document.getElementById("command");
  const whole = new Intl.NumberFormat("en");
  const short = (x) => (Math.abs(x) >= 1000 ? whole.format(Math.round(x)) : String(Number(x.toPrecision(4))));
  const signed = (x) => (x < 0 ? "−" : "+") + whole.format(Math.abs(x));
  const say = (key, fields) => data.sentences[key].replace(/\{(\w+)\}/g, (_, name) => fields[name]);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const sums = (steps) => { let total = 0; return steps.map((step) => (total += step)); };

  for (const one of data.statistics) {
    one.off = { min: -1, max: one.grid.length };
    one.base = { min: one.min ?? one.off.min, max: one.max ?? one.off.max };
    one.now = { ...one.base };
    one.places = bytes(one.places);
    for (const key of ["below", "up_to", "characters_below", "characters_up_to"]) one[key] = sums(one[key]);
    one.figure = document.getElementById(`f${one.index}`);
  }
  const byName = new Map(data.statistics.map((one) => [one.name, one]));
  const samplePlaces = bytes(data.sample_places);
  const moved = () => data.statistics.filter((one) => one.now.min !== one.base.min || one.now.max !== one.base.max);

  const excludes = (one, limits, place) =>
    place !== 255 && ((limits.min >= 0 && place < 2 * limits.min + 1) || (limits.max < one.grid.length && place > 2 * limits.max + 1));

  // Of the documents that pass all other rules: how many, or how many of their characters, are inside the limits.
  function inside(one, limits, total, below, upTo) {
    const last = upTo.length - 1;
    return total - (limits.min >= 0 ? below[limits.min] : 0) - (limits.max <= last ? upTo[last] - upTo[limits.max] : 0);
  }

  function fails(which) {
    const failed = new Uint8Array(data.sampled);
    for (const one of data.statistics) {
      const limits = one[which];
      if (limits.min === one.off.min && limits.max === one.off.max) continue;
      for (let i = 0; i < data.sampled; i++) if (excludes(one, limits, one.places[i])) failed[i] = 1;
    }
    return failed;
  }
  const failedBefore = fails("base");

  function estimate() {
    const failed = fails("now");
    let comes = 0, goes = 0;
    for (let i = 0; i < data.sampled; i++) {
      if (failed[i] < failedBefore[i]) comes++;
      else if (failed[i] > failedBefore[i]) goes++;
    }
    const scale = data.sampled ? data.documents / data.sampled : 0;
    return { change: Math.round((comes - goes) * scale), error: data.sampled < data.documents ? 1.96 * Math.sqrt(comes + goes) * scale : 0 };
  }

  function keeps() {
    const changed = moved();
    const documents = whole.format(data.documents), kept = (change) => whole.format(data.kept + change);
    if (changed.length === 0) return say("recipe", { kept: kept(0), documents });
    if (changed.length === 1) {
      const one = changed[0];
      const change = inside(one, one.now, 0, one.below, one.up_to) - inside(one, one.base, 0, one.below, one.up_to);
      const characters = inside(one, one.now, 0, one.characters_below, one.characters_up_to) - inside(one, one.base, 0, one.characters_below, one.characters_up_to);
      return say("one", { kept: kept(change), documents, change: signed(change), characters: signed(characters) });
    }
    const { change, error } = estimate();
    const fields = { kept: kept(change), documents, change: signed(change), error: whole.format(Math.round(error)), sampled: whole.format(data.sampled) };
    return say(error ? "estimate" : "several", fields);
  }

  function changes() {
    const found = [];
    for (const one of moved())
      for (const bound of ["min", "max"])
        if (one.now[bound] !== one.base[bound])
          found.push([`filter.${one.name}.${bound}`, one.now[bound] === one.off[bound] ? null : one.grid[one.now[bound]]]);
    return found;
  }

  const axis = (one, value) => {
    const bent = (x) => (one.bend ? Math.asinh(x / one.bend) : x);
    const low = bent(one.grid[0]), high = bent(one.grid[one.grid.length - 1]);
    return (data.width * (bent(value) - low)) / (high - low);
  };

  function draw(one) {
    if (!one.figure) return;
    const place = (bound) => one.now[bound] === one.off[bound] ? (bound === "min" ? -9 : data.width + 9) : axis(one, one.grid[one.now[bound]]);
    const window_ = one.figure.querySelector("clipPath rect");
    window_.setAttribute("x", place("min"));
    window_.setAttribute("width", Math.max(0, place("max") - place("min")));
    for (const line of one.figure.querySelectorAll("line.moved")) {
      const bound = line.dataset.bound;
      line.setAttribute("visibility", one.now[bound] === one.off[bound] ? "hidden" : "visible");
      line.setAttribute("x1", place(bound));
      line.setAttribute("x2", place(bound));
    }
    for (const input of one.figure.querySelectorAll("input")) {
      const bound = input.dataset.bound, off = one.now[bound] === one.off[bound];
      const text = off ? say("off") : short(one.grid[one.now[bound]]);
      input.value = one.now[bound];
      input.setAttribute("aria-valuetext", text);
      input.parentElement.querySelector("output").textContent = text;
    }
    const change = inside(one, one.now, 0, one.below, one.up_to) - inside(one, one.base, 0, one.below, one.up_to);
    const note = one.figure.querySelector(".effect");
    note.textContent = one.now.min === one.base.min && one.now.max === one.base.max ? "" : say("alone", { change: signed(change) });
  }

  function tellSamples() {
    for (const row of document.querySelectorAll("tr[data-sample]")) {
      const start = Number(row.dataset.sample) * data.statistics.length;
      const dropped = data.statistics.some((one, i) => excludes(one, one.now, samplePlaces[start + i]));
      const tag = row.firstElementChild, before = row.dataset.dropped === "1";
      tag.textContent = say(dropped ? (before ? "dropped" : "would_drop") : before ? "would_keep" : "kept");
      tag.className = "tag" + (dropped ? " lost" : "") + (dropped !== before ? " changed" : "");
    }
  }

  function show() {
    data.statistics.forEach(draw);
    answer.textContent = keeps();
    const found = changes();
    panel.classList.toggle("active", found.length > 0);
    command.textContent = "python -m corpus retune OUT" + found.map(([key, value]) => (value === null ? ` --unset ${key}` : ` --set ${key}=${value}`)).join("");
    const fragment = found.map(([key, value]) => `${key}=${value ?? "off"}`).join("&");
    if (found.length || location.hash.startsWith("#filter.")) history.replaceState(null, "", "#" + fragment);
    tellSamples();
  }

  // #filter.length.num_chars.min=500&filter.script.kana_ratio.max=off : a page with its sliders set is a link.
  function read() {
    for (const one of data.statistics) one.now = { ...one.base };
    for (const part of location.hash.slice(1).split("&")) {
      const match = /^filter\.([\w.]+)\.(min|max)=(.+)$/.exec(part);
      const one = match && byName.get(match[1]);
      if (!one) continue;
      const value = Number(match[3]);
      if (match[3] === "off") one.now[match[2]] = one.off[match[2]];
      else if (Number.isFinite(value)) one.now[match[2]] = nearest(one.grid, value);
    }
    show();
  }

  function nearest(grid, value) {
    let best = 0;
    grid.forEach((x, i) => { if (Math.abs(x - value) < Math.abs(grid[best] - value)) best = i; });
    return best;
  }

  document.addEventListener("input", (event) => {
    const figure = event.target.closest?.("figure[data-name]");
    const one = figure && byName.get(figure.dataset.name);
    if (!one) return;
    const bound = event.target.dataset.bound, other = bound === "min" ? "max" : "min";
    const value = Number(event.target.value);
    one.now[bound] = one.now[other] === one.off[other] ? value : bound === "min" ? Math.min(value, one.now.max) : Math.max(value, one.now.min);
    show();
  });
  document.getElementById("reset").addEventListener("click", () => {
    for (const one of data.statistics) one.now = { ...one.base };
    show();
  });
  document.getElementById("copy").addEventListener("click", async (event) => {
    getSelection().selectAllChildren(command);
    try { await navigator.clipboard.writeText(command.textContent); } catch { document.execCommand("copy"); }
    event.target.textContent = say("copied");
    setTimeout(() => { event.target.textContent = say("copy"); }, 1500);
  });
  window.addEventListener("hashchange", () => { if (location.hash.startsWith("#filter.")) read(); });
  document.documentElement.classList.add("js");
  read();
})();
