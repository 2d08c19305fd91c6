/** Forgetting a memory, a message or a reply: hidden at once, asked for when it cannot be undone. */

import { announce, textOf } from "./elements.js";
import { say, sayCount } from "./language.js";

const UNASKED = 10; // turns that are forgotten without asking whether that many are meant

/** Whether the player means what a request to forget would take; of few turns nobody asks. */
export async function sure(mind, path) {
  const mark = path.includes("?") ? "&" : "?";
  const { turns, memories, records } = await mind.request("DELETE", `${path}${mark}dry_run=true`);
  return turns <= UNASKED || confirm(say("forget.sure", counted({ turns, memories, records })));
}

/** What a receipt counts, in words. */
export function counted({ turns, memories, records }) {
  return {
    memories: sayCount("memory-count", memories.length),
    turns: sayCount("turn-count", turns),
    records: sayCount("record-count", records),
  };
}

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
    this.#soon(item, content, async () => `/memories/${id}`);
  }

  turn(turnId, item) {
    this.#soon(item, textOf(item), async () => `/memories?turn=${turnId}`);
  }

  /** Forget the reply to a message, by the id of the message's turn. */
  reply(asked, item) {
    const known = this.#current()?.request("GET", `/turns?after=${asked}&limit=1`);
    known?.catch(() => {}); // told when it is needed
    this.#soon(item, textOf(item), async () => {
      const [turn] = (await known).turns;
      return turn && `/memories?turn=${turn.id}`;
    });
  }

  /** Hide what is to be forgotten; then have it forgotten, and show what the server still knows.
   *
   * `find` returns the path of the request, or nothing if there is nothing to forget. */
  async #soon(item, text, find) {
    const mind = this.#current();
    if (!mind) return;
    const parts = [...document.querySelectorAll("#turns > li, #memories > li")];
    const hidden = new Set([item, ...parts.filter((part) => (part.querySelector(".text") ? textOf(part) : part.textContent).includes(text))]);
    const hide = (away) => hidden.forEach((part) => part.classList.toggle("going", away));
    hide(true);
    const meant = find().then((path) => !path || sure(mind, path));
    if (!(await meant.catch(() => true))) return hide(false); // what is wrong is said below
    const forget = async () => {
      const path = await find();
      if (path) await mind.request("DELETE", path);
    };
    const act = async () => {
      if (!(await this.#attempt(forget))) return hide(false);
      announce(say("forgotten"));
      if (mind === this.#current()) this.#forgotten();
    };
    this.#undo.offer(act, () => hide(false));
  }
}
