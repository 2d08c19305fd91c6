/** What is to be forgotten waits some seconds before it is asked for: nothing brings it back later. */

import { $, announce } from "./elements.js";
import { say } from "./language.js";

const WAIT_S = 5;

export class Undo {
  #waiting = null; // { act, restore, timer }

  constructor() {
    $("undo-back").onclick = () => this.#back();
    $("undo-now").onclick = () => this.now();
  }

  /** Do something in a few seconds, unless it is taken back; `restore` then shows it again. */
  offer(act, restore) {
    this.now();
    this.#waiting = { act, restore, timer: setTimeout(() => this.now(), 1000 * WAIT_S) };
    $("undo-text").textContent = say("undo.waiting", { seconds: WAIT_S });
    $("undo").hidden = false;
    announce($("undo-text").textContent);
  }

  /** Do now what waits. */
  now() {
    this.#take()?.act();
  }

  /** What waits is not to be done any more. */
  drop() {
    this.#take();
  }

  #back() {
    this.#take()?.restore();
    announce(say("undo.done"));
  }

  #take() {
    const waiting = this.#waiting;
    clearTimeout(waiting?.timer);
    this.#waiting = null;
    $("undo").hidden = true;
    return waiting;
  }
}
