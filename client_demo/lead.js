/** The lead: how long before Enter all was ready, and the same question without preparation. */

import { $, make } from "./elements.js";
import { milliseconds, say } from "./language.js";

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
    else this.#show("", "lead.late");
  }

  /** The message is stored; what was ready did not serve if the server says `miss`. */
  accepted(context) {
    if (context === "miss") this.#show("", "lead.late");
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
