// Talking to the server. An answer is shown as saved only after the server has it on disk.

export class Refused extends Error {
  constructor(status, said) {
    super(said.error || `the server answers ${status}`);
    this.status = status;
    this.said = said;
  }
}

async function asked(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, { credentials: "same-origin", ...options });
  } catch {
    throw new Refused(0, { error: "the server does not answer; what is not shown as saved is not saved. Start lht label again, then open its new address" });
  }
  const text = await answer.text();
  let said = {};
  try { said = JSON.parse(text); } catch { said = { error: text.trim() }; }
  if (!answer.ok) throw new Refused(answer.status, said);
  return said;
}

export const get = (address) => asked(address);
export const post = (address, body) => asked(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
