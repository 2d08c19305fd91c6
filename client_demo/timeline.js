/** The last message as a timeline: what happened when, in milliseconds, before and after Enter. */

import { milliseconds, say, sayValue } from "./language.js";

const NOW = () => performance.now();

export class Timeline {
  #list;
  #summary;
  #at = {};
  #keys = 0;

  constructor(list, summary) {
    this.#list = list;
    this.#summary = summary;
  }

  /** Nothing was typed yet. */
  reset() {
    this.#at = {};
    this.#keys = 0;
    this.#list.replaceChildren();
    this.#summary.textContent = say("timeline.invitation");
  }

  /** A key changed the draft. The first after Enter begins a new message. */
  key() {
    if (!this.#keys || this.#at.enter) {
      this.#at = { firstKey: NOW() };
      this.#keys = 0;
    }
    this.#keys += 1;
    this.#at.lastKey = NOW();
    delete this.#at.ready;
    this.#draw();
  }

  /** A context is ready; `timings` are the server's. A pause may confirm what was ready before. */
  ready(timings, trigger) {
    if (this.#at.ready && trigger === "pause") return;
    if (this.#at.accepted) return; // another reply is made
    Object.assign(this.#at, { ready: NOW(), timings, trigger });
    this.#draw();
  }

  enter() {
    this.#at.enter = NOW();
    this.#draw();
  }

  accepted(context, readyMs, ahead) {
    Object.assign(this.#at, { accepted: NOW(), context, readyMs, ahead });
    this.#draw();
  }

  token() {
    this.#at.token ??= NOW();
    this.#draw();
  }

  stored(kept) {
    Object.assign(this.#at, { stored: NOW(), kept });
    this.#draw();
  }

  #rows() {
    const { firstKey, lastKey, ready, enter, accepted, token, stored, timings, trigger, kept } = this.#at;
    const rows = [[say("timeline.keys", { n: this.#keys }), firstKey, lastKey, "", lastKey - firstKey]];
    if (ready) {
      const searched = ready;
      const embedded = searched - timings.search_ms;
      const began = embedded - timings.embed_ms;
      if (trigger !== "send") rows.push([say(trigger === "eager" ? "timeline.settled" : "timeline.pause"), lastKey, began, "", began - lastKey]);
      rows.push([say("timeline.embed"), began, embedded, "good", timings.embed_ms]);
      rows.push([say("timeline.search"), embedded, searched, "good", timings.search_ms]);
      rows.push([say("timeline.done"), ready, ready, "good", null]);
    }
    if (enter) rows.push([say("timeline.enter"), enter, enter, "enter", null]);
    if (accepted) rows.push([say("timeline.saved"), enter, accepted, "", accepted - enter]);
    if (token) rows.push([say("timeline.word"), enter, token, "", token - enter]);
    if (stored) rows.push([say(kept ? "timeline.remembered" : "timeline.not-kept"), enter, stored, "", stored - enter]);
    return rows;
  }

  #draw() {
    const rows = this.#rows();
    // Typing may take long: the axis begins at the last key.
    const from = this.#at.lastKey;
    const until = Math.max(from + 1, ...rows.map((row) => row[2]));
    const percent = (time) => (100 * Math.max(0, time - from)) / (until - from);
    this.#list.replaceChildren(
      ...rows.flatMap(([name, begin, end, kind, ms]) => {
        const label = Object.assign(document.createElement("dt"), { textContent: name });
        const track = document.createElement("dd");
        const bar = Object.assign(document.createElement("span"), { className: `bar ${kind}` });
        bar.style.left = `${Math.min(99, percent(begin))}%`;
        bar.style.width = `${Math.max(0, percent(end) - percent(begin))}%`;
        if (end > from) track.append(bar);
        const value = Object.assign(document.createElement("dd"), { className: "ms" });
        value.textContent = ms === null ? say("timeline.at", { ms: milliseconds(begin - from) }) : milliseconds(ms);
        return [label, track, value];
      }),
    );
    this.#summary.textContent = this.#sentence();
  }

  #sentence() {
    const { ready, enter, accepted, context, readyMs, trigger, ahead } = this.#at;
    if (!accepted) return say(ready ? "timeline.ready" : "timeline.listening");
    const lead = ready && trigger !== "send" ? enter - ready : 0;
    const values = { context: sayValue("context", context), ready: milliseconds(readyMs), ahead: say(`timeline.ahead.${ahead}`), lead: milliseconds(lead) };
    return say(lead > 0 ? "timeline.ahead" : "timeline.late", values);
  }
}
