// Puts what changes on the page in place every few seconds. Without this
// script the page is the same, and is read anew by hand.
"use strict";
(() => {
  const every = 3000;
  const note = document.getElementById("fresh");
  async function refresh() {
    if (document.hidden) return;
    const live = document.getElementById("live");
    // Whoever is about to follow a link or reads a table keeps what they see.
    if (live.contains(document.activeElement) || String(getSelection())) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const scrolled = [...live.querySelectorAll(".wide")].map((e) => e.scrollLeft);
      live.replaceChildren(...page.getElementById("live").childNodes);
      live.querySelectorAll(".wide").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
      note.textContent = page.getElementById("fresh").textContent;
      note.classList.remove("stale");
    } catch (e) {
      note.textContent = "the broker does not answer; this is old";
      note.classList.add("stale");
    }
  }
  setInterval(refresh, every);
})();
