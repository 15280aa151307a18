// The table of visits: a page of rows at a time, each of which can be looked at in the trace.

class EventTable {
  constructor(root, view) {
    this.root = root;
    this.view = view;
    this.body = root.querySelector("tbody");
    this.select = root.querySelector(".events-state");
    this.page = 0;
    this.select.addEventListener("change", () => { this.page = 0; this.fill(); });
    root.querySelector("[data-do=back]").addEventListener("click", () => this.turn(-1));
    root.querySelector("[data-do=on]").addEventListener("click", () => this.turn(1));
    this.rows = Number(root.dataset.rows);
    this.fill();
  }

  turn(by) {
    this.page = Math.min(Math.max(this.page + by, 0), Math.max(0, Math.ceil(this.found.length / this.rows) - 1));
    this.fill();
  }

  fill() {
    const { visits, packed } = this.view, state = Number(this.select.value);
    this.found = [];
    for (let i = 0; i < visits.count; i++) if (state < 0 || visits.state[i] === state) this.found.push(i);
    const from = this.page * this.rows, shown = this.found.slice(from, from + this.rows);
    this.body.replaceChildren(...shown.map((index) => {
      const row = document.createElement("tr");
      const start = visits.start[index], stop = visits.stop(index), own = visits.state[index];
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = packed.colours[own];
      const label = document.createElement("td");
      label.append(swatch, String(own));
      const cells = [this.long(start), this.long(stop), this.long(stop - start)].map((text) => {
        const cell = document.createElement("td");
        cell.textContent = text;
        return cell;
      });
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "show";
      button.setAttribute("aria-label", `show the visit at ${cells[0].textContent} in the trace`);
      button.addEventListener("click", () => {
        this.view.visit(index);
        this.view.root.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
      });
      const last = document.createElement("td");
      last.append(button);
      row.append(label, ...cells, last);
      return row;
    }));
    this.root.querySelector(".events-place").textContent = this.found.length
      ? `${(from + 1).toLocaleString("en")} to ${(from + shown.length).toLocaleString("en")} of ${this.found.length.toLocaleString("en")}` : "none";
  }

  long(samples) {
    const { factor, unit } = this.view.unit(samples);
    return unit ? `${Number((samples * factor).toPrecision(7)).toLocaleString("en", { maximumFractionDigits: 4 })} ${unit}` : samples.toLocaleString("en");
  }
}

(() => {
  const stored = document.getElementById("recording");
  const root = document.querySelector(".trace");
  if (!stored || !root) return;
  root.trace = new TraceView(root, JSON.parse(stored.textContent));
  const table = document.querySelector(".events");
  if (table) table.events = new EventTable(table, root.trace);
  root.dataset.ready = "yes";
})();
