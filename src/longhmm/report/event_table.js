// The table of visits: a page of rows at a time, each of which can be looked at in the trace, accepted or rejected. What
// the lists above it choose is what is shown, and what is downloaded.

class EventTable {
  constructor(root, view) {
    this.root = root;
    this.view = view;
    this.body = root.querySelector("tbody");
    this.select = root.querySelector(".events-state");
    this.kept = root.querySelector(".events-kept");
    this.page = 0;
    for (const each of [this.select, this.kept]) each.addEventListener("change", () => { this.page = 0; this.fill(); });
    root.querySelector("[data-do=back]").addEventListener("click", () => this.turn(-1));
    root.querySelector("[data-do=on]").addEventListener("click", () => this.turn(1));
    root.querySelector("[data-do=download]").addEventListener("click", () => this.download());
    this.rows = Number(root.dataset.rows);
    view.states.heard.push(() => this.fill());
    this.fill();
  }

  turn(by) {
    this.page = Math.min(Math.max(this.page + by, 0), Math.max(0, Math.ceil(this.found.length / this.rows) - 1));
    this.fill();
  }

  fill() {
    const { visits, states } = this.view, state = Number(this.select.value), kept = this.kept.value;
    this.found = [];
    for (let i = 0; i < visits.count; i++) {
      if (state >= 0 && visits.state[i] !== state) continue;
      if (kept !== "any" && (states.decision(visits.start[i]) || "undecided") !== kept) continue;
      this.found.push(i);
    }
    this.page = Math.min(this.page, Math.max(0, Math.ceil(this.found.length / this.rows) - 1));
    const from = this.page * this.rows, shown = this.found.slice(from, from + this.rows);
    this.body.replaceChildren(...shown.map((index) => this.row(index)));
    this.root.querySelector(".events-place").textContent = this.found.length
      ? `${(from + 1).toLocaleString("en")} to ${(from + shown.length).toLocaleString("en")} of ${this.found.length.toLocaleString("en")}` : "none";
  }

  row(index) {
    const { visits, states } = this.view, row = document.createElement("tr");
    const start = visits.start[index], stop = visits.stop(index), own = visits.state[index];
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.style.background = states.colour(own);
    const label = document.createElement("td");
    label.append(swatch, states.names[own] || String(own));
    const cells = [this.long(start), this.long(stop), this.long(stop - start)].map((text) => {
      const cell = document.createElement("td");
      cell.textContent = text;
      return cell;
    });
    const last = document.createElement("td");
    const button = (text, name, deed) => {
      const found = document.createElement("button");
      found.type = "button";
      found.textContent = text;
      found.setAttribute("aria-label", `${name} the visit at ${cells[0].textContent}`);
      found.addEventListener("click", deed);
      last.append(found);
      return found;
    };
    button("show", "show in the trace", () => {
      this.view.visit(index);
      this.view.root.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    });
    for (const [sign, name, decision] of [["✓", "accept", "accepted"], ["✗", "reject", "rejected"]]) {
      const found = button(sign, name, () => states.decide(start, decision));
      found.setAttribute("aria-pressed", String(states.decision(start) === decision));
    }
    row.className = states.decision(start);
    last.className = "deeds";
    row.append(label, ...cells, last);
    return row;
  }

  long(samples) {
    if (!samples) return "0";
    const { factor, unit } = this.view.unit(samples);
    return unit ? `${Number((samples * factor).toPrecision(7)).toLocaleString("en", { maximumFractionDigits: 4 })} ${unit}` : samples.toLocaleString("en");
  }

  // The visits that are listed as CSV, with the columns of posterior.events and what the reader said of them.
  csv() {
    const { visits, states, packed } = this.view, every = packed.every;
    const begins = [0, ...packed.ends];
    const head = ["sequence", "start", "end", ...(packed.rate ? ["start_s", "end_s"] : []), "state", "level", "name", "decision"];
    const lines = [head.join(",")];
    let sequence = 0;
    for (const index of this.found) {
      const start = visits.start[index], stop = visits.stop(index), state = visits.state[index];
      while (sequence + 1 < begins.length && begins[sequence + 1] <= start) sequence += 1;
      const a = start - begins[sequence], b = stop - begins[sequence];
      const seconds = packed.rate ? [a, b].map((each) => Number((each / packed.rate).toPrecision(10))) : [];
      const level = packed.event_levels[state];
      lines.push([sequence, a * every, b * every, ...seconds, state, level === null ? "" : Number(level.toPrecision(10)), quoted(states.names[state]), states.decision(start)].join(","));
    }
    return `${lines.join("\n")}\n`;
  }

  download() {
    const address = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" })), link = document.createElement("a");
    link.href = address;
    link.download = this.root.dataset.file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }
}

// A field of a CSV; what a table calculator would take for a formula begins with an apostrophe.
function quoted(text) {
  const safe = /^[=+\-@]/.test(text) ? `'${text}` : text;
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
