// The only script of the pages of `sparktop serve`: it measures the window, and shows what the server sends.
"use strict";
(() => {
  const root = document.documentElement;
  const main = document.getElementById("main");
  const state = document.getElementById("state");
  const byId = (name) => document.getElementById(name);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const LEAST_FONT = 13.1; // pixels: 120 columns in a window of 1000, 240 in 1920; smaller only where 60 do not fit
  const CALM_MS = 5000; // with reduced motion, rows change this often
  const SILENT_MS = 12000; // without anything for so long, the connection is taken for lost
  let columns = Number(root.dataset.columns);
  let source = null;
  let paused = false;
  let heard = Date.now(); // when the server was heard last
  let tries = 0;
  let retry = 0;
  let rows = [];
  let pending = new Map();
  let flushed = 0;
  let why = "";

  function remember(name, value) {
    document.cookie = `sparktop_${name}=${value}; path=/; max-age=31536000; samesite=strict`;
  }

  // Fonts draw lines and braille with other widths than letters where they take them from another font.
  function measure() {
    const probe = document.createElement("span");
    probe.className = "probe";
    const style = probe.style;
    style.position = "absolute";
    style.visibility = "hidden";
    style.fontSize = "100px";
    style.whiteSpace = "pre";
    document.body.append(probe);
    const width = (text) => {
      probe.textContent = text.repeat(20);
      return probe.getBoundingClientRect().width / 20;
    };
    const cell = width("0");
    const fix = (text) => `${((cell - width(text)) / 100).toFixed(4)}em`;
    root.style.setProperty("--cell", String(cell / 100));
    root.style.setProperty("--box", fix("─"));
    root.style.setProperty("--dots", fix("⣿"));
    probe.remove();
    return cell / 100;
  }

  let cell = measure();

  function wanted() {
    return Math.max(60, Math.floor(main.clientWidth / (LEAST_FONT * cell)));
  }

  function setColumns(number) {
    if (number !== columns) remember("columns", number);
    columns = number;
    main.className = `c${number}`;
  }

  function index() {
    rows = Array.from(main.querySelectorAll(".rows > p"));
    pending.clear();
  }

  function flush() {
    for (const [at, html] of pending) {
      if (rows[at]) rows[at].innerHTML = html;
    }
    pending.clear();
    flushed = Date.now();
  }

  function lines(news) {
    if (news.verdict !== undefined) byId("verdict").innerHTML = news.verdict;
    if (news.totals !== undefined) byId("totals").innerHTML = news.totals;
    if (news.time !== undefined) byId("time").textContent = news.time;
  }

  function showWhole(news) {
    if (news.version !== root.dataset.version) location.reload(); // the server was updated meanwhile
    const focused = document.activeElement;
    const path = focused && main.contains(focused) ? focused.getAttribute("href") : null;
    setColumns(news.columns);
    document.title = news.title;
    main.innerHTML = news.main;
    index();
    lines(news);
    if (path !== null) {
      const same = Array.from(main.querySelectorAll("a")).find((one) => one.getAttribute("href") === path);
      if (same) same.focus({ preventScroll: true });
    }
  }

  function showChange(news) {
    lines(news);
    for (const [at, html] of Object.entries(news.rows || {})) pending.set(Number(at), html);
    if (!calm.matches || Date.now() - flushed >= CALM_MS) flush();
  }

  function hear(show) {
    return (event) => {
      heard = Date.now();
      tries = 0;
      why = "";
      show(JSON.parse(event.data));
      tell();
    };
  }

  function tell() {
    const age = Math.round((Date.now() - heard) / 1000);
    let words = "";
    if (paused) words = `paused, ${age} s old`;
    else if (source === null && !document.hidden) words = `${why || "connection lost"}, ${age} s old; trying again`;
    else if (age > 5) words = `${age} s old`;
    if (state.textContent !== words) state.textContent = words;
    main.classList.toggle("old", words !== "" && !paused);
  }

  function close() {
    if (source !== null) source.close();
    source = null;
  }

  function open() {
    clearTimeout(retry);
    close();
    if (paused || document.hidden) return;
    const chosen = new URLSearchParams(location.search);
    chosen.set("columns", wanted());
    const address = `/live${location.pathname}?${chosen}`;
    source = new EventSource(address);
    source.addEventListener("whole", hear(showWhole));
    source.addEventListener("change", hear(showChange));
    source.onerror = () => lost(address);
    opened = Date.now();
  }

  let opened = Date.now();

  async function lost(address) {
    close();
    tell();
    tries += 1;
    retry = setTimeout(open, Math.min(10000, 500 * 2 ** tries));
    try {
      const answer = await fetch(address, { method: "HEAD", redirect: "error" });
      if (answer.status === 401) location.reload();
      why = answer.status === 503 ? "too many viewers" : "";
    } catch {
      why = "";
    }
    tell();
  }

  function pause() {
    paused = !paused;
    byId("pause").textContent = paused ? "go on" : "pause";
    if (paused) close();
    else open();
    tell();
  }

  let named = 0;

  function nextTheme() {
    const themes = root.dataset.themes.split("\n");
    const link = byId("style");
    const now = decodeURIComponent(new URL(link.href).search.slice(1));
    const next = themes[(themes.indexOf(now) + 1) % themes.length];
    link.href = `/style.css?${encodeURIComponent(next)}`;
    remember("theme", encodeURIComponent(next));
    byId("theme").textContent = next;
    clearTimeout(named);
    named = setTimeout(() => (byId("theme").textContent = "theme"), 2000);
  }

  function step(by) {
    const panels = 'section:not([aria-label="Order"], [aria-label="Lists"])';
    const links = Array.from(main.querySelectorAll(`${panels} a.over`));
    if (!links.length) return;
    const at = links.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : links.length - 1) : (at + by + links.length) % links.length;
    links[next].focus();
  }

  function follow(selector) {
    const link = document.querySelector(selector);
    if (link) location.assign(link.href);
  }

  function jump(label) {
    const section = main.querySelector(`section[aria-label="${label}"]`);
    if (section) section.scrollIntoView();
  }

  const keys = {
    Escape: () => {
      if (location.search) location.assign(location.pathname); // drops filter, order and list
      else if (location.pathname === "/") scrollTo(0, 0);
      else location.assign("/");
    },
    l: () => follow('main a[data-key="l"]'),
    o: () => follow('main a[data-key="o"]'),
    "/": () => byId("filter")?.focus(),
    b: () => follow('nav a[data-key="b"]'),
    e: () => follow('nav a[data-key="e"]'),
    h: () => follow('nav a[data-key="h"]'),
    w: () => location.assign("/why"),
    P: () => follow('main a[href^="/node/"]'),
    c: () => jump("Curves"),
    n: () => jump("Findings"),
    j: () => step(1),
    k: () => step(-1),
    ArrowDown: () => document.activeElement.matches("a.over") && step(1),
    ArrowUp: () => document.activeElement.matches("a.over") && step(-1),
    p: pause,
    t: nextTheme,
    "?": () => byId("keys").showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || byId("keys").open) return;
    if (event.target.matches("input") && event.key !== "Escape") return; // it is typed
    const act = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
    if (act === null) return;
    if (act() !== false) event.preventDefault();
  });
  // On the board, a tap anywhere on a panel opens it: its upper edge is low on a phone.
  main.addEventListener("click", (event) => {
    const section = event.target.closest("section");
    if (!section || event.target.closest("a") || location.pathname !== "/" || !getSelection().isCollapsed) return;
    const link = section.querySelector("a.over.x0.y0");
    if (link) location.assign(link.href);
  });
  document.addEventListener("visibilitychange", open);
  let resized = 0;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => {
      cell = measure();
      open();
    }, 300);
  });
  for (const [name, act] of [["pause", pause], ["theme", nextTheme], ["help", keys["?"]]]) {
    byId(name).hidden = false;
    byId(name).addEventListener("click", act);
  }
  setInterval(() => {
    tell();
    if (pending.size && Date.now() - flushed >= CALM_MS) flush();
    if (source !== null && Date.now() - Math.max(heard, opened) > SILENT_MS) open();
  }, 1000);
  index();
  open();
})();
