/**
 * Foremind client: talks the socket protocol, version 1, from a page or a game.
 *
 *   import { Foremind } from "./foremind.js";
 *   const mind = new Foremind({ companion: "wren", user: { id: "u1", name: "Ana" } });
 *   mind.addEventListener("context.ready", ({ detail }) => console.log(detail.memories));
 *   mind.addEventListener("response.output_text.delta", ({ detail }) => show(detail.delta));
 *   mind.connect();
 *   input.oninput = () => mind.type(input.value);   // every keystroke; merged for 50 ms
 *   mind.send(input.value);                         // Enter; survives a lost connection
 *
 * A lost connection is resumed: what was missed is dispatched then, once and in order. Where that
 * cannot be, `session.opened` says `resumed: false` and gives the last turns instead.
 *
 * Every server event is dispatched as a CustomEvent of its own `type`, with the event as
 * `detail`. Besides these there is "state", with detail { state, code, reason }: "connecting",
 * "open", "waiting" (until the next try) or "closed" (for good: `close()` was called, or the
 * server said not to come back).
 */

const MERGE_MS = 50; // what the protocol allows a client to hold keystrokes back
const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 15_000;
const RESUBMIT_MS = 1_000; // after a retryable error
const MAX_UNACCEPTED = 16; // messages kept for sending again
const FINAL_CODES = new Set([4400, 4401, 4403, 4409]);
const TOKEN_OVER = 4401;

/**
 * @typedef {Object} Options
 * @property {string} companion slug of the companion to talk with
 * @property {{id: string, name: string}} [user] who is talking, where the server runs open
 * @property {string | (() => string | Promise<string>)} [token] a signed token, where it does
 *   not; or what gets one, which is asked again for every connection
 * @property {string} [url] the socket; by default that of the page's own server
 */

/**
 * An event of the server, as `GET /v1/asyncapi.json` describes it.
 * @typedef {{type: string, seq: number, [field: string]: any}} ServerEvent
 */

/** @typedef {"connecting" | "open" | "waiting" | "closed"} State */

export class Foremind extends EventTarget {
  /** @type {Options} */
  #options;
  /** @type {WebSocket | null} */
  #socket = null;
  #closed = false;
  #attempt = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retry;
  #open = false;
  /** The newest draft that is not sent yet. @type {string | null} */
  #draft = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #merge;
  /** Its id and its user's, once the session is open. @type {{id: number, user: string} | null} */
  #relationship = null;
  /** To resume it by. @type {{session_id: string, seq: number} | null} */
  #session = null;
  /** The one in use. @type {string | null} */
  #token = null;
  /** By message id, until message.accepted. @type {Map<string, string>} */
  #unaccepted = new Map();

  /** @param {Options} options */
  constructor(options) {
    super();
    this.#options = options;
  }

  /** True while messages go straight to the server. */
  get open() {
    return this.#open;
  }

  /** Connect, and stay connected until `close()`. */
  connect() {
    this.#closed = false;
    this.#dial();
  }

  /**
   * Tell the whole draft as it now stands; call it on every keystroke.
   * @param {string} text
   */
  type(text) {
    this.#draft = text;
    this.#merge ??= setTimeout(() => this.#flushDraft(), MERGE_MS);
  }

  /** Tell that the draft was given up. */
  clear() {
    this.#forgetDraft();
    this.#write({ type: "draft.clear" });
  }

  /**
   * Press Enter. The message is kept and sent again after a lost connection until the server has
   * stored it; its id makes sure that it is stored and answered once.
   * @param {string} text
   * @returns {string} the message's id
   * @throws {RangeError} while too many messages wait for the server
   */
  send(text) {
    if (this.#unaccepted.size >= MAX_UNACCEPTED) {
      throw new RangeError("too many messages wait for the server");
    }
    const id = newId();
    this.#forgetDraft();
    this.#unaccepted.set(id, text);
    this.#submit(id);
    return id;
  }

  /**
   * Stop a reply.
   * @param {string} responseId as in response.created
   */
  cancel(responseId) {
    this.#write({ type: "response.cancel", response_id: responseId });
  }

  /**
   * Forget a memory for good, with everything that quotes it.
   * @param {string} memoryId as in context.ready and memory.stored
   * @returns {Promise<{memories: number[], turns: number, records: number, reread: number}>} the receipt
   * @throws {Error} saying why it could not be done
   */
  forget(memoryId) {
    return this.request("DELETE", `/memories/${memoryId}`);
  }

  /**
   * Ask the server something about this relationship, or have it changed.
   * @param {string} method
   * @param {string} path below `/v1/relationships/{id}`
   * @param {object} [body] sent as JSON
   * @returns {Promise<any>} the answer
   * @throws {Error} saying why it could not be done
   */
  async request(method, path, body) {
    if (!this.#relationship) throw new Error("not connected");
    return this.#fetch(method, `/v1/relationships/${this.#relationship.id}${path}`, body);
  }

  /**
   * Restore what was exported, as this user's relationship with this companion.
   * @param {object} exported
   * @returns {Promise<{id: number}>}
   * @throws {Error} saying why it could not be done
   */
  restore(exported) {
    const companion = encodeURIComponent(this.#options.companion);
    return this.#fetch("POST", `/v1/relationships/import?companion=${companion}`, exported);
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {object} [body]
   */
  async #fetch(method, path, body) {
    const { url = ownServer() } = this.#options;
    const token = this.#token;
    const target = new URL(path, url.replace(/^ws/, "http"));
    const headers = new Headers();
    if (token) headers.set("authorization", `Bearer ${token}`);
    else if (this.#relationship) target.searchParams.set("user", this.#relationship.user);
    const answer = await fetch(target, { method, headers, body: body && JSON.stringify(body) });
    const result = await answer.json();
    if (!answer.ok) throw new Error(result.error.message);
    return result;
  }

  /** Leave for good. */
  close() {
    this.#closed = true;
    clearTimeout(this.#retry);
    this.#forgetDraft();
    if (this.#socket) this.#socket.close(1000);
    else this.#tell("closed", 1000, "");
  }

  #dial() {
    this.#tell("connecting");
    const socket = new WebSocket(this.#options.url ?? ownServer());
    this.#socket = socket;
    socket.onopen = async () => {
      const { companion, user, token } = this.#options;
      this.#token = typeof token === "function" ? await token() : (token ?? null);
      // "Yesterday" is the player's, not the server's.
      const time_zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
      const who = this.#token ? { token: this.#token } : { user };
      const resume = this.#session ? { resume: this.#session } : {};
      socket.send(JSON.stringify({ type: "session.open", companion, time_zone, ...who, ...resume }));
    };
    socket.onmessage = ({ data }) => {
      if (this.#socket === socket) this.#receive(JSON.parse(data));
    };
    socket.onclose = ({ code, reason }) => this.#lost(code, reason);
  }

  /** @param {ServerEvent} event */
  #receive(event) {
    if (event.type === "session.opened") {
      this.#session = { session_id: event.session_id, seq: event.seq };
      this.#relationship = { id: event.relationship_id, user: event.user.id };
      this.#open = true;
      this.#attempt = 0;
      this.#tell("open");
    }
    if (this.#session) this.#session.seq = event.seq;
    if (event.type === "message.accepted") this.#unaccepted.delete(event.id);
    if (event.type === "error") this.#refused(event.error);
    this.dispatchEvent(new CustomEvent(event.type, { detail: event }));
    if (event.type === "session.opened") {
      for (const id of this.#unaccepted.keys()) this.#submit(id);
    }
  }

  /**
   * The event id of a message is its own, so that an error can be told to be about it.
   * @param {string} id
   */
  #submit(id) {
    const text = this.#unaccepted.get(id);
    if (text !== undefined) this.#write({ type: "message.send", id, text, event_id: id });
  }

  /**
   * Try a message again later, or give it up where the server will never take it.
   * @param {{event_id: string, retryable: boolean}} error
   */
  #refused({ event_id: id, retryable }) {
    if (!this.#unaccepted.has(id)) return;
    if (retryable) setTimeout(() => this.#submit(id), RESUBMIT_MS);
    else this.#unaccepted.delete(id);
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  #lost(code, reason) {
    this.#open = false;
    this.#socket = null;
    // A token that ran out can be had anew; one that was never taken cannot.
    const renewable = code === TOKEN_OVER && this.#session && typeof this.#options.token === "function";
    if (this.#closed || (FINAL_CODES.has(code) && !renewable)) {
      this.#tell("closed", code, reason);
      return;
    }
    // Full jitter: clients that lost the same server do not come back at the same moment.
    const longest = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.#attempt++);
    this.#tell("waiting", code, reason);
    this.#retry = setTimeout(() => this.#dial(), Math.random() * longest);
  }

  #flushDraft() {
    const text = this.#draft;
    this.#forgetDraft();
    if (text !== null) this.#write({ type: "draft.update", text });
  }

  #forgetDraft() {
    clearTimeout(this.#merge);
    this.#merge = undefined;
    this.#draft = null;
  }

  /** @param {object} message */
  #write(message) {
    if (this.#open) this.#socket?.send(JSON.stringify(message));
  }

  /**
   * @param {State} state
   * @param {number} [code]
   * @param {string} [reason]
   */
  #tell(state, code, reason) {
    this.dispatchEvent(new CustomEvent("state", { detail: { state, code, reason } }));
  }
}

function ownServer() {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/ws`;
}

/** A random id; unlike crypto.randomUUID also on pages that were not loaded over TLS. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
