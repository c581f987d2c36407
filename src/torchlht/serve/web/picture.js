// From a picture's file to the network's input, as `lht predict` prepares it. MOST_PIXELS and MOST_ASPECT are in front of it.

// ---- which way up --------------------------------------------------------------------------------------------------

/** Where the orientation of Exif data at `start` is stored: its place, its value and the byte order; null if there is none. */
function orientationIn(view, start, end) {
  if (end - start < 14) return null;
  const little = view.getUint16(start) === 0x4949;
  if (!little && view.getUint16(start) !== 0x4d4d) return null;
  const table = start + view.getUint32(start + 4, little);
  if (table + 2 > end) return null;
  const entries = view.getUint16(table, little);
  for (let i = 0, at = table + 2; i < entries && at + 12 <= end; i++, at += 12) {
    if (view.getUint16(at, little) === 0x0112 && view.getUint16(at + 2, little) === 3) {
      return { at: at + 8, little, value: view.getUint16(at + 8, little) };
    }
  }
  return null;
}

const ascii = (bytes, from, to) => String.fromCharCode(...bytes.subarray(from, to));

/** The blocks of a JPEG, PNG or WebP that may hold Exif or XMP data: [kind, start, end]. */
function* metadataOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), size = bytes.length;
  if (size > 4 && view.getUint16(0) === 0xffd8) {
    for (let at = 2; at + 4 <= size && bytes[at] === 0xff;) {
      if (bytes[at + 1] === 0xff) { at++; continue; }
      if (bytes[at + 1] === 0xda) return;
      const end = at + 2 + view.getUint16(at + 2);
      if (end > size || end < at + 4) return;
      if (bytes[at + 1] === 0xe1 && ascii(bytes, at + 4, at + 10) === "Exif\0\0") yield ["exif", at + 10, end];
      if (bytes[at + 1] === 0xe1 && ascii(bytes, at + 4, at + 33) === "http://ns.adobe.com/xap/1.0/\0") yield ["xmp", at + 33, end];
      at = end;
    }
  } else if (size > 8 && view.getUint32(0) === 0x89504e47) {
    for (let at = 8; at + 12 <= size;) {
      const end = at + 8 + view.getUint32(at);
      if (end > size) return;
      if (ascii(bytes, at + 4, at + 8) === "eXIf") yield ["exif", at + 8, end];
      at = end + 4;
    }
  } else if (size > 12 && ascii(bytes, 0, 4) === "RIFF" && ascii(bytes, 8, 12) === "WEBP") {
    for (let at = 12; at + 8 <= size;) {
      const end = at + 8 + view.getUint32(at + 4, true);
      if (end > size) return;
      const named = ascii(bytes, at + 8, at + 14) === "Exif\0\0" ? 6 : 0;
      if (ascii(bytes, at, at + 4) === "EXIF") yield ["exif", at + 8 + named, end];
      if (ascii(bytes, at, at + 4) === "XMP ") yield ["xmp", at + 8, end];
      at = end + (end & 1);
    }
  }
}

/**
 * The orientation of a picture, 1 to 8, which is then overwritten in `bytes` with 1. Browsers differ in which files they turn;
 * now they turn none, and we do.
 */
function takeOrientation(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let exif = null, xmp = null;
  for (const [kind, start, end] of metadataOf(bytes)) {
    if (kind === "exif" && exif === null) {
      const found = orientationIn(view, start, end);
      if (found) {
        exif = found.value;
        view.setUint16(found.at, 1, found.little);
      }
    } else if (kind === "xmp" && xmp === null) {
      const found = /tiff:Orientation(?:="|>)([0-9])/.exec(new TextDecoder("latin1").decode(bytes.subarray(start, end)));
      xmp = found ? Number(found[1]) : null;
    }
  }
  const value = exif ?? xmp ?? 1;
  return value >= 1 && value <= 8 ? value : 1;
}

/** RGBA pixels turned the right way up: what Pillow's exif_transpose does. */
function turned({ data, width, height }, orientation) {
  if (orientation === 1) return { data, width, height };
  const swap = orientation >= 5, wide = swap ? height : width, high = swap ? width : height;
  const from = new Uint32Array(data.buffer, data.byteOffset, width * height), to = new Uint32Array(width * height);
  const mirrorX = [2, 3, 7, 8].includes(orientation), mirrorY = [3, 4, 6, 7].includes(orientation);
  for (let y = 0; y < high; y++) {
    for (let x = 0; x < wide; x++) {
      const [a, b] = swap ? [y, x] : [x, y];
      to[y * wide + x] = from[(mirrorY ? height - 1 - b : b) * width + (mirrorX ? width - 1 - a : a)];
    }
  }
  return { data: new Uint8ClampedArray(to.buffer), width: wide, height: high };
}

// ---- decoding ------------------------------------------------------------------------------------------------------

/** A picture's pixels, the right way up, transparent parts on white, colours as they are in the file. */
async function decoded(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  const orientation = takeOrientation(bytes);
  let bitmap;
  try {
    bitmap = await createImageBitmap(new Blob([bytes], { type: blob.type }), {
      colorSpaceConversion: "none", premultiplyAlpha: "none",
    });
  } catch {
    throw new Error("this browser cannot read it as a picture");
  }
  try {
    const { width, height } = bitmap;
    if (width * height > MOST_PIXELS) throw new Error(`${width} × ${height} pixels are too many`);
    if (Math.max(width, height) > MOST_ASPECT * Math.min(width, height)) throw new Error("it is too long for its width");
    return turned(pixelsOf(bitmap, width, height), orientation);
  } finally {
    bitmap.close();
  }
}

function pixelsOf(drawable, width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { alpha: false, willReadFrequently: true, colorSpace: "srgb" });
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(drawable, 0, 0);
  try {
    return context.getImageData(0, 0, width, height);
  } catch {
    throw new Error(`${width} × ${height} pixels are too many for this browser`);
  }
}

// ---- preparing -----------------------------------------------------------------------------------------------------

/** Python's round: halves go to the even number. */
function roundEven(x) {
  const low = Math.floor(x);
  return x - low === 0.5 ? low + (low & 1) : Math.round(x);
}

/** The size of the resized picture, and the part of it that the network sees. */
function framing(width, height, spec) {
  const scale = spec.resize / Math.min(width, height);
  const target = spec.stretch
    ? [spec.resize, spec.resize]
    : [width, height].map(side => Math.max(roundEven(side * scale), spec.size));
  if (target[0] * target[1] > MOST_PIXELS) throw new Error("it has too many pixels after resizing");
  const [left, top] = target.map(side => Math.floor((side - spec.size) / 2));
  return { target, part: [left, top, spec.size, spec.size] };
}

/** Bytes (size, size, 3) of the part of a picture that the network sees. */
function seen(image, spec) {
  const { target, part } = framing(image.width, image.height, spec);
  return resized(image.data, image.width, image.height, 4, target, part, spec.interpolation, spec.tall_first);
}

/** Bytes (size, size, 3) standardised to float32 (3, size, size). */
function standardised(bytes, spec) {
  const found = new Float32Array(bytes.length), plane = bytes.length / 3;
  for (let c = 0; c < 3; c++) {
    const mean = Math.fround(Math.fround(spec.mean[c]) * 255), std = Math.fround(Math.fround(spec.std[c]) * 255);
    for (let i = 0; i < plane; i++) found[c * plane + i] = Math.fround(bytes[i * 3 + c] - mean) / std;
  }
  return found;
}
