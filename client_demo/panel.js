/** The memory panel, where users see, correct, forget, export and import what is known about them. */

import { button, make, save } from "./elements.js";
import { counted, sure } from "./forgetting.js";
import { failure, moment, origin, say, sayCount, sayValue } from "./language.js";

const LAYERS = ["profile", "hot", "scratchpad", "vault", "questions", "topics", "episodes", "summary", "opening"];
const PAGE = 200; // memories, or turns, that are fetched at once

export class MemoryPanel {
  #dialog;
  #mind = null;
  #user = null; // the id of whoever looks
  #changed;
  #erased;

  /** `changed` is told after each change, `erased` in words what was erased, once everything was. */
  constructor(dialog, changed, erased) {
    this.#dialog = dialog;
    this.#changed = changed;
    this.#erased = erased;
    const on = (id, event, act) => this.#find(id).addEventListener(event, act);
    on("close-panel", "click", () => dialog.close());
    on("forget-about", "submit", (event) => {
      event.preventDefault();
      this.#forget(`/memories?about=${encodeURIComponent(this.#find("about").value)}`);
    });
    on("forget-all", "click", () => {
      if (confirm(say("panel.forget-all.sure"))) this.#change(() => this.#mind.request("DELETE", "/memories"));
    });
    on("export-user", "click", () => this.#do(async () => handOut(await this.#mind.exportUser(), "all")));
    on("erase-user", "click", () => this.#erase());
    on("remember", "submit", (event) => {
      event.preventDefault();
      const layer = this.#find("remember-layer").value;
      const content = this.#find("remember-text").value;
      const kind = layer === "scratchpad" ? "other" : "";
      const title = layer === "profile" ? say("panel.about-me") : "";
      this.#change(async () => {
        const saved = await this.#mind.request("POST", "/records", { layer, kind, title, content });
        this.#find("remember-text").value = "";
        return saved;
      });
    });
    on("export", "click", () => this.#do(() => this.#export()));
    on("import", "change", ({ target }) => this.#change(() => this.#import(target)));
  }

  /** Show what the server knows, as of now. */
  async open(mind, user) {
    this.#mind = mind;
    this.#user = user;
    this.#say("");
    this.#find("layers").replaceChildren();
    if (!this.#dialog.open) this.#dialog.showModal();
    await this.#show().catch((error) => this.#say(failure(error)));
  }

  async #show() {
    const [{ memories }, { records }, { sessions }, { audit }, { steps }] = await Promise.all(
      [`/memories?limit=${PAGE}`, "/records", "/sessions", "/audit", "/status"].map((path) => this.#mind.request("GET", path)),
    );
    const shown = LAYERS.map((layer) =>
      this.#section(say(`layer.${layer}`), records.filter((each) => each.layer === layer), "records"),
    );
    const kept = this.#section(say("layer.memories"), memories.toReversed(), "memories");
    this.#find("layers").replaceChildren(...waiting(steps), ...shown, kept, this.#sessions(sessions), trail(audit, this.#user));
  }

  #section(title, items, path) {
    return folded(`${title} (${items.length})`, items.map((item) => this.#item(item, path)));
  }

  #item(item, path) {
    const entry = make("li");
    const text = span(item.title ? `${sayValue("label", item.title)}: ${item.content}` : item.content);
    const from = item.made_by ? sayValue("made-by", item.made_by) : origin(item);
    const status = item.details?.status ?? "";
    const about = [sayValue("label", item.kind ?? ""), status && status !== "open" ? say(`status.${status}`) : "", from, moment(item.created_at, { dateStyle: "medium" })].filter(Boolean).join(" · ");
    entry.append(text, small(about));
    const address = `/${path}/${item.id}`;
    if (status === "open") {
      const defer = () => this.#change(() => this.#mind.request("PATCH", address, { status: "deferred" }));
      entry.append(button(say("defer"), say("defer.what", { text: item.content }), defer));
    }
    entry.append(
      button(say("correct"), say("correct.what", { text: item.content }), () => this.#correct(entry, item, address)),
      button(say("forget"), say("forget.what", { text: item.content }), () => this.#forget(address)),
    );
    return entry;
  }

  #correct(entry, item, address) {
    const form = make("form");
    const text = make("textarea", { value: item.content, rows: 3 });
    text.setAttribute("aria-label", say("correct.should"));
    form.append(text, make("button", { type: "submit", textContent: say("keep") }));
    form.onsubmit = (event) => {
      event.preventDefault();
      const change = { content: text.value };
      if (item.revision) change.revision = item.revision;
      this.#change(() => this.#mind.request("PATCH", address, change));
    };
    entry.replaceChildren(form);
    text.focus();
  }

  #sessions(sessions) {
    const items = sessions.map(({ id, opened_at, turns }) => {
      const entry = make("li");
      const when = moment(opened_at);
      const path = `/memories?session=${encodeURIComponent(id)}`;
      entry.append(
        span(say("session.what", { when, turns: sayCount("turn-count", turns) })),
        button(say("show"), say("session.show", { when }), ({ target }) => this.#showTurns(entry, target, id)),
        button(say("forget"), say("session.forget", { when }), () => this.#forget(path)),
      );
      return entry;
    });
    return folded(`${say("layer.sessions")} (${sessions.length})`, items);
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
        entry.append(button(say("more"), say("session.more"), ({ target }) => this.#showTurns(entry, target, session, next_after)));
      }
    } catch (error) {
      more.disabled = false;
      this.#say(failure(error));
    }
  }

  #turn({ id, speaker, text, memory }) {
    const shown = make("div");
    const about = `${origin({ speaker })} · ${say(memory ? "remembered" : "not-kept")}`;
    const forget = () => this.#forget(`/memories?turn=${id}`);
    shown.append(span(text), small(about), button(say("forget"), say("forget.turn", { text }), forget));
    return shown;
  }

  async #export() {
    const exported = await this.#mind.request("GET", "/export");
    return handOut(exported, exported.companion);
  }

  async #erase() {
    if (!confirm(say("panel.erase-user.sure"))) return;
    try {
      const { relationships, memories, turns } = await this.#mind.eraseUser();
      const erased = { companions: sayCount("companion-count", relationships), memories: sayCount("memory-count", memories), turns: sayCount("turn-count", turns) };
      this.#dialog.close();
      this.#erased(say("panel.erased", erased));
    } catch (error) {
      this.#say(failure(error));
    }
  }

  async #import(input) {
    const [file] = input.files;
    input.value = "";
    try {
      return await this.#mind.restore(file);
    } catch (error) {
      throw error.status === 400 ? new Error(say("import.wrong", { file: file.name })) : error;
    }
  }

  /** Forget what a path names, unless it is more than the player meant. */
  #forget(path) {
    return this.#change(async () => {
      const meant = path.startsWith("/records") || (await sure(this.#mind, path));
      return meant && this.#mind.request("DELETE", path);
    });
  }

  /** Change what is known, and have the page show it too. */
  #change(act) {
    return this.#do(async () => {
      const answer = await act();
      this.#changed();
      return answer;
    });
  }

  /** Do something, say what came of it, and show what is known afterwards. */
  async #do(act) {
    try {
      this.#say(outcome(await act()));
      await this.#show();
    } catch (error) {
      this.#say(failure(error));
    }
  }

  #say(text) {
    this.#find("panel-notice").textContent = text || "\u00a0";
  }

  #find(id) {
    return this.#dialog.querySelector(`#${id}`);
  }
}

/** What a file of JSON says; null if it is none. */
/** What the server did, in words; nothing if the player did not mean it. */
function outcome(answer) {
  if (!answer) return say("undo.done");
  if ("memories" in answer) return say("panel.forgotten", counted(answer));
  if ("exported" in answer) return say("panel.exported", { turns: sayCount("turn-count", answer.exported) });
  if ("program" in answer) {
    const { program, turns, notices } = answer;
    const imported = say("panel.imported", { program, turns: sayCount("turn-count", turns) });
    return [imported, ...notices.map(({ field, text }) => `${field}: ${text}`)].join("\n");
  }
  return say("panel.done");
}

/** Hand out a file. */
function handOut(exported, name) {
  save(new Blob([JSON.stringify(exported, null, 1)], { type: "application/json" }), `foremind-${name}.json`);
  const all = exported.relationships ?? [exported];
  return { exported: all.reduce((sum, { turns }) => sum + turns.length, 0) };
}

/** What was said and waits to be read, and until when; nothing if nothing does. */
function waiting(steps) {
  const { state, behind, due_at } = steps.find(({ step }) => step === "notes");
  if (state !== "gathering" || !behind) return [];
  const when = moment(due_at, { timeStyle: "medium" });
  return [make("p", { className: "quiet", textContent: say("panel.waits", { turns: sayCount("turn-count", behind), when }) })];
}

function trail(audit, user) {
  const items = audit.toReversed().map(({ actor, action, subject, happened_at }) => {
    const who = sayValue("actor", actor === user ? "you" : actor);
    return make("li", { textContent: `${moment(happened_at)}: ${who}, ${sayValue("action", action)}, ${subjectOf(subject)}` });
  });
  return folded(`${say("layer.audit")} (${audit.length})`, items);
}

/** What a change was about: "3 turns", "vault 12", "a topic", as the server writes it. */
function subjectOf(subject) {
  const [first, ...rest] = subject.replace(/^a /, "").split(" ");
  if (["turns", "records"].includes(rest[0])) return sayCount(rest[0] === "turns" ? "turn-count" : "record-count", Number(first));
  const known = LAYERS.includes(first) ? say(`layer.${first}`) : sayValue("subject", first);
  return [known, ...rest].join(" ");
}

function folded(title, items) {
  const section = make("details", {}, make("summary", { textContent: title }), make("ul", {}, ...items));
  section.open = items.length > 0 && items.length < 8;
  return section;
}

function span(text) {
  return make("span", { textContent: text });
}

function small(text) {
  return make("small", { textContent: text });
}
