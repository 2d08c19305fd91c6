/** The memory panel, where users see, correct, forget, export and import what is known about them. */

const LAYERS = {
  profile: "Profile",
  hot: "Where things stand",
  scratchpad: "Notes",
  vault: "Pinned",
  questions: "Left open",
  topics: "Topics",
  episodes: "Episodes",
  summary: "Summary",
  opening: "Last time",
};
const PAGE = 200; // memories, or turns, that are fetched at once

export class MemoryPanel {
  #dialog;
  #mind = null;

  constructor(dialog) {
    this.#dialog = dialog;
    const on = (id, event, act) => this.#find(id).addEventListener(event, act);
    on("close-panel", "click", () => dialog.close());
    on("forget-about", "submit", (event) => {
      event.preventDefault();
      const about = encodeURIComponent(this.#find("about").value);
      this.#do(() => this.#mind.request("DELETE", `/memories?about=${about}`));
    });
    on("forget-all", "click", () => {
      if (confirm("Forget everything for good?")) this.#do(() => this.#mind.request("DELETE", "/memories"));
    });
    on("export-user", "click", () => this.#do(async () => save(await this.#mind.exportUser(), "all")));
    on("erase-user", "click", () => this.#erase());
    on("remember", "submit", (event) => {
      event.preventDefault();
      const layer = this.#find("remember-layer").value;
      const content = this.#find("remember-text").value;
      this.#find("remember-text").value = "";
      const kind = layer === "scratchpad" ? "other" : "";
      const title = layer === "profile" ? "about me" : "";
      this.#do(() => this.#mind.request("POST", "/records", { layer, kind, title, content }));
    });
    on("export", "click", () => this.#do(() => this.#export()));
    on("import", "change", ({ target }) => this.#do(() => this.#import(target)));
  }

  /** Show what the server knows, as of now. */
  async open(mind) {
    this.#mind = mind;
    this.#say("");
    if (!this.#dialog.open) this.#dialog.showModal();
    await this.#show();
  }

  async #show() {
    const [{ memories }, { records }, { sessions }, { audit }] = await Promise.all(
      [`/memories?limit=${PAGE}`, "/records", "/sessions", "/audit"].map((path) => this.#mind.request("GET", path)),
    );
    const shown = Object.entries(LAYERS).map(([layer, title]) =>
      this.#section(title, records.filter((each) => each.layer === layer), "records"),
    );
    const kept = this.#section("Memories", memories.toReversed(), "memories");
    this.#find("layers").replaceChildren(...shown, kept, this.#sessions(sessions), trail(audit));
  }

  #section(title, items, path) {
    return folded(`${title} (${items.length})`, items.map((item) => this.#item(item, path)));
  }

  #item(item, path) {
    const entry = make("li");
    const text = make("span", item.title ? `${item.title}: ${item.content}` : item.content);
    const kind = item.kind || item.memory_type || "";
    const origin = item.made_by ? `made by ${item.made_by}` : `${item.speaker === "user" ? "you said it" : "the companion said it"}`;
    const about = [kind, origin, new Date(item.created_at).toLocaleDateString()].filter(Boolean).join(" · ");
    entry.append(text, make("small", about));
    const address = `/${path}/${item.id}`;
    entry.append(
      button("Correct", `Correct: ${item.content}`, () => this.#correct(entry, item, address)),
      button("Forget", `Forget: ${item.content}`, () => this.#do(() => this.#mind.request("DELETE", address))),
    );
    return entry;
  }

  #correct(entry, item, address) {
    const form = make("form");
    const text = Object.assign(make("textarea"), { value: item.content, rows: 3 });
    text.setAttribute("aria-label", "What it should say");
    form.append(text, Object.assign(make("button", "Keep"), { type: "submit" }));
    form.onsubmit = (event) => {
      event.preventDefault();
      const change = { content: text.value };
      if (item.revision) change.revision = item.revision;
      this.#do(() => this.#mind.request("PATCH", address, change));
    };
    entry.replaceChildren(form);
    text.focus();
  }

  #sessions(sessions) {
    const items = sessions.map(({ id, opened_at, turns }) => {
      const entry = make("li");
      const when = new Date(opened_at).toLocaleString();
      const path = `/memories?session=${encodeURIComponent(id)}`;
      entry.append(
        make("span", `${when}, ${turns} turns`),
        button("Show", `Show the session of ${when}`, ({ target }) => this.#showTurns(entry, target, id)),
        button("Forget", `Forget the session of ${when}`, () => this.#do(() => this.#mind.request("DELETE", path))),
      );
      return entry;
    });
    return folded(`Sessions (${sessions.length})`, items);
  }

  /** What was said in a session, some at a time: whatever was not kept can be forgotten too. */
  async #showTurns(entry, more, session, after = 0) {
    more.disabled = true;
    try {
      const path = `/turns?session=${encodeURIComponent(session)}&limit=${PAGE}&after=${after}`;
      const { turns, next_after } = await this.#mind.request("GET", path);
      more.remove();
      entry.append(...turns.map((turn) => this.#turn(turn)));
      if (next_after) {
        entry.append(button("More", "Show more of the session", ({ target }) => this.#showTurns(entry, target, session, next_after)));
      }
    } catch (error) {
      more.disabled = false;
      this.#say(`That failed: ${error.message}`);
    }
  }

  #turn({ id, speaker, text, memory }) {
    const shown = make("div");
    const about = `${speaker === "user" ? "you said it" : "the companion said it"} · ${memory ? "remembered" : "not kept"}`;
    const forget = () => this.#do(() => this.#mind.request("DELETE", `/memories?turn=${id}`));
    shown.append(make("span", text), make("small", about), button("Forget", `Forget what was said: ${text}`, forget));
    return shown;
  }

  async #export() {
    const exported = await this.#mind.request("GET", "/export");
    return save(exported, exported.companion);
  }

  async #erase() {
    if (!confirm("Erase everything that every companion knows about you, for good?")) return;
    try {
      const { relationships, memories, turns } = await this.#mind.eraseUser();
      this.#find("layers").replaceChildren();
      this.#say(`Erased for good: ${count(relationships, "companion")}, ${count(memories, "memory", "memories")}, ${count(turns, "turn")}.`);
    } catch (error) {
      this.#say(`That failed: ${error.message}`);
    }
  }

  async #import(input) {
    const [file] = input.files;
    input.value = "";
    return this.#mind.restore(JSON.parse(await file.text()));
  }

  /** Do something, say what came of it, and show what is known afterwards. */
  async #do(act) {
    try {
      this.#say(outcome(await act()));
      await this.#show();
    } catch (error) {
      this.#say(`That failed: ${error.message}`);
    }
  }

  #say(text) {
    this.#find("panel-notice").textContent = text || "\u00a0";
  }

  #find(id) {
    return this.#dialog.querySelector(`#${id}`);
  }
}

/** What the server did, in words. */
function outcome(answer) {
  if ("memories" in answer) {
    return `Forgotten for good: ${count(answer.memories.length, "memory", "memories")}, ${count(answer.turns, "turn")}, ${count(answer.records, "other record")}.`;
  }
  if ("exported" in answer) return `Exported ${count(answer.exported, "turn")}.`;
  return "Done.";
}

function count(number, singular, plural = `${singular}s`) {
  return `${number} ${number === 1 ? singular : plural}`;
}

/** Hand out a file. */
function save(exported, name) {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(exported, null, 1)], { type: "application/json" }));
  link.download = `foremind-${name}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
  const all = exported.relationships ?? [exported];
  return { exported: all.reduce((sum, { turns }) => sum + turns.length, 0) };
}

function trail(audit) {
  const items = audit.toReversed().map(({ actor, action, subject, happened_at }) => {
    return make("li", `${new Date(happened_at).toLocaleString()}: ${actor}, ${action}, ${subject}`);
  });
  return folded(`Changes (${audit.length})`, items);
}

function folded(title, items) {
  const section = make("details");
  const list = make("ul");
  list.append(...items);
  section.append(make("summary", title), list);
  section.open = items.length > 0 && items.length < 8;
  return section;
}

function button(text, label, act) {
  const made = Object.assign(make("button", text), { type: "button", onclick: act });
  made.setAttribute("aria-label", label);
  return made;
}

function make(tag, text = "") {
  return Object.assign(document.createElement(tag), { textContent: text });
}
