// Drawing and moving: one canvas with the trace and the probabilities of states, one with the whole recording.

class TraceView {
  constructor(root, packed) {
    this.root = root;
    this.packed = packed;
    this.length = packed.length;
    this.whole = new Stretch(packed.stretch);
    this.close = null;
    this.visits = new Visits(packed.visits, packed.length);
    this.a = 0;
    this.b = packed.length;
    this.fit = false;
    this.main = root.querySelector(".trace-main");
    this.strip = root.querySelector(".trace-strip");
    this.status = root.querySelector(".trace-status");
    this.readout = root.querySelector(".trace-readout");
    this.pointers = new Map();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.main);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.draw();
  }

  // -- moving ------------------------------------------------------------------------------------------------------

  show(a, b) {
    const least = Math.min(20, this.length);
    let width = Math.min(Math.max(b - a, least), this.length);
    const middle = (a + b) / 2;
    this.a = Math.min(Math.max(middle - width / 2, 0), this.length - width);
    this.b = this.a + width;
    this.schedule();
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
    };
    for (const button of this.root.querySelectorAll("button[data-do]")) {
      button.addEventListener("click", deeds[button.dataset.do]);
    }
    this.root.querySelector(".trace-fit").addEventListener("change", (event) => { this.fit = event.target.checked; this.schedule(); });
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
    return { ink: get("--ink"), soft: get("--soft"), line: get("--line"), trace: get("--trace"), view: get("--accent") };
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
    const tracks = source.features.length, band = source.shares.length ? 56 : 0, foot = 22;
    const tall = (height - foot - band - 8 * tracks) / tracks;
    const shown = { step: source.step, samples, columns: [] };
    for (let i = 0; i < tracks; i++) {
      shown.columns.push(this.track(pen, source, i, { left, count, top: 4 + i * (tall + 8), tall }, hue));
    }
    if (band) this.band(pen, source, { left, count, top: height - foot - band, tall: band - 6 });
    this.ends(pen, left, count, height - foot, hue);
    this.axis(pen, left, count, height - foot, hue);
    this.overview(hue);
    this.shown = shown;
    Object.assign(this.root.dataset, { start: Math.round(this.a), stop: Math.round(this.b), step: source.step });
    const each = Math.max(source.step, 1);
    const detail = samples <= 1 && each === 1 ? "every sample" : `${Math.max(each, Math.round(samples)).toLocaleString("en")} samples per point`;
    this.status.textContent = `${this.time(this.a, this.b - this.a)} to ${this.time(this.b, this.b - this.a)}, ${detail}`;
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
      pen.fillStyle = plane < 0 ? hue.soft : this.packed.colours[8 * plane + Math.round(Math.log2(masks[plane][t - low.start]))];
      pen.beginPath();
      pen.arc(x(t), y(value(code)), size, 0, 7);
      pen.fill();
    }
  }

  // The level of every state that a column visits: the idealised trace.
  levels(pen, source, i, y, box) {
    if (!source.masks.length) return;
    const visited = source.visits(this.a, this.b, box.count);
    this.packed.levels.forEach((levels, state) => {
      if (levels[i] === undefined || levels[i] === null) return;
      pen.fillStyle = this.packed.colours[state];
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
        pen.fillStyle = this.packed.colours[k];
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

  // Where one sequence ends and the next begins.
  ends(pen, left, count, tall, hue) {
    const inside = this.packed.ends.filter((end) => this.a < end && end < this.b);
    if (!inside.length || inside.length > 200) return;
    pen.strokeStyle = hue.ink;
    pen.setLineDash([3, 3]);
    pen.beginPath();
    for (const end of inside) {
      const x = left + ((end - this.a) / (this.b - this.a)) * count;
      pen.moveTo(x, 0);
      pen.lineTo(x, tall);
    }
    pen.stroke();
    pen.setLineDash([]);
  }

  axis(pen, left, count, top, hue) {
    pen.fillStyle = hue.soft;
    pen.textBaseline = "top";
    const { factor, unit } = this.unit(this.b - this.a);
    const from = this.a * factor, to = this.b * factor;
    const found = ticks(from, to, count / 110);
    const digits = found.length > 1 ? Math.max(0, Math.ceil(-Math.log10(found[1] - found[0]) - 1e-9)) : 0;
    for (const tick of found) {
      const x = left + ((tick - from) / (to - from)) * count;
      pen.fillRect(x, top, 1, 5);
      const text = tick.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + (unit ? ` ${unit}` : "");
      const half = pen.measureText(text).width / 2;
      pen.textAlign = x - half < left ? "left" : x + half > left + count ? "right" : "center";
      pen.fillText(text, x, top + 8);
    }
  }

  overview(hue) {
    const { pen, width, height } = this.prepare(this.strip);
    const left = this.left(), count = Math.max(Math.floor(width - left), 1), { low, high } = this.whole.features[0];
    const [bottom, top] = this.packed.features[0].view, value = this.scale(0);
    const y = (v) => Math.max(0, Math.min(height, height * (1 - (v - bottom) / (top - bottom))));
    const lows = low.columns(0, this.length, count), highs = high.columns(0, this.length, count);
    pen.fillStyle = hue.trace;
    for (let c = 0; c < count; c++) {
      if (lows[c] <= highs[c]) pen.fillRect(left + c, y(value(highs[c])), 1, Math.max(1, y(value(lows[c])) - y(value(highs[c]))));
    }
    const from = left + (this.a / this.length) * count, wide = Math.max(((this.b - this.a) / this.length) * count, 3);
    pen.fillStyle = hue.view;
    pen.globalAlpha = 0.22;
    pen.fillRect(from, 0, wide, height);
    pen.globalAlpha = 1;
    pen.strokeStyle = hue.view;
    pen.lineWidth = 1.5;
    pen.strokeRect(from + 0.75, 0.75, Math.max(wide - 1.5, 1.5), height - 1.5);
  }

  explain(share) {
    if (share < 0 || share > 1 || !this.shown) { this.readout.textContent = ""; return; }
    const column = Math.min(this.shown.columns[0].low.length - 1, Math.floor(share * this.shown.columns[0].low.length));
    const values = this.shown.columns.map(({ low, high }) => {
      const [a, b] = [low[column], high[column]];
      return a <= b ? (plainNumber(a) === plainNumber(b) ? plainNumber(a) : `${plainNumber(a)} to ${plainNumber(b)}`) : "missing";
    });
    const unit = this.packed.unit ? ` ${this.packed.unit}` : "";
    this.readout.textContent = `${this.time(this.a + share * (this.b - this.a), this.b - this.a)}: ${values.join("; ")}${unit}`;
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

function ticks(from, to, most) {
  const rough = (to - from) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) || power;
  const found = [];
  for (let i = Math.ceil(from / step); i * step <= to + 1e-9 * step; i++) found.push(i * step);
  return found;
}

function plainNumber(value) {
  return Number(value.toPrecision(5)).toLocaleString("en", { maximumSignificantDigits: 5 });
}
