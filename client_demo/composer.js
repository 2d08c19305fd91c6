/** The draft: typing it, having a question typed, sending it, on or off the record. */

import { $, button, CALM, composes } from "./elements.js";
import { tooLong } from "./lengths.js";

const KEY_MS = 45; // between the keys of a suggested question

export class Composer {
  #typed;
  #send;
  #limit = Infinity; // of characters
  #typing = 0; // the timer that types a suggested question

  /**
   * `typed` is told the draft after each change, and whether it is too long to be sent; `send` what
   * is sent: `(text, { remember })`.
   */
  constructor(typed, send) {
    this.#typed = typed;
    this.#send = send;
    $("draft").addEventListener("input", () => this.#changed());
    $("draft").addEventListener("keydown", (event) => {
      clearInterval(this.#typing);
      if (event.key === "Enter" && !event.shiftKey && !composes(event)) {
        event.preventDefault();
        this.#submit();
      }
    });
    $("compose").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
      this.focus();
    });
    $("off-record").addEventListener("change", () => {
      $("compose").classList.toggle("off-record", $("off-record").checked);
      this.focus();
    });
  }

  /** A server listens that takes so many characters: it is told what was typed before. */
  opened(limit) {
    this.#limit = limit;
    if ($("draft").value) this.#changed();
  }

  focus() {
    $("draft").focus({ preventScroll: true });
  }

  /** Whether this is the draft, as the server compares drafts. */
  holds(draft) {
    return plain(draft) === plain($("draft").value);
  }

  /** Put a text into the draft, as if typed at once. */
  fill(text) {
    clearInterval(this.#typing);
    $("draft").value = text;
    this.#changed();
    this.focus();
  }

  /** Put texts that could not be sent back, before what was typed since. */
  bringBack(texts) {
    if (texts.length) this.fill([...texts, $("draft").value].filter(Boolean).join("\n"));
  }

  /** Offer questions that are typed key by key; Enter is left to the player. */
  suggest(questions) {
    $("suggestions").replaceChildren(...questions.map((question) => button(question, question, () => this.#typeOut(question))));
    this.#showSuggestions();
  }

  #typeOut(text) {
    this.fill(CALM.matches ? text : "");
    if (CALM.matches) return;
    let length = 0;
    this.#typing = setInterval(() => {
      length += 1;
      $("draft").value = text.slice(0, length);
      this.#changed();
      if (length === text.length) clearInterval(this.#typing);
    }, KEY_MS);
  }

  #changed() {
    const draft = $("draft");
    draft.style.height = "auto";
    draft.style.height = `${draft.scrollHeight + 2}px`;
    this.#showSuggestions();
    this.#typed(draft.value, this.#showLength());
  }

  #showSuggestions() {
    $("suggestions").hidden = $("draft").value !== "" || !$("suggestions").childElementCount;
  }

  /** Say so if the draft is too long; returns whether it is. */
  #showLength() {
    const problem = tooLong($("draft").value, this.#limit);
    $("too-long").textContent = problem;
    $("too-long").hidden = !problem;
    $("draft").ariaInvalid = String(Boolean(problem));
    return Boolean(problem);
  }

  #submit() {
    const text = $("draft").value;
    if (!text.trim() || this.#showLength() || !this.#send(text, { remember: !$("off-record").checked })) return;
    for (const offered of [...$("suggestions").children]) if (offered.textContent === text) offered.remove();
    clearInterval(this.#typing);
    $("draft").value = "";
    $("draft").style.height = "auto";
    this.#showSuggestions();
  }
}

function plain(text) {
  return text.normalize("NFC").split(/\s+/).filter(Boolean).join(" ");
}
