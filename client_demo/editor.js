/** The companions: made, changed, handed out as character cards; and the language model of each. */

import { $, button, save } from "./elements.js";
import { face } from "./faces.js";
import { failure, milliseconds, say } from "./language.js";
import { Operator } from "./operator.js";

const FORMATS = ["json", "png", "charx"];

export class Editor {
  #operator;
  #changed; // told the slug of a companion that was changed
  #companions = [];
  #chosen = null; // null: a new one
  #card = null; // the card that the chosen one was made of, if it was

  constructor(user, changed) {
    this.#operator = new Operator(user);
    this.#changed = changed;
    $("close-editor").onclick = () => $("editor").close();
    $("new-companion").onclick = () => this.#choose(null);
    $("import-card").onchange = ({ target }) => this.#do(() => this.#import(target));
    $("retire").onclick = () => confirm(say("editor.retire.sure", { name: this.#chosen.name })) && this.#do(() => this.#retire());
    $("companion-form").onsubmit = (event) => {
      event.preventDefault();
      this.#do(() => this.#save());
    };
    $("test-model").onclick = () => this.#do(() => this.#test());
    const exports = FORMATS.map((format) => button(format.toUpperCase(), say("editor.export.as", { format: format.toUpperCase() }), () => this.#do(() => this.#export(format))));
    $("export-card").append(...exports);
  }

  async open(slug) {
    this.#tell("");
    $("editor").showModal();
    await this.#do(() => this.#list(slug));
  }

  async #list(slug) {
    this.#companions = await this.#operator.companions();
    const choices = this.#companions.map((companion) => {
      const choice = button("", companion.name, () => this.#do(() => this.#choose(companion)), "choice-of-face");
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
    $("companion-slug").value = companion?.slug ?? "";
    $("companion-slug").disabled = Boolean(companion);
    $("companion-name").value = name ?? companion?.name ?? "";
    $("companion-persona").value = description ?? companion?.persona ?? "";
    $("companion-greeting").value = first_mes ?? companion?.greeting ?? "";
    const { llm_url = "", llm_model = "", llm_key_env = "" } = companion?.settings ?? {};
    $("model-url").value = llm_url;
    $("model-name").value = llm_model;
    $("model-key").value = llm_key_env;
    for (const id of ["retire", "test-model"]) $(id).disabled = !companion;
    $("export-card").hidden = !companion;
  }

  /** Save what the form says; what a card says besides stays in it. */
  async #save() {
    const slug = $("companion-slug").value.trim();
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
    await this.#save();
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

  /** Make a companion of a card's file, named like the file. */
  async #import(input) {
    const [file] = input.files;
    input.value = "";
    const slug = slugOf(file.name.replace(/\.\w+$/, ""));
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

function slugOf(name) {
  return name.normalize("NFKC").toLowerCase().match(/[\p{L}\p{N}]+/gu)?.join("-").slice(0, 60) || "companion";
}
