/** The companions: made, changed, handed out as character cards; and the language model of each. */

import { markFace, showFaces } from "./companions.js";
import { $, button, composes, make, save } from "./elements.js";
import { failure, milliseconds, say } from "./language.js";
import { Operator } from "./operator.js";

const FORMATS = ["json", "png", "charx"];
const FIELDS = ["companion-name", "companion-slug", "companion-persona", "companion-greeting", "model-url", "model-name", "model-key", "card-personality", "card-scenario"];

export class Editor {
  #operator;
  #changed; // told the slug of a companion that was changed
  #companions = [];
  #chosen = null; // null: a new one
  #card = null; // the card that the chosen one was made of, if it was
  #lore = null; // the lorebook of one that was made of no card
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
    showFaces(this.#companions, (companion) => this.#mayLeave() && this.#do(() => this.#choose(companion)), "editor-faces");
    await this.#choose(this.#companions.find((companion) => companion.slug === slug) ?? this.#companions[0] ?? null);
  }

  async #choose(companion) {
    const card = companion && (await this.#operator.card(companion.slug));
    this.#chosen = companion;
    // A card that is made of a companion describes it by its persona; one that it was made of, by more.
    this.#card = card && card.data.description !== companion.persona ? card : null;
    this.#lore = this.#card ? null : card?.data.character_book;
    markFace(companion?.slug, "editor-faces");
    const { name, description, first_mes, personality, scenario } = this.#card?.data ?? {};
    const { llm_url, llm_model, llm_key_env } = companion?.settings ?? {};
    const said = [name ?? companion?.name, companion?.slug, description ?? companion?.persona, first_mes ?? companion?.greeting, llm_url, llm_model, llm_key_env, personality, scenario];
    FIELDS.forEach((id, place) => {
      $(id).value = said[place] ?? "";
      $(id).setCustomValidity(""); // what was too long is gone
    });
    this.#showCard(this.#card?.data);
    this.#showLore(card?.data.character_book);
    this.#saved = written();
    $("companion-slug").disabled = Boolean(companion);
    for (const id of ["retire", "export-card"]) $(id).hidden = !companion;
  }

  /** Show what only a card says, with greetings to choose from. */
  #showCard(card) {
    $("of-card").hidden = !card;
    const greetings = [...(card?.alternate_greetings ?? []), ""]; // the last one is for another
    $("card-greetings").replaceChildren(...greetings.map((value) => make("textarea", { value, rows: 2, ariaLabel: say("editor.greetings") })));
  }

  /** Show the lore, which is not changed here. */
  #showLore(book) {
    const entries = Object.values(book?.entries ?? {});
    $("of-lore").hidden = entries.length === 0;
    $("card-lore-count").textContent = entries.length;
    $("card-lore").replaceChildren(...entries.map((entry) => make("li", {}, make("strong", { textContent: titleOf(entry) }), ` ${entry?.content ?? ""}`)));
  }

  /** The card with what the form says of it; what is as it was stays as it is. */
  #changedCard(fields) {
    const data = { ...this.#card.data };
    for (const [field, value] of Object.entries(fields)) if (value !== (data[field] ?? "")) data[field] = value;
    if (greetings().join("\0") !== (data.alternate_greetings ?? []).join("\0")) data.alternate_greetings = greetings();
    return { ...this.#card, data };
  }

  /** Save what the form says; what a card says besides stays in it, and nobody is replaced unasked. */
  async #save() {
    const slug = $("companion-slug").value.trim();
    const known = this.#chosen ? null : this.#companions.find((companion) => companion.slug === slug);
    if (known && !confirm(say("editor.save.sure", { name: known.name }))) return "";
    const name = $("companion-name").value.trim();
    const persona = $("companion-persona").value;
    const greeting = $("companion-greeting").value;
    let companion = { name, persona, greeting, ...(this.#lore && { card: { character_book: this.#lore } }) };
    if (this.#card) {
      const [personality, scenario] = [$("card-personality").value, $("card-scenario").value];
      const card = this.#changedCard({ name, description: persona, first_mes: greeting, personality, scenario });
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
    const read = await this.#operator.readCard(file).catch(() => null);
    if (read === null) return say("editor.import.wrong", { file: file.name });
    if (!this.#mayLeave()) return "";
    const isLore = read.name === ""; // a lorebook by itself, for the companion that is chosen
    if (isLore && !this.#chosen) return say("editor.import.lore.whose");
    const slug = isLore ? this.#chosen.slug : read.slug || "companion";
    const known = this.#companions.find((companion) => companion.slug === slug);
    if (known && !confirm(say(isLore ? "editor.import.lore.sure" : "editor.import.sure", { name: known.name }))) return "";
    const { name, notices } = await this.#operator.putCard(slug, file);
    await this.#list(slug);
    this.#changed(slug);
    this.#remark(notices);
    return say("editor.imported", { name });
  }

  /** Show what was mended in a card, or is not supported. */
  #remark(notices) {
    $("card-notices").replaceChildren(...notices.map(({ field, text }) => make("li", {}, make("code", { textContent: field }), ` ${text}`)));
  }

  async #do(act) {
    this.#remark([]);
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
  return JSON.stringify([...FIELDS.map((id) => $(id).value), greetings()]);
}

/** The further greetings in the form; what is emptied is gone. */
function greetings() {
  return [...$("card-greetings").children].map((field) => field.value).filter((text) => text.trim());
}

/** What an entry of a lorebook is called, or is about. */
function titleOf(entry) {
  const keys = [entry?.keys ?? []].flat().join(", ");
  return [entry?.name || entry?.comment, keys].filter(Boolean).join(": ");
}
