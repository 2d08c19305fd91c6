/** The prompt inspector: what the model would be given for a draft, and why each memory is in it. */

import { $, make } from "./elements.js";
import { failure, say, sayValue } from "./language.js";

const MATTERS = 0.6; // the significance of what a player states about themselves, and more
const [BY_MEANING, BY_WORDS] = [0.7, 0.3]; // the shares of which the server makes a memory's relevance

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
      const { messages, memories } = await mind.request("GET", `/context?draft=${encodeURIComponent(text)}`);
      const why = memories.map((memory) => make("li", {}, make("span", { textContent: memory.content }), make("small", { textContent: reasons(memory).join(" · ") })));
      const parts = messages.map(({ role, content }) => [make("h3", { textContent: sayValue("role", role) }), make("pre", { textContent: content })]);
      const heading = make("h3", { textContent: say(memories.length ? "inspector.why" : "inspector.none") });
      $("inspected").replaceChildren(heading, make("ul", {}, ...why), ...parts.flat());
    } catch (error) {
      $("inspected").replaceChildren(failure(error));
    }
  }
}

/** What brought a memory into the prompt, in words. */
function reasons({ cosine, keyword, significance, superseded }) {
  const found = [];
  if (BY_MEANING * cosine >= BY_WORDS * keyword) found.push(say("why.meaning"));
  if (keyword > 0) found.push(say("why.words"));
  if (significance >= MATTERS) found.push(say("why.matters"));
  if (superseded) found.push(say("why.superseded"));
  return found;
}
