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

/**
 * For output pixels `from` to `to` of `size`: the first input pixel that each is made of, how many, and their weights. Where
 * nothing is resized, each is itself.
 */
function weightsOf(length, size, filter, from, to) {
  if (length === size) {
    const n = to - from;
    return { first: Int32Array.from({ length: n }, (_, i) => i + from), count: new Int32Array(n).fill(1), weights: new Int32Array(n).fill(2 ** BITS), most: 1 };
  }
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

/**
 * One pass: every output pixel of a line is a sum over the pixels of that line.
 *
 * stride, across    bytes from a pixel to the next in its line, and from a line to the next
 * from, to          which lines
 * shift             the place in a line of the first pixel that `pixels` holds
 * out               [bytes from an output pixel to the next in its line, from a line to the next]
 */
function pass(pixels, stride, across, from, to, { first, count, weights, most }, shift, out) {
  const found = new Uint8ClampedArray(first.length * (to - from) * 3), half = 1 << (BITS - 1);
  for (let line = from; line < to; line++) {
    for (let i = 0; i < first.length; i++) {
      let r = half, g = half, b = half, at = line * across + (first[i] - shift) * stride;
      for (let k = i * most, end = k + count[i]; k < end; k++, at += stride) {
        r += pixels[at] * weights[k];
        g += pixels[at + 1] * weights[k];
        b += pixels[at + 2] * weights[k];
      }
      const place = i * out[0] + (line - from) * out[1];
      found[place] = r >> BITS;
      found[place + 1] = g >> BITS;
      found[place + 2] = b >> BITS;
    }
  }
  return found;
}

/**
 * A part of a resized picture.
 *
 * pixels       bytes, `step` for each pixel, of which the first three are its colours
 * target       [width, height] of the whole resized picture
 * part         [left, top, width, height] of the part of it that is returned: bytes, three for each pixel
 * tallFirst    whether a picture that loses much more height than width is resized in height first: Pillow does so since 13
 */
function resized(pixels, width, height, step, target, part, interpolation, tallFirst) {
  const [left, top, wide, high] = part, filter = FILTERS[interpolation];
  const x = weightsOf(width, target[0], filter, left, left + wide), y = weightsOf(height, target[1], filter, top, top + high);
  const lost = height - target[1];
  if (tallFirst && lost > 0 && lost > 2 * (width - target[0])) {
    const begin = x.first[0], end = x.first[wide - 1] + x.count[wide - 1], line = 3 * (end - begin);
    const low = pass(pixels, width * step, step, begin, end, y, 0, [line, 3]);
    return pass(low, 3, line, 0, high, x, begin, [3, 3 * wide]);
  }
  const begin = y.first[0], end = y.first[high - 1] + y.count[high - 1];
  const narrow = pass(pixels, step, width * step, begin, end, x, 0, [3, 3 * wide]);
  return pass(narrow, 3 * wide, 3, 0, wide, y, begin, [3 * wide, 3]);
}
