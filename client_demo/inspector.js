/** The prompt inspector: what the model would be given for a draft, and why each memory is in it. */

import { $, make } from "./elements.js";
import { failure, percent, say, sayValue } from "./language.js";

const MATTERS = 0.6; // the significance of what a player states about themselves, and more

export class Inspector {
  constructor() {
    $("close-inspector").onclick = () => $("inspector").close();
  }

  /** Show the prompt of a text, as if it were sent now. */
  async open(mind, text) {
    $("inspected").replaceChildren();
    $("inspected-text").textContent = say("inspector.for", { text });
    $("inspector").showModal();
    try {
      const { messages, memories, weights } = await mind.request("GET", `/context?draft=${encodeURIComponent(text)}`);
      const why = memories.map((memory) => make("li", {}, make("span", { textContent: memory.content }), make("small", { textContent: reasons(memory, weights).join(" · ") })));
      const parts = messages.map(({ role, content }) => [make("h3", { textContent: sayValue("role", role) }), make("pre", { textContent: content })]);
      const heading = make("h3", { textContent: say(memories.length ? "inspector.why" : "inspector.none") });
      const shares = make("p", { className: "quiet", textContent: say("inspector.weights", { meaning: percent(weights.vector), words: percent(weights.keyword) }) });
      $("inspected").replaceChildren(heading, ...(memories.length ? [shares] : []), make("ul", {}, ...why), ...parts.flat());
    } catch (error) {
      $("inspected").replaceChildren(failure(error));
    }
  }
}

/** What brought a memory into the prompt, in words; by the weights that were in force. */
function reasons({ cosine, keyword, significance, superseded }, weights) {
  const found = [];
  if (weights.vector * cosine >= weights.keyword * keyword) found.push(say("why.meaning"));
  if (keyword > 0) found.push(say("why.words"));
  if (significance >= MATTERS) found.push(say("why.matters"));
  if (superseded) found.push(say("why.superseded"));
  return found;
}
