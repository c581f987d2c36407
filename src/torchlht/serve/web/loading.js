// What the file holds, unpacked: gzip in base64, in elements that the browser takes for data.

async function unpacked(id) {
  const element = document.getElementById(id), text = element.textContent.trim();
  element.remove(); // the text would stay in memory
  let bytes;
  if (Uint8Array.fromBase64) bytes = Uint8Array.fromBase64(text);
  else {
    const binary = atob(text);
    bytes = new Uint8Array(binary.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  }
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

const textOf = async id => new TextDecoder().decode(await unpacked(id));

/** Bytes that were sorted, first all first bytes of numbers of this width, then all second ones, as they were. */
function unsorted(bytes, width) {
  const found = new Uint8Array(bytes.length);
  for (let i = 0, from = 0; i < width; i++) for (let to = i; to < bytes.length; to += width) found[to] = bytes[from++];
  return found;
}

/** The network, ready to run: inputs (count, …shape) to one array per output, of numbers for each sample. */
async function opened(about) {
  const code = URL.createObjectURL(new Blob([await unpacked("runtime-code")], { type: "text/javascript" }));
  const ort = await import(code);
  URL.revokeObjectURL(code);
  ort.env.wasm.numThreads = 1; // more would need headers that a file does not have
  ort.env.wasm.wasmBinary = await unpacked("runtime-wasm");
  const session = await ort.InferenceSession.create(unsorted(await unpacked("network"), about.width), { executionProviders: ["wasm"] });
  return async (values, count = 1) => {
    const input = new ort.Tensor("float32", values, [count, ...about.input.shape.slice(1)]);
    const found = await session.run({ [session.inputNames[0]]: input });
    return session.outputNames.map(name => found[name].data);
  };
}
