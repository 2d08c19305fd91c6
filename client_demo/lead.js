/** The lead: how long before Enter all was ready, and the same question without preparation. */

import { $, make } from "./elements.js";
import { milliseconds, say } from "./language.js";

const COMPARISONS = 3; // times that a context is built without preparation; the fastest counts
const NOW = () => performance.now();

export class Lead {
  #readyAt = null; // when what the draft needs was ready
  #enterAt = null;
  #counting = 0;

  /** A key changed the draft: what was ready may no longer do. */
  typing() {
    this.#readyAt = null;
    this.#enterAt = null;
    $("comparison").hidden = true;
    cancelAnimationFrame(this.#counting);
    this.#show("", "lead.listening");
  }

  /** All is ready for the draft as it stands: count until Enter. */
  ready() {
    if (this.#enterAt !== null) return;
    this.#readyAt ??= NOW();
    cancelAnimationFrame(this.#counting);
    const count = () => {
      this.#show(milliseconds(NOW() - this.#readyAt), "lead.ready");
      this.#counting = requestAnimationFrame(count);
    };
    count();
  }

  enter() {
    this.#enterAt = NOW();
    cancelAnimationFrame(this.#counting);
    if (this.#readyAt !== null) this.#show(milliseconds(this.#enterAt - this.#readyAt), "lead.ahead");
    else this.#show("", "lead.listening"); // the server knows what was prepared
  }

  /** The message is stored; what was prepared did not serve if the server says `miss`. */
  accepted(context, readyMs) {
    if (this.#enterAt === null) return; // the next one is typed
    if (context === "miss") this.#show("", "lead.late");
    else if (this.#readyAt === null) this.#show(milliseconds(readyMs), "lead.begun");
  }

  /** Nothing is typed. */
  idle() {
    if (this.#enterAt !== null) return; // the last message stays
    cancelAnimationFrame(this.#counting);
    this.#readyAt = null;
    this.#show("", "lead.invitation");
  }

  /** Forget the last message: another companion is spoken with. */
  reset() {
    this.#enterAt = null;
    $("comparison").hidden = true;
    this.idle();
  }

  /** Show how soon the model could start, prepared and not. */
  compare(preparedMs, unpreparedMs) {
    if (this.#enterAt === null) return; // the next message is typed
    const longest = Math.max(preparedMs, unpreparedMs);
    const lane = (key, ms, kind) => {
      const bar = make("span", { className: `bar ${kind}` });
      bar.style.width = `${Math.max(1, (100 * ms) / longest)}%`;
      return [make("dt", { textContent: say(key) }), make("dd", {}, bar), make("dd", { className: "ms", textContent: milliseconds(ms) })];
    };
    $("lanes").replaceChildren(...lane("compare.prepared", preparedMs, "good"), ...lane("compare.unprepared", unpreparedMs, "late"));
    $("comparison").hidden = false;
  }

  #show(number, key) {
    $("lead-ms").textContent = number;
    $("lead").dataset.state = key.split(".")[1];
    const text = say(key);
    if ($("lead-text").textContent !== text) $("lead-text").textContent = text;
  }
}

/**
 * Have the context of a message built from nothing, and return how long that took in milliseconds:
 * without preparation, it would have been left to do at Enter. Of a context that was refreshed then,
 * only the vector served. Null if nothing served, or once it is not `wanted` any more.
 */
export async function unprepared(mind, { text, context }, wanted) {
  if (!["hit", "refreshed"].includes(context)) return null;
  const path = `/context?draft=${encodeURIComponent(text)}`;
  let fastest = Infinity;
  for (let time = 0; time < COMPARISONS; time++) {
    const { timings } = await mind.request("GET", path).catch(() => ({ timings: null }));
    if (!timings || !wanted()) return null;
    fastest = Math.min(fastest, context === "hit" ? timings.total_ms : timings.embed_ms);
  }
  return fastest;
}
