/** What is recalled, gathering beside the draft. */

import { $, button, make } from "./elements.js";
import { ago, origin, say, sayCount } from "./language.js";

export class Recalled {
  #forget;
  #isSample;

  /** `forget` is given a memory and its element; `isSample` tells whether it is of the sample past. */
  constructor(forget, isSample) {
    this.#forget = forget;
    this.#isSample = isSample;
  }

  /** Show what is recalled; returns how much that is, in words. */
  show(memories) {
    const list = $("memories");
    const before = new Map([...list.children].map((item) => [item.dataset.id, item]));
    const items = memories.map((memory) => before.get(memory.id) ?? this.#item(memory));
    for (const item of before.values()) if (!items.includes(item)) item.remove();
    // What stays in its place keeps the focus, and does not come in again.
    items.forEach((item, place) => list.children[place] === item || list.insertBefore(item, list.children[place] ?? null));
    const text = memories.length ? sayCount("recalled", memories.length) : say("recalled.nothing");
    $("recalled-for").textContent = text;
    return text;
  }

  clear() {
    $("memories").replaceChildren();
    $("recalled-for").textContent = say("recalled.hint");
  }

  #item(memory) {
    const item = make("li", { className: "fresh", onanimationend: () => item.classList.remove("fresh"), title: say("recalled.why", { score: memory.score.toFixed(2), significance: memory.significance.toFixed(2) }) });
    item.dataset.id = memory.id;
    const about = [ago(memory.created_at), origin(memory)];
    if (this.#isSample(memory.content)) about.push(say("sample.mark"));
    const forget = button(say("forget"), say("forget.what", { text: memory.content }), () => this.#forget(memory, item), "quiet-act");
    item.append(make("span", { textContent: memory.content }), make("small", { textContent: about.join(" · ") }), forget);
    return item;
  }
}
