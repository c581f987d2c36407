// Resizing as Pillow does it: two passes with antialiasing, weights as integers with 22 bits behind the point, each pass rounded
// to 8 bits. The same bytes come out. Only the part of the result that is asked for is computed.

const BITS = 22;

const FILTERS = {
  bilinear: { support: 1, weight: x => Math.max(0, 1 - Math.abs(x)) },
  bicubic: {
    support: 2,
    weight: signed => {
      const a = -0.5, x = Math.abs(signed);
      if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
      return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
    },
  },
};

/** For output pixels `from` to `to` of `size`: the first input pixel that each is made of, how many, and their weights. */
function weightsOf(length, size, filter, from, to) {
  const scale = length / size, wide = Math.max(scale, 1), support = filter.support * wide;
  const most = Math.ceil(support) * 2 + 1;
  const first = new Int32Array(to - from), count = new Int32Array(to - from), weights = new Int32Array((to - from) * most);
  for (let i = 0; i < to - from; i++) {
    const centre = (i + from + 0.5) * scale;
    const start = Math.max(Math.trunc(centre - support + 0.5), 0);
    const n = Math.min(Math.trunc(centre + support + 0.5), length) - start;
    const exact = Array.from({ length: n }, (_, x) => filter.weight((x + start - centre + 0.5) * (1 / wide)));
    const total = exact.reduce((sum, w) => sum + w, 0);
    exact.forEach((w, x) => {
      const share = (total === 0 ? w : w / total) * 2 ** BITS;
      weights[i * most + x] = Math.trunc(share < 0 ? share - 0.5 : share + 0.5);
    });
    first[i] = start;
    count[i] = n;
  }
  return { first, count, weights, most };
}

const clipped = sum => Math.min(Math.max(sum >> BITS, 0), 255);

/**
 * A part of a resized picture.
 *
 * pixels    bytes, `step` for each pixel, of which the first three are its colours
 * target    [width, height] of the whole resized picture
 * part      [left, top, width, height] of the part of it that is returned: bytes, three for each pixel
 */
function resized(pixels, width, height, step, target, part, interpolation) {
  const [left, top, wide, high] = part, filter = FILTERS[interpolation];
  const across = target[0] === width ? null : weightsOf(width, target[0], filter, left, left + wide);
  const down = target[1] === height ? null : weightsOf(height, target[1], filter, top, top + high);
  const begin = down ? down.first[0] : top, end = down ? down.first[high - 1] + down.count[high - 1] : top + high;
  const rows = new Uint8Array((end - begin) * wide * 3);
  for (let y = begin, to = 0; y < end; y++) {
    for (let x = 0; x < wide; x++, to += 3) {
      if (!across) {
        const at = (y * width + x + left) * step;
        for (let c = 0; c < 3; c++) rows[to + c] = pixels[at + c];
        continue;
      }
      let r = 1 << (BITS - 1), g = r, b = r;
      for (let k = 0, at = (y * width + across.first[x]) * step; k < across.count[x]; k++, at += step) {
        const w = across.weights[x * across.most + k];
        r += pixels[at] * w;
        g += pixels[at + 1] * w;
        b += pixels[at + 2] * w;
      }
      rows[to] = clipped(r);
      rows[to + 1] = clipped(g);
      rows[to + 2] = clipped(b);
    }
  }
  if (!down) return rows;
  const found = new Uint8Array(high * wide * 3), line = wide * 3;
  for (let y = 0; y < high; y++) {
    for (let x = 0; x < line; x++) {
      let sum = 1 << (BITS - 1);
      for (let k = 0, at = (down.first[y] - begin) * line + x; k < down.count[y]; k++, at += line) {
        sum += rows[at] * down.weights[y * down.most + k];
      }
      found[y * line + x] = clipped(sum);
    }
  }
  return found;
}
