/** The companions that may be spoken with, and their faces to choose from. */

import { $, button, make } from "./elements.js";
import { face } from "./faces.js";

const FIRST = "wren"; // of the example companions
const MANY = 8; // more companions than these have names, and a search

/** The companions, the first example first; null where the server requires a token. */
export async function companionList(token) {
  const answer = await fetch("/v1/companions", token ? { headers: { authorization: `Bearer ${token}` } } : {});
  if (!answer.ok) return null;
  return (await answer.json()).sort((one, other) => (other.slug === FIRST) - (one.slug === FIRST));
}

/** Show a face of each, behind a search if there are many; `choose` is given the one that is clicked. */
export function showFaces(companions, choose, id = "faces") {
  const choices = companions.map((companion) => {
    const { slug, name } = companion;
    const choice = button("", name, () => choose(companion), "choice-of-face");
    choice.title = name;
    choice.dataset.slug = slug;
    choice.append(face(slug), make("span", { textContent: name }));
    return choice;
  });
  const search = $(`${id}-search`);
  search.hidden = choices.length <= MANY;
  search.value = "";
  search.oninput = () => {
    const sought = plain(search.value);
    for (const choice of choices) choice.hidden = !plain(choice.title + " " + choice.dataset.slug).includes(sought);
    showChosen(id);
  };
  $(id).classList.toggle("many", choices.length > MANY);
  $(id).replaceChildren(...choices);
}

/** A text without accents and capitals, to be searched. */
function plain(text) {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().trim();
}

/** Mark the face of the one that is chosen, and bring it into view. */
export function markFace(slug, id = "faces") {
  for (const choice of $(id).children) choice.ariaPressed = String(choice.dataset.slug === slug);
  showChosen(id);
}

function showChosen(id) {
  $(id).querySelector("[aria-pressed=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}
