// Drawing and moving: one canvas with the trace and the probabilities of states, one with the whole recording.

class TraceView {
  constructor(root, packed, states) {
    this.root = root;
    this.states = states;
    this.packed = packed;
    this.length = packed.length;
    this.whole = new Stretch(packed.stretch);
    this.close = null;
    this.all = new Visits(packed.visits, packed.length);
    this.visits = this.all.merged(states, packed.ends);
    this.current = -1;
    this.a = 0;
    this.b = packed.length;
    this.fit = false;
    this.withPath = true;
    this.withChances = true;
    this.main = root.querySelector(".trace-main");
    this.strip = root.querySelector(".trace-strip");
    this.status = root.querySelector(".trace-status");
    this.readout = root.querySelector(".trace-readout");
    this.pointers = new Map();
    this.beside = [];  // views of the same recording, which move with this one
    this.listen();
    states.heard.push(() => {
      const at = this.current >= 0 ? this.visits.start[this.current] : -1;
      this.visits = this.all.merged(states, packed.ends);
      this.current = at >= 0 ? this.visits.after(at) - 1 : -1;
      this.schedule();
    });
    new ResizeObserver(() => this.draw()).observe(this.main);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.draw();
  }

  // -- moving ------------------------------------------------------------------------------------------------------

  show(a, b, led = false) {
    const least = Math.min(20, this.length);
    let width = Math.min(Math.max(b - a, least), this.length);
    const middle = (a + b) / 2;
    this.a = Math.min(Math.max(middle - width / 2, 0), this.length - width);
    this.b = this.a + width;
    this.schedule();
    if (!led) for (const each of this.beside) each.show(this.a, this.b, true);
  }

  zoom(factor, share = 0.5) {
    const fixed = this.a + share * (this.b - this.a);
    const width = Math.min(Math.max((this.b - this.a) * factor, Math.min(20, this.length)), this.length);
    const a = fixed - share * width;
    this.show(a, a + width);
  }

  pan(share) {
    const by = share * (this.b - this.a);
    this.show(this.a + by, this.b + by);
  }

  go(direction) {
    const state = Number(this.root.querySelector(".trace-state").value);
    const middle = (this.a + this.b) / 2;
    const from = this.current >= 0 && this.a <= this.visits.start[this.current] && this.visits.start[this.current] < this.b
      ? this.visits.start[this.current] : middle;
    this.visit(this.visits.seek(from, direction, state));
  }

  visit(index) {
    if (index < 0) return;
    this.current = index;
    const start = this.visits.start[index], stop = this.visits.stop(index), long = stop - start;
    let width = this.b - this.a;
    if (long > 0.6 * width || long < 0.02 * width) width = Math.max(6 * long, 120);
    this.show((start + stop - width) / 2, (start + stop + width) / 2);
  }

  // Say of the visit that was last gone to whether it is one.
  decide(decision) {
    if (this.current >= 0) this.states.decide(this.visits.start[this.current], decision);
  }

  listen() {
    const at = (event) => {
      const box = this.main.getBoundingClientRect();
      return (event.clientX - box.left - this.left()) / Math.max(box.width - this.left(), 1);
    };
    this.main.addEventListener("wheel", (event) => {
      // A page that cannot be scrolled past a picture is worse than a picture that asks for a click.
      if (!(event.ctrlKey || event.metaKey || document.activeElement === this.main)) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / 800);
      else this.zoom(Math.exp(Math.max(-80, Math.min(80, event.deltaY)) / 180), at(event));
    }, { passive: false });
    this.main.addEventListener("pointerdown", (event) => {
      this.main.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, at(event));
    });
    this.main.addEventListener("pointermove", (event) => {
      if (!this.pointers.has(event.pointerId)) { this.explain(at(event)); return; }
      const before = [...this.pointers.values()];
      this.pointers.set(event.pointerId, at(event));
      const after = [...this.pointers.values()];
      if (after.length === 1) { this.pan(before[0] - after[0]); return; }
      const [p, q] = before, [r, s] = after;
      const old = Math.abs(p - q), now = Math.max(Math.abs(r - s), 0.01);
      this.zoom(Math.max(0.5, Math.min(2, old / now)), (r + s) / 2);
      this.pan((p + q - r - s) / 2);
    });
    for (const kind of ["pointerup", "pointercancel"]) {
      this.main.addEventListener(kind, (event) => this.pointers.delete(event.pointerId));
    }
    this.main.addEventListener("pointerleave", () => { this.readout.textContent = ""; });
    this.main.addEventListener("dblclick", (event) => this.zoom(0.25, at(event)));
    this.main.addEventListener("keydown", (event) => {
      const moves = {
        ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), "+": () => this.zoom(0.5),
        "=": () => this.zoom(0.5), "-": () => this.zoom(2), Home: () => this.show(0, this.length),
        n: () => this.go(1), p: () => this.go(-1), a: () => this.decide("accepted"), r: () => this.decide("rejected"),
      };
      if (moves[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); moves[event.key](); }
    });
    const jump = (event) => {
      const box = this.strip.getBoundingClientRect();
      const share = (event.clientX - box.left - this.left()) / Math.max(box.width - this.left(), 1);
      const width = this.b - this.a, middle = share * this.length;
      this.show(middle - width / 2, middle + width / 2);
    };
    this.strip.addEventListener("pointerdown", (event) => { this.strip.setPointerCapture(event.pointerId); jump(event); });
    this.strip.addEventListener("pointermove", (event) => { if (event.buttons) jump(event); });
    const deeds = {
      in: () => this.zoom(0.5), out: () => this.zoom(2), left: () => this.pan(-0.5), right: () => this.pan(0.5),
      whole: () => this.show(0, this.length), previous: () => this.go(-1), next: () => this.go(1),
      accept: () => this.decide("accepted"), reject: () => this.decide("rejected"),
    };
    for (const button of this.root.querySelectorAll("button[data-do]")) {
      button.addEventListener("click", deeds[button.dataset.do]);
    }
    for (const [name, what] of [[".trace-fit", "fit"], [".trace-path", "withPath"], [".trace-chances", "withChances"]]) {
      const box = this.root.querySelector(name);
      if (box) box.addEventListener("change", () => { this[what] = box.checked; this.schedule(); });
    }
  }

  schedule() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }

  // -- a closer look, where a server has the record itself ------------------------------------------------------------

  stretch(samples) {
    const close = this.close;
    if (samples < this.whole.step && close && close.covers(this.a, this.b) && close.step < this.whole.step) return close;
    return this.whole;
  }

  ask(samples) {
    if (!this.packed.live || samples >= this.whole.step) return;
    const close = this.close;
    if (close && close.covers(this.a, this.b) && (close.step <= samples || close.step === 1)) return;
    const width = this.b - this.a;
    const start = Math.max(0, Math.floor(this.a - width)), stop = Math.min(this.length, Math.ceil(this.b + width));
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const asked = `envelope?start=${start}&stop=${stop}&bins=${Math.ceil(4 * (stop - start) / samples)}`;
      if (asked === this.asked) return;
      this.asked = asked;
      try {
        const answer = await fetch(asked);
        if (!answer.ok) throw new Error(answer.statusText);
        const found = new Stretch(await answer.json());
        if (this.asked === asked) { this.close = found; this.schedule(); }
      } catch (error) {
        this.asked = null;
        this.status.textContent = "The viewer has been stopped; what is shown comes from the page itself.";
      }
    }, 60);
  }

  // -- drawing -----------------------------------------------------------------------------------------------------

  left() { return 58; }

  colours() {
    const style = getComputedStyle(this.root);
    const get = (name) => style.getPropertyValue(name).trim();
    return { ink: get("--ink"), soft: get("--soft"), line: get("--line"), trace: get("--trace"), view: get("--accent"), panel: get("--panel") };
  }

  prepare(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(canvas.clientWidth, 1), height = Math.max(canvas.clientHeight, 1);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    return { pen, width, height };
  }

  draw() {
    const { pen, width, height } = this.prepare(this.main);
    const left = this.left(), count = Math.max(Math.floor(width - left), 1), samples = (this.b - this.a) / count;
    const hue = this.colours(), source = this.stretch(samples);
    const tracks = source.features.length, band = source.shares.length && this.withChances ? 56 : 0, foot = 22;
    const tall = (height - foot - band - 8 * tracks) / tracks;
    const shown = { step: source.step, samples, columns: [] };
    for (let i = 0; i < tracks; i++) {
      shown.columns.push(this.track(pen, source, i, { left, count, top: 4 + i * (tall + 8), tall }, hue));
    }
    if (band) this.band(pen, source, { left, count, top: height - foot - band, tall: band - 6 });
    this.judged(pen, left, count, height - foot, hue);
    this.ends(pen, left, count, height - foot, hue);
    this.axis(pen, left, count, height - foot, hue);
    this.overview(hue);
    this.shown = shown;
    Object.assign(this.root.dataset, { start: Math.round(this.a), stop: Math.round(this.b), step: source.step });
    const each = Math.max(source.step, 1);
    const detail = samples <= 1 && each === 1 ? "every sample" : `${Math.max(each, Math.round(samples)).toLocaleString("en")} samples per point`;
    const visit = this.current >= 0 ? this.states.decision(this.visits.start[this.current]) : "";
    this.status.textContent = `${this.time(this.a, this.b - this.a)} to ${this.time(this.b, this.b - this.a)}, ${detail}${visit ? `; this visit is ${visit}` : ""}`;
    this.ask(samples);
  }

  scale(i) {
    const { low, high } = this.packed.features[i];
    return (code) => low + (code / 65534) * (high - low);
  }

  track(pen, source, i, box, hue) {
    const value = this.scale(i), { low, high } = source.features[i];
    const lows = low.columns(this.a, this.b, box.count), highs = high.columns(this.a, this.b, box.count);
    let [bottom, top] = this.packed.features[i].view;
    if (this.fit) {
      bottom = Infinity; top = -Infinity;
      for (let c = 0; c < box.count; c++) if (lows[c] <= highs[c]) { bottom = Math.min(bottom, value(lows[c])); top = Math.max(top, value(highs[c])); }
      if (!(bottom < top)) [bottom, top] = this.packed.features[i].view;
      const room = 0.05 * (top - bottom);
      bottom -= room; top += room;
    }
    const y = (v) => box.top + box.tall * (1 - (v - bottom) / (top - bottom));
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.count, box.tall);
    pen.clip();
    const samples = (this.b - this.a) / box.count;
    if (source.step === 1 && samples <= 0.5) this.dots(pen, source, low, value, y, box, hue);
    else {
      pen.fillStyle = hue.trace;
      let before = null;
      for (let c = 0; c < box.count; c++) {
        if (!(lows[c] <= highs[c])) { before = null; continue; }
        let up = y(value(highs[c])), down = y(value(lows[c]));
        const own = [up, down];
        if (before) { up = Math.min(up, before[1]); down = Math.max(down, before[0]); }
        pen.fillRect(box.left + c, up, 1, Math.max(down - up, 1));
        before = own;
      }
    }
    this.levels(pen, source, i, y, box);
    pen.restore();
    pen.fillStyle = hue.soft;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of ticks(bottom, top, box.tall / 40)) {
      pen.fillText(plainNumber(tick), box.left - 6, y(tick));
      pen.globalAlpha = 0.25;
      pen.fillRect(box.left, y(tick), box.count, 0.5);
      pen.globalAlpha = 1;
    }
    this.caption(pen, this.packed.features[i].label, box, hue);
    return { low: Array.from(lows, value), high: Array.from(highs, value), bottom, top };
  }

  dots(pen, source, low, value, y, box, hue) {
    const codes = low.levels[0].array, width = box.count / (this.b - this.a);
    const first = Math.max(Math.floor(this.a) - 1, low.start), last = Math.min(Math.ceil(this.b) + 1, low.start + codes.length);
    const x = (t) => box.left + (t + 0.5 - this.a) * width;
    pen.strokeStyle = hue.trace;
    pen.lineWidth = 1;
    pen.beginPath();
    let down = false;
    for (let t = first; t < last; t++) {
      const code = codes[t - low.start];
      if (code === 65535) { down = false; continue; }
      if (down) pen.lineTo(x(t), y(value(code))); else pen.moveTo(x(t), y(value(code)));
      down = true;
    }
    pen.stroke();
    const size = Math.min(3.5, 0.6 + width / 3);
    const masks = source.masks.map((mask) => (mask.step === 1 ? mask.levels[0].array : null));
    for (let t = first; t < last; t++) {
      const code = codes[t - low.start];
      if (code === 65535) continue;
      const plane = masks.findIndex((mask) => mask && mask[t - low.start]);
      pen.fillStyle = plane < 0 || !this.withPath ? hue.soft : this.states.colour(8 * plane + Math.round(Math.log2(masks[plane][t - low.start])));
      pen.beginPath();
      pen.arc(x(t), y(value(code)), size, 0, 7);
      pen.fill();
    }
  }

  // The level of every state that a column visits: the idealised trace.
  levels(pen, source, i, y, box) {
    if (!source.masks.length || !this.withPath) return;
    const visited = source.visits(this.a, this.b, box.count);
    this.packed.levels.forEach((levels, state) => {
      if (levels[i] === undefined || levels[i] === null) return;
      pen.fillStyle = this.states.colour(state);
      for (let c = 0; c < box.count; c++) if (visited(state, c)) pen.fillRect(box.left + c, y(levels[i]) - 1.25, 1.2, 2.5);
    });
  }

  band(pen, source, box) {
    const shares = source.shares.map((layer) => layer.columns(this.a, this.b, box.count));
    for (let c = 0; c < box.count; c++) {
      let top = box.top;
      let rest = 255;
      for (let k = 0; k < this.packed.colours.length; k++) {
        const own = k < shares.length ? Math.min(shares[k][c], rest) : rest;
        if (!(own > 0)) continue;
        const tall = (own / 255) * box.tall;
        pen.fillStyle = this.states.colour(k);
        pen.fillRect(box.left + c, top, 1.2, tall);
        top += tall;
        rest -= own;
      }
    }
    pen.fillStyle = this.colours().soft;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillText("P(state)", box.left - 6, box.top + box.tall / 2);
  }

  explain(share) {
    if (share < 0 || share > 1 || !this.shown) { this.readout.textContent = ""; return; }
    const column = Math.min(this.shown.columns[0].low.length - 1, Math.floor(share * this.shown.columns[0].low.length));
    const values = this.shown.columns.map(({ low, high }) => {
      const [a, b] = [low[column], high[column]];
      return a <= b ? (plainNumber(a) === plainNumber(b) ? plainNumber(a) : `${plainNumber(a)} to ${plainNumber(b)}`) : "missing";
    });
    const named = values.map((each, i) => (values.length > 1 ? `${this.packed.features[i].name} ${each}` : each));
    const unit = this.packed.unit ? ` ${this.packed.unit}` : "";
    this.readout.textContent = `${this.time(this.a + share * (this.b - this.a), this.b - this.a)}: ${named.join("; ")}${unit}`;
  }

  unit(span) {
    const rate = this.packed.rate;
    if (!rate) return { factor: 1, unit: "" };
    const seconds = span / rate;
    for (const [limit, factor, unit] of [[2e-3, 1e6, "µs"], [2, 1e3, "ms"], [600, 1, "s"], [36000, 1 / 60, "min"]]) {
      if (seconds <= limit) return { factor: factor / rate, unit };
    }
    return { factor: 1 / 3600 / rate, unit: "h" };
  }

  time(sample, span) {
    const { factor, unit } = this.unit(span);
    const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(Math.max(span * factor, 1e-9) / 1000))));
    return unit ? `${(sample * factor).toLocaleString("en", { maximumFractionDigits: digits })} ${unit}` : `sample ${Math.round(sample).toLocaleString("en")}`;
  }
}
