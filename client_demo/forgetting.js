/** Forgetting a memory, a message or a reply: hidden at once, asked for when it cannot be undone. */

import { announce, textOf } from "./elements.js";
import { say } from "./language.js";

export class Forgetting {
  #undo;
  #current; // the client of the conversation that is shown
  #attempt; // does something, or says why it could not be done
  #forgotten; // shows anew what the server knows

  constructor(undo, current, attempt, forgotten) {
    this.#undo = undo;
    this.#current = current;
    this.#attempt = attempt;
    this.#forgotten = forgotten;
  }

  /** Forget a recalled memory, with the turns that it was made of. */
  memory({ id, content }, item) {
    this.#soon(item, content, (mind) => mind.forget(id));
  }

  turn(turnId, item) {
    this.#soon(item, textOf(item), (mind) => mind.request("DELETE", `/memories?turn=${turnId}`));
  }

  /** Forget the reply to a message, by the id of the message's turn. */
  reply(asked, item) {
    const known = this.#current()?.request("GET", `/turns?after=${asked}&limit=1`);
    known?.catch(() => {}); // told when it is needed
    this.#soon(item, textOf(item), async (mind) => {
      const [turn] = (await known).turns;
      if (turn) await mind.request("DELETE", `/memories?turn=${turn.id}`);
    });
  }

  /** Hide what is to be forgotten; then have it forgotten, and show what the server still knows. */
  #soon(item, text, forget) {
    const mind = this.#current();
    if (!mind) return;
    const parts = [...document.querySelectorAll("#turns > li, #memories > li")];
    const hidden = new Set([item, ...parts.filter((part) => part.textContent.includes(text))]);
    const hide = (away) => hidden.forEach((part) => part.classList.toggle("going", away));
    hide(true);
    const act = async () => {
      if (!(await this.#attempt(() => forget(mind)))) return hide(false);
      announce(say("forgotten"));
      if (mind === this.#current()) this.#forgotten();
    };
    this.#undo.offer(act, () => hide(false));
  }
}
