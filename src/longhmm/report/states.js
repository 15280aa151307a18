// What a reader says about states and visits: names, states taken for one, visits accepted or rejected. Kept by the
// browser between two looks at the same page, where it allows that.

class States {
  constructor(packed, key) {
    this.colours = packed.colours;
    this.key = key;
    this.names = this.colours.map(() => "");
    this.into = this.colours.map((_, state) => state);
    this.decisions = new Map();  // from the first sample of a visit to "accepted" or "rejected"
    this.heard = [];
    try {
      const kept = JSON.parse(localStorage.getItem(key));
      if (kept && kept.names.length === this.names.length) {
        this.names = kept.names.map(String);
        this.into = kept.into.map((each, state) => (this.colours[each] ? each : state));
        this.decisions = new Map(kept.decisions);
      }
    } catch (error) { /* a page without a memory works like any other */ }
  }

  of(state) { return this.into[state]; }

  name(state) { return this.names[this.of(state)] || `state ${this.of(state)}`; }

  colour(state) { return this.colours[this.of(state)]; }

  // The states that are left, each with those that were merged into it.
  groups() { return this.into.map((into, state) => (into === state ? state : -1)).filter((state) => state >= 0); }

  rename(state, text) {
    this.names[state] = text.trim().slice(0, 60);
    this.changed();
  }

  // Take a state, and all that were merged into it, for another; for itself again where both are the same.
  merge(state, other) {
    if (state === other) this.into[state] = state;
    else this.into = this.into.map((each) => (each === state ? this.of(other) : each));
    this.changed();
  }

  decide(start, decision) {
    if (this.decisions.get(start) === decision) this.decisions.delete(start);
    else this.decisions.set(start, decision);
    this.changed();
  }

  decision(start) { return this.decisions.get(start) || ""; }

  changed() {
    try {
      const kept = { names: this.names, into: this.into, decisions: [...this.decisions] };
      localStorage.setItem(this.key, JSON.stringify(kept));
    } catch (error) { /* see above */ }
    for (const each of this.heard) each();
  }

  // Write names where the page shows states: tables, legends, lists to choose from.
  label(root) {
    for (const each of root.querySelectorAll("[data-state]")) {
      const state = Number(each.dataset.state), merged = this.of(state) !== state;
      each.textContent = this.names[state] && !merged ? `${state} ${this.names[state]}` : String(state) + (merged ? ` (as ${this.of(state)})` : "");
    }
    for (const swatch of root.querySelectorAll(".swatch[data-colour]")) {
      swatch.style.background = this.colour(Number(swatch.dataset.colour));
    }
    for (const select of root.querySelectorAll(".trace-state, .events-state")) {
      for (const option of select.options) {
        const state = Number(option.value);
        if (state < 0) continue;
        option.hidden = option.disabled = this.of(state) !== state;
        option.textContent = this.name(state);
      }
      if (select.selectedOptions[0] && select.selectedOptions[0].disabled) select.value = String(this.of(Number(select.value)));
    }
  }
}

// One row per state: a field for its name, and a list of the states it may be taken for.
function namingPanel(root, states) {
  const rows = states.colours.map((_, state) => {
    const row = document.createElement("div"), label = document.createElement("span");
    const field = document.createElement("input"), choose = document.createElement("select");
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.dataset.colour = String(state);
    label.append(swatch, `state ${state}`);
    field.type = "text";
    field.maxLength = 60;
    field.placeholder = "name";
    field.value = states.names[state];
    field.setAttribute("aria-label", `name of state ${state}`);
    field.addEventListener("change", () => states.rename(state, field.value));
    choose.setAttribute("aria-label", `take state ${state} for`);
    for (let other = 0; other < states.colours.length; other++) {
      choose.add(new Option(other === state ? "on its own" : `same as ${other}`, String(other)));
    }
    choose.addEventListener("change", () => states.merge(state, Number(choose.value)));
    states.heard.push(() => { choose.value = String(states.of(state)); });
    choose.value = String(states.of(state));
    row.append(label, field, choose);
    return row;
  });
  root.append(...rows);
}
