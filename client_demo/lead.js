/** The lead: whether all was ready before Enter, how soon after it the first word came, and what to try. */

import { $ } from "./elements.js";
import { milliseconds, say } from "./language.js";

const NOW = () => performance.now();

export class Lead {
  #isReady = false; // what the draft needs is there
  #enterAt = null;

  /** A key changed the draft: what was ready may no longer do. */
  typing() {
    this.#isReady = false;
    this.#enterAt = null;
    this.#show("lead.listening");
  }

  /** All is ready for the draft as it stands. */
  ready() {
    if (this.#enterAt !== null) return;
    this.#isReady = true;
    this.#show("lead.ready");
  }

  enter() {
    this.#enterAt = NOW();
    this.#show(this.#isReady ? "lead.ahead" : "lead.listening"); // the server knows what was prepared
  }

  /** The message is stored; what was prepared did not serve if the server says `miss`. */
  accepted(context) {
    if (this.#enterAt === null) return; // the next one is typed
    if (context === "miss") this.#show("lead.late");
    else if (!this.#isReady) this.#show("lead.begun");
  }

  /** The first word of a language model's reply to the message. */
  word() {
    if (this.#enterAt === null || !$("lead-word").hidden) return;
    $("lead-ms").textContent = milliseconds(NOW() - this.#enterAt);
    $("lead-word").hidden = false;
  }

  /** Nothing is typed. */
  idle() {
    if (this.#enterAt !== null) return; // the last message stays
    this.#isReady = false;
    this.#show("lead.invitation");
  }

  /** Forget the last message: another companion is spoken with. */
  reset() {
    this.#enterAt = null;
    this.idle();
  }

  #show(key) {
    if (this.#enterAt === null) $("lead-word").hidden = true;
    const state = key.split(".")[1];
    $("lead").dataset.state = state;
    for (const [id, text] of [["lead-text", say(key)], ["lead-about", about(state)]]) if ($(id).textContent !== text) $(id).textContent = text;
  }
}

/** What happens in a state, or what to try next, for somebody who sees this for the first time. */
function about(state) {
  if (state === "invitation") return say($("suggestions").childElementCount ? "about.ask" : "about.tell", { name: $("companion").textContent });
  return say(`about.${state === "begun" ? "ahead" : state}`, { panel: say("panel.title") });
}
