// Everything on the page that moves: each recording with its trace, its table of visits and its names of states.

(() => {
  const views = [];
  for (const root of document.querySelectorAll(".trace")) {
    const stored = document.getElementById(root.dataset.recording);
    if (!stored) continue;
    const packed = JSON.parse(stored.textContent), whole = root.closest(".run") || document;
    const states = new States(packed, `longhmm ${document.title} ${root.dataset.recording} ${packed.length} ${packed.visits.start.data.length}`);
    root.trace = new TraceView(root, packed, states);
    views.push(root.trace);
    const table = whole.querySelector(".events");
    if (table) table.events = new EventTable(table, root.trace);
    const naming = whole.querySelector(".naming");
    if (naming) namingPanel(naming, states);
    const label = () => states.label(whole);
    states.heard.unshift(label);
    label();
  }
  for (const view of views) {
    view.beside = views.filter((other) => other !== view && other.length === view.length);
    view.root.dataset.ready = "yes";
  }
  // On paper nothing can be unfolded.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")].filter((each) => !each.classList.contains("screen"));
    for (const each of folded) each.open = true;
    for (const view of views) view.draw();
  });
  window.addEventListener("afterprint", () => {
    for (const each of folded) each.open = false;
    for (const view of views) view.draw();
  });
})();
