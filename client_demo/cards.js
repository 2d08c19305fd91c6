/** Character cards: whose card a file has, and the short name that is made of it. */

const PNG = [0x89, 0x50, 0x4e, 0x47];
const ZIP = [0x50, 0x4b];
const KEYWORDS = ["ccv3", "chara"]; // of the text chunks of a picture; the first that is there counts
const ENTRY = 0x02014b50; // begins what a ZIP file's directory says of one of its files
const DEFLATED = 8;
const MAX_CARD_BYTES = 2_000_000; // the server takes none that is larger

/** The character's name in a file as the server accepts them: JSON, PNG, APNG or CHARX; else null. */
export async function nameOf(file) {
  try {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const card = JSON.parse(new TextDecoder().decode(await cardIn(bytes)));
    const { name } = card.data ?? card;
    return typeof name === "string" ? name : null;
  } catch {
    return null; // damaged, or something else
  }
}

/** A short name made of a name, as the server makes it; empty if there is neither letter nor digit. */
export function slugOf(name) {
  const words = name.normalize("NFKC").toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  return [...words.join("-")].slice(0, 60).join("").replace(/-$/, "");
}

async function cardIn(bytes) {
  if (begins(bytes, PNG)) return inPicture(bytes);
  return begins(bytes, ZIP) ? inArchive(bytes) : bytes;
}

function begins(bytes, signature) {
  return signature.every((byte, place) => bytes[place] === byte);
}

function inPicture(bytes) {
  const view = new DataView(bytes.buffer);
  const found = {};
  for (let at = 8; at + 12 <= bytes.length; ) {
    const length = view.getUint32(at);
    const chunk = bytes.subarray(at + 8, at + 8 + length);
    const end = chunk.indexOf(0);
    if (latin(bytes.subarray(at + 4, at + 8)) === "tEXt") found[latin(chunk.subarray(0, end))] ??= chunk.subarray(end + 1);
    at += length + 12;
  }
  const text = found[KEYWORDS.find((keyword) => keyword in found)];
  return Uint8Array.from(atob(latin(text)), (character) => character.charCodeAt(0));
}

/** What card.json in a ZIP file has: its directory tells where it begins. */
async function inArchive(bytes) {
  const view = new DataView(bytes.buffer);
  for (let at = bytes.length - 46; at >= 0; at--) {
    if (view.getUint32(at, true) !== ENTRY) continue;
    const name = latin(bytes.subarray(at + 46, at + 46 + view.getUint16(at + 28, true)));
    if (name !== "card.json") continue;
    const local = view.getUint32(at + 42, true);
    const begin = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    const packed = bytes.subarray(begin, begin + view.getUint32(at + 20, true));
    return view.getUint16(at + 10, true) === DEFLATED ? inflated(packed) : packed;
  }
  throw new Error("no card.json");
}

async function inflated(packed) {
  const parts = [];
  let size = 0;
  for (const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    parts.push(value);
    size += value.length;
    if (size > MAX_CARD_BYTES) throw new RangeError("too large");
  }
}

function latin(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}
