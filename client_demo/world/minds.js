/** What each mind witnessed, as it happens; what it remembers while the player types lights up. */

import { listed, number, say, sayValue } from "../language.js";
import { MINDS, mindOf } from "./host.js";
import { nameOf } from "./hearing.js";

const UNDONE_MS = 1600; // how long one sees what never happened
const LEAST = 0.35; // score of a memory that lights up

export class Mind {
  #slug;
  #list;
  #state;
  #recalls;
  #lines = new Map(); // by the id of the event
  #asked = null; // the draft that is asked about
  #next = null; // what to ask about then
  #isNew = true;

  /** `recalls` is told whether it remembers something. */
  constructor(parent, slug, recalls) {
    const { name, trade } = MINDS[slug];
    this.#slug = slug;
    this.#recalls = recalls;
    this.#state = make("p", { className: "state" });
    this.#list = make("ol", { tabIndex: 0, ariaLabel: say("tavern.mind", { name }) });
    const heading = make("h2", {}, name, " ", make("small", { textContent: sayValue("tavern.trade", trade) }));
    const section = make("section", { className: "mind", id: slug }, make("header", {}, heading, this.#state), this.#list);
    section.setAttribute("aria-label", name);
    parent.append(section);
  }

  /** Ask what it witnessed, and what a draft recalls to it; of several that wait, the last counts. */
  async ask(draft, player) {
    this.#next = draft;
    if (this.#asked !== null) return;
    while (this.#next !== null) {
      this.#asked = this.#next;
      this.#next = null;
      try {
        this.#show(await mindOf(this.#slug, this.#asked, player));
      } finally {
        this.#asked = null;
      }
    }
  }

  #show({ witnessed, recalled }) {
    const ids = new Set(witnessed.map(({ id }) => id));
    for (const [id, line] of this.#lines) if (!ids.has(id)) this.#undo(id, line);
    const lit = this.#asked ? recalled.filter(({ score }) => score >= LEAST).map(({ content }) => content) : [];
    let glowing = 0;
    for (const event of witnessed) {
      let line = this.#lines.get(event.id);
      if (!line) {
        line = lineOf(event);
        if (!this.#isNew) line.classList.add("fresh");
        this.#lines.set(event.id, line);
        this.#list.append(line);
        this.#list.scrollTop = this.#list.scrollHeight;
      }
      const isLit = event.how !== "own" && lit.some((content) => content.includes(event.text));
      if (isLit && !line.classList.contains("lit")) line.scrollIntoView({ block: "nearest" });
      line.classList.toggle("lit", isLit);
      glowing += isLit;
    }
    this.#isNew = false;
    this.#state.textContent = glowing ? say("tavern.recalls", { n: number(glowing) }) : say("tavern.knows", { n: number(witnessed.length) });
    this.#state.classList.toggle("glowing", glowing > 0);
    this.#recalls(glowing > 0);
  }

  #undo(id, line) {
    this.#lines.delete(id);
    line.classList.add("undone");
    setTimeout(() => line.remove(), UNDONE_MS);
  }
}

/** A line that says what was witnessed, how, and of whom. */
function lineOf({ how, actor, to, text, volume, type }) {
  const line = make("li", { className: how }, make("span", { className: "how", textContent: sayValue("tavern.how", how) }), " ");
  if (volume === "whisper") line.classList.add("whisper");
  const manner = how === "own" ? own(to) : spoken(actor, how === "overheard" ? to : [], volume);
  if (type === "said" && manner) line.append(make("b", { textContent: `${say("tavern.speaker", { who: manner })} ` }));
  line.append(text);
  return line;
}

function own(to) {
  return to.length ? say("tavern.own", { whom: listed(to.map(nameOf)) }) : "";
}

/** Who speaks, how loud, and to whom, if to anybody. */
export function spoken(actor, to, volume) {
  const [who, whom] = [nameOf(actor), listed(to.map(nameOf))];
  if (to.length) return say(`tavern.they.${volume}`, { who, whom });
  return volume === "say" ? who : say(`tavern.they.${volume}.all`, { who });
}

/** An element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}
