// The approvals queue, live and by keyboard. Everything here also works without it: pages are made on the server, and
// every act is a form. Nothing from a tool is parsed as markup: new pages come from the server, escaped there.
"use strict";

(() => {
  const queue = () => document.getElementById("queue");
  const items = () => [...document.querySelectorAll("#queue .ask")];
  const say = (text) => {
    const place = document.getElementById("said");
    if (place) place.textContent = text;
  };

  // ── by keyboard: j and k move, a approves, d denies, o opens what is selected ──

  const selected = () => document.activeElement?.closest?.("#queue .ask") ?? null;

  const move = (by) => {
    const all = items();
    if (!all.length) return;
    const at = all.indexOf(selected());
    const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
    all[next].focus();
  };

  // Only what has been on the screen for a moment is decided by one key: a queue that just moved, or a key held down,
  // must not decide anything.
  const SEEN_MS = 600;
  const since = new Map();
  const noteSeen = () => {
    const now = performance.now();
    for (const item of items()) if (!since.has(item.id)) since.set(item.id, now);
  };

  const act = (kind) => {
    const item = selected();
    if (!item) return say("Nothing is selected: press j.");
    if (performance.now() - (since.get(item.id) ?? Infinity) < SEEN_MS) return say("It just came; look at it first.");
    const form = item.querySelector(`form[data-act="${kind}"]`);
    if (!form) return say("Not from here: press o to open all of it.");
    form.requestSubmit();
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
    if (event.target.closest?.("input, textarea, select, [contenteditable]")) return;
    if (!queue()) return;
    const does = {
      j: () => move(1),
      k: () => move(-1),
      a: () => act("approve"),
      d: () => act("deny"),
      o: () => selected()?.querySelector("a[data-open]")?.click(),
    }[event.key];
    if (does) {
      event.preventDefault();
      does();
    }
  });

  // ── live: an event only says that something changed; what is shown comes from the server ──

  const refresh = async () => {
    const before = items().length;
    const focused = selected()?.id;
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const part = fresh.getElementById("queue");
    if (!part || !queue()) return;
    queue().replaceWith(document.importNode(part, true));
    const badge = fresh.getElementById("waiting-count");
    const shown = document.getElementById("waiting-count");
    if (badge && shown) shown.replaceWith(document.importNode(badge, true));
    if (focused) document.getElementById(focused)?.focus();
    noteSeen();
    const count = items().length;
    if (count !== before) say(`${count} waiting`);
  };

  const live = document.getElementById("live");
  if (queue() && live) {
    noteSeen();
    let due = null;
    const later = () => {
      if (due) return;
      due = setTimeout(() => {
        due = null;
        refresh().catch(() => say("The queue could not be read again; reload the page."));
      }, 150);
    };
    const source = new EventSource(live.dataset.events);
    source.addEventListener("open", () => { live.textContent = "Live"; });
    source.addEventListener("error", () => { live.textContent = "Not connected; trying again"; });
    source.addEventListener("approval", later);
    source.addEventListener("closed", () => {
      source.close();
      live.textContent = "Not connected";
      say("Your session has ended; log in again.");
    });
    addEventListener("pagehide", () => source.close());
  }

  // ── a second look before what cannot be taken back ──

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset?.ask;
    if (question && !confirm(question)) event.preventDefault();
  });
})();
