/** What is recalled, gathering beside the draft. */

import { $, button, CALM, make } from "./elements.js";
import { ago, origin, say, sayCount } from "./language.js";

const FLIGHT_MS = 900;

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
    $("open-inspector").hidden = false;
    return text;
  }

  /** Have the memories that a reply used fly to it; returns how many that are. */
  fly(ids, reply) {
    const used = [...$("memories").children].filter((item) => ids.includes(item.dataset.id));
    for (const item of $("memories").children) item.classList.toggle("used", used.includes(item));
    if (!CALM.matches) used.forEach((item) => flight(item, reply.querySelector(".said")));
    return used.length;
  }

  clear() {
    $("memories").replaceChildren();
    $("recalled-for").textContent = say("recalled.hint");
    $("open-inspector").hidden = true;
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

/** Show a copy of an element on its way to another one. */
function flight(from, to) {
  const [begin, end] = [from.getBoundingClientRect(), to.getBoundingClientRect()];
  const copy = make("div", { className: "flight", textContent: from.querySelector("span").textContent, ariaHidden: "true" });
  Object.assign(copy.style, { left: `${begin.left}px`, top: `${begin.top}px`, width: `${begin.width}px` });
  document.body.append(copy);
  const away = `translate(${end.left - begin.left}px, ${end.bottom - begin.top}px) scale(0.4)`;
  const frames = [{ transform: "none", opacity: 1 }, { transform: "none", opacity: 1, offset: 0.15 }, { transform: away, opacity: 0.3 }];
  copy.animate(frames, { duration: FLIGHT_MS, easing: "ease-in-out" }).onfinish = () => copy.remove();
}
