"use strict";
// The recording as the page holds it: layers of bins at one resolution each, and ever coarser copies made from them.

function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array };

function arrayOf(packed) {
  const bytes = bytesOf(packed.data);
  return new KINDS[packed.kind](bytes.buffer, 0, bytes.length / KINDS[packed.kind].BYTES_PER_ELEMENT);
}

const MERGE = {
  low: (a, b) => (a < b ? a : b),
  high: (a, b) => (a > b ? a : b),
  mask: (a, b) => a | b,
};

// One quantity over time, e.g. the smallest value of every bin, with its coarser copies.
class Layer {
  constructor(role, array, start, step) {
    this.role = role;
    this.start = start;
    this.levels = [{ step, array }];
  }

  build() {
    const merge = MERGE[this.role];
    let { step, array } = this.levels[0];
    while (array.length > 1024) {
      const size = Math.ceil(array.length / 4);
      const next = this.role === "share" ? new Float32Array(size) : new array.constructor(size);
      for (let i = 0; i < size; i++) {
        const end = Math.min(4 * i + 4, array.length);
        let value = array[4 * i];
        for (let j = 4 * i + 1; j < end; j++) value = merge ? merge(value, array[j]) : value + array[j];
        next[i] = merge ? value : value / (end - 4 * i);
      }
      step *= 4;
      array = next;
      this.levels.push({ step, array });
    }
    return this;
  }

  get step() { return this.levels[0].step; }

  // The coarsest copy that still has at least one bin for `width` samples.
  level(width) {
    let found = this.levels[0];
    for (const each of this.levels) if (each.step <= width) found = each;
    return found;
  }

  // One value for each of `count` equal stretches between the samples a and b.
  columns(a, b, count) {
    const width = (b - a) / count;
    const { step, array } = this.level(width);
    const merge = MERGE[this.role];
    const out = new Float64Array(count).fill(NaN);
    for (let i = 0; i < count; i++) {
      const first = Math.floor((a + i * width - this.start) / step);
      const last = Math.max(first + 1, Math.ceil((a + (i + 1) * width - this.start) / step));
      let value = NaN, seen = 0;
      for (let j = Math.max(first, 0); j < last && j < array.length; j++) {
        if (seen === 0) value = array[j];
        else value = merge ? merge(value, array[j]) : value + array[j];
        seen += 1;
      }
      out[i] = merge || seen === 0 ? value : value / seen;
    }
    return out;
  }
}

// All layers of one stretch: the whole recording, or a closer look that a server sent.
class Stretch {
  constructor(packed) {
    this.start = packed.start;
    this.stop = packed.stop;
    this.features = packed.features.map((each) => ({
      low: new Layer("low", arrayOf(each.low), packed.start, packed.step).build(),
      high: new Layer("high", arrayOf(each.high || each.low), packed.start, packed.step).build(),
    }));
    this.step = packed.step;
    this.masks = packed.masks.map((each) => new Layer("mask", arrayOf(each), packed.start, packed.mask_step).build());
    this.shares = packed.shares.map((each) => new Layer("share", arrayOf(each), packed.start, packed.share_step).build());
  }

  covers(a, b) { return this.start <= a && b <= this.stop; }

  // Which states occur in each of `count` stretches: a function of state and column.
  visits(a, b, count) {
    const planes = this.masks.map((mask) => mask.columns(a, b, count));
    return (state, column) => ((planes[state >> 3] ? planes[state >> 3][column] : 0) >> (state & 7)) & 1;
  }
}

// The visits to states, in order of time.
class Visits {
  constructor(packed, length) {
    this.start = arrayOf(packed.start);
    this.state = arrayOf(packed.state);
    this.count = this.start.length;
    this.complete = packed.complete;
    this.end = packed.complete ? length : packed.end;
  }

  // The visits of states that are taken for others: neighbours of one state are one visit, except where a sequence ends.
  merged(states, ends) {
    if (states.into.every((into, state) => into === state)) return this;
    const cut = new Set(ends), start = [], state = [];
    for (let i = 0; i < this.count; i++) {
      const own = states.of(this.state[i]);
      if (state.length && state[state.length - 1] === own && !cut.has(this.start[i])) continue;
      start.push(this.start[i]);
      state.push(own);
    }
    return Object.assign(Object.create(Visits.prototype), this, { start, state, count: start.length });
  }

  stop(i) { return i + 1 < this.count ? this.start[i + 1] : this.end; }

  // The first visit that begins after a sample.
  after(sample) {
    let low = 0, high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[middle] <= sample) low = middle + 1; else high = middle;
    }
    return low;
  }

  // The next or previous visit to a state (or to any), seen from a sample; -1 if there is none.
  seek(sample, direction, state) {
    let i = direction > 0 ? this.after(sample) : this.after(sample - 1) - 1;
    for (; i >= 0 && i < this.count; i += direction) if (state < 0 || this.state[i] === state) return i;
    return -1;
  }
}
