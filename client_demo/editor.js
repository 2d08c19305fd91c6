/** The companions: made, changed, handed out as character cards; and the language model of each. */

import { nameOf, slugOf } from "./cards.js";
import { $, button, composes, save } from "./elements.js";
import { face } from "./faces.js";
import { failure, milliseconds, say } from "./language.js";
import { Operator } from "./operator.js";

const FORMATS = ["json", "png", "charx"];
const FIELDS = ["companion-name", "companion-slug", "companion-persona", "companion-greeting", "model-url", "model-name", "model-key"];

export class Editor {
  #operator;
  #changed; // told the slug of a companion that was changed
  #companions = [];
  #chosen = null; // null: a new one
  #card = null; // the card that the chosen one was made of, if it was
  #saved = ""; // what the form says while nothing is changed

  constructor(user, changed) {
    this.#operator = new Operator(user);
    this.#changed = changed;
    $("close-editor").onclick = () => this.#close();
    $("editor").onkeydown = (event) => {
      if (event.key === "Escape" && !composes(event)) this.#close(event);
    };
    $("editor").oncancel = (event) => this.#close(event);
    $("new-companion").onclick = () => this.#mayLeave() && this.#choose(null);
    $("import-card").onchange = ({ target }) => this.#do(() => this.#import(target));
    $("retire").onclick = () => confirm(say("editor.retire.sure", { name: this.#chosen.name })) && this.#do(() => this.#retire());
    $("companion-form").onsubmit = (event) => {
      event.preventDefault();
      this.#do(() => this.#save());
    };
    $("test-model").onclick = () => $("companion-form").reportValidity() && this.#do(() => this.#test());
    const exports = FORMATS.map((format) => button(format.toUpperCase(), say("editor.export.as", { format: format.toUpperCase() }), () => this.#do(() => this.#export(format))));
    $("export-card").append(...exports);
  }

  async open(slug) {
    this.#tell("");
    $("editor").showModal();
    await this.#do(() => this.#list(slug));
  }

  /** Close the dialog, unless that would discard what the player wants to keep. */
  #close(event) {
    event?.preventDefault();
    if (this.#mayLeave()) $("editor").close();
  }

  /** Whether nothing is changed, or the changes may be discarded. */
  #mayLeave() {
    return written() === this.#saved || confirm(say("editor.discard"));
  }

  async #list(slug) {
    this.#companions = await this.#operator.companions();
    const choices = this.#companions.map((companion) => {
      const choice = button("", companion.name, () => this.#mayLeave() && this.#do(() => this.#choose(companion)), "choice-of-face");
      choice.append(face(companion.slug));
      choice.dataset.slug = companion.slug;
      return choice;
    });
    $("editor-faces").replaceChildren(...choices);
    await this.#choose(this.#companions.find((companion) => companion.slug === slug) ?? this.#companions[0] ?? null);
  }

  async #choose(companion) {
    const card = companion && (await this.#operator.card(companion.slug));
    this.#chosen = companion;
    // A card that is made of a companion describes it by its persona; one that it was made of, by more.
    this.#card = card && card.data.description !== companion.persona ? card : null;
    for (const choice of $("editor-faces").children) choice.ariaPressed = String(choice.dataset.slug === companion?.slug);
    const { name, description, first_mes } = this.#card?.data ?? {};
    const { llm_url, llm_model, llm_key_env } = companion?.settings ?? {};
    const said = [name ?? companion?.name, companion?.slug, description ?? companion?.persona, first_mes ?? companion?.greeting, llm_url, llm_model, llm_key_env];
    FIELDS.forEach((id, place) => {
      $(id).value = said[place] ?? "";
      $(id).setCustomValidity(""); // what was too long is gone
    });
    this.#saved = written();
    $("companion-slug").disabled = Boolean(companion);
    for (const id of ["retire", "export-card"]) $(id).hidden = !companion;
  }

  /** Save what the form says; what a card says besides stays in it, and nobody is replaced unasked. */
  async #save() {
    const slug = $("companion-slug").value.trim();
    const known = this.#chosen ? null : this.#companions.find((companion) => companion.slug === slug);
    if (known && !confirm(say("editor.save.sure", { name: known.name }))) return "";
    const name = $("companion-name").value.trim();
    const persona = $("companion-persona").value;
    const greeting = $("companion-greeting").value;
    let companion = { name, persona, greeting };
    if (this.#card) {
      const card = { ...this.#card, data: { ...this.#card.data, name, description: persona, first_mes: greeting } };
      const made = await this.#operator.putCard(slug, new Blob([JSON.stringify(card)], { type: "application/json" }));
      companion = { name: made.name, persona: made.persona, greeting: made.greeting, card: card.data };
    }
    await this.#operator.put(slug, { ...companion, settings: this.#settings() });
    await this.#list(slug);
    this.#changed(slug);
    return say("editor.saved", { name });
  }

  #settings() {
    const settings = { ...this.#chosen?.settings };
    for (const [field, id] of [["llm_url", "model-url"], ["llm_model", "model-name"], ["llm_key_env", "model-key"]]) {
      delete settings[field];
      if ($(id).value.trim()) settings[field] = $(id).value.trim();
    }
    return settings;
  }

  /** Save, and have the companion say something to nobody. */
  async #test() {
    if (!(await this.#save())) return "";
    this.#tell(say("editor.testing"));
    const began = performance.now();
    const reply = await this.#operator.tryModel(this.#chosen.slug, say("editor.test.text"));
    const values = { reply, time: milliseconds(performance.now() - began) };
    return say(this.#chosen.settings.llm_url ? "editor.tested" : "editor.tested.server", values);
  }

  async #retire() {
    const { slug, name } = this.#chosen;
    await this.#operator.retire(slug);
    await this.#list();
    this.#changed(null);
    return say("editor.retired", { name });
  }

  async #export(format) {
    const { slug } = this.#chosen;
    save(await this.#operator.cardFile(slug, format), `${slug}.${format}`);
    return "";
  }

  /** Make a companion of a card's file, named as the card says. */
  async #import(input) {
    const [file] = input.files;
    input.value = "";
    const named = await nameOf(file);
    if (named === null) return say("editor.import.wrong", { file: file.name });
    if (!this.#mayLeave()) return "";
    const slug = slugOf(named) || "companion";
    const known = this.#companions.find((companion) => companion.slug === slug);
    if (known && !confirm(say("editor.import.sure", { name: known.name }))) return "";
    const { name } = await this.#operator.putCard(slug, file);
    await this.#list(slug);
    this.#changed(slug);
    return say("editor.imported", { name });
  }

  async #do(act) {
    try {
      this.#tell((await act()) ?? "");
    } catch (error) {
      this.#tell(failure(error));
    }
  }

  #tell(text) {
    $("editor-notice").textContent = text || "\u00a0";
  }
}

/** What the form says, to be compared. */
function written() {
  return JSON.stringify(FIELDS.map((id) => $(id).value));
}
