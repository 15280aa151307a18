// Marks on the trace: names of features, ends of sequences, judged visits, the axis of time, the whole recording below.

Object.assign(TraceView.prototype, {
  // Which feature it is, and its unit, on a ground of its own.
  caption(pen, text, box, hue) {
    if (!text) return;
    pen.textAlign = "left";
    pen.textBaseline = "top";
    const wide = Math.min(pen.measureText(text).width, box.count - 12);
    pen.fillStyle = hue.panel;
    pen.globalAlpha = 0.85;
    pen.fillRect(box.left + 3, box.top + 1, wide + 6, 16);
    pen.globalAlpha = 1;
    pen.fillStyle = hue.ink;
    pen.fillText(text, box.left + 6, box.top + 3, wide);
  },

  // Visits that were rejected are veiled, the one that was last gone to is framed.
  judged(pen, left, count, tall, hue) {
    const x = (sample) => left + Math.max(0, Math.min(1, (sample - this.a) / (this.b - this.a))) * count;
    for (let i = Math.max(this.visits.after(this.a) - 1, 0), seen = 0; i < this.visits.count && seen < 5000; i++, seen++) {
      if (this.visits.start[i] > this.b) break;
      const from = x(this.visits.start[i]), wide = Math.max(x(this.visits.stop(i)) - from, 1);
      if (this.states.decision(this.visits.start[i]) === "rejected") {
        pen.fillStyle = hue.panel;
        pen.globalAlpha = 0.75;
        pen.fillRect(from, 0, wide, tall);
        pen.globalAlpha = 1;
      }
      if (i === this.current) {
        pen.strokeStyle = hue.view;
        pen.lineWidth = 1.5;
        pen.strokeRect(from, 1, wide, tall - 2);
      }
    }
  },

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
  },

  axis(pen, left, count, top, hue) {
    pen.fillStyle = hue.soft;
    pen.textBaseline = "top";
    const { factor, unit } = this.unit(this.b - this.a);
    const from = this.a * factor, to = this.b * factor;
    const found = ticks(from, to, count / 110);
    if (!unit) { pen.textAlign = "right"; pen.fillText("sample", left - 6, top + 8); }
    const digits = found.length > 1 ? Math.max(0, Math.ceil(-Math.log10(found[1] - found[0]) - 1e-9)) : 0;
    for (const tick of found) {
      const x = left + ((tick - from) / (to - from)) * count;
      pen.fillRect(x, top, 1, 5);
      const text = tick.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + (unit ? ` ${unit}` : "");
      const half = pen.measureText(text).width / 2;
      pen.textAlign = x - half < left ? "left" : x + half > left + count ? "right" : "center";
      pen.fillText(text, x, top + 8);
    }
  },

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
  },
});

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
