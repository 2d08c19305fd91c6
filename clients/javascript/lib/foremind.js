/**
 * Foremind client: talks the socket protocol, version 1, from a page, a game or Node.
 *
 *   import { Foremind } from "./foremind.js";
 *   const mind = new Foremind({ companion: "wren", user: { id: "u1", name: "Ana" } });
 *   mind.on("context.ready", (event) => console.log(event.memories));
 *   mind.on("response.output_text.delta", (event) => show(event.delta));
 *   mind.connect();
 *   input.oninput = () => mind.type(input.value);   // every keystroke; merged for 50 ms
 *   mind.send(input.value);                         // Enter; survives a lost connection
 *
 * A lost connection is resumed: what was missed is dispatched then, once and in order. Where that
 * cannot be, `session.opened` says `resumed: false` and gives the last turns instead.
 *
 * Of several gateways one serves a session, wherever it was asked for: the client goes where
 * `session.redirect` says, and comes back where it cannot get there.
 *
 * With `world` and `scene` in place of `companion`, a player joins a scene of a world, and joins it
 * again after a lost connection. A game server also tells the world what happens, by `report`, and
 * minds what came of what they ask for, by `answerAction`.
 *
 * Every server event is dispatched as a CustomEvent of its own `type`, with the event as
 * `detail`; `on` gives that alone. Besides these there is "state", see `StateChange`.
 */

const MERGE_MS = 50; // what the protocol allows a client to hold keystrokes back
const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 15_000;
const RESUBMIT_MS = 1_000; // after a retryable error
const MAX_UNACCEPTED = 16; // messages kept for sending again
const MAX_REPORTS = 8; // requests for one report
const MAX_FRAME_BYTES = 65_536; // the server closes connections that exceed it
const FINAL_CODES = new Set([4400, 4403, 4409]); // do not reconnect after these
const NOT_AUTHENTICATED = 4401;
const ELSEWHERE = 4421; // another gateway serves the session
const MAX_REFUSALS = 3; // fresh tokens that may be refused in a row
const TOLD_TIMEOUT_MS = 2_000; // to reach a gateway that the server named
const TOKEN_TIMEOUT_MS = 30_000;
const ANSWER_TIMEOUT_MS = 30_000; // to open a session, or to store a message
const SHARE_OF_LIFE = 0.8; // of a token, after which it is replaced

/**
 * With whom: the slug of a companion or, in place of it, a world and the scene of it that is joined.
 * @typedef {{companion: string, world?: undefined, scene?: undefined}
 *   | {companion?: undefined, world: string, scene: string}} Partner
 */

/**
 * @typedef {Object} ConnectionOptions
 * @property {{id: string, name: string}} [user] who is talking, where the server runs open
 * @property {string | (() => string | Promise<string>)} [token] a signed token, where it does
 *   not; or what gets one, which is asked for every connection, and again before a token expires;
 *   where it fails, it is asked again like a connection that cannot be made
 * @property {string} [language] the player's, a BCP 47 tag such as "de" or "pt-BR"; by default the
 *   one that was stated last
 * @property {boolean} [sentences] whether `response.sentence` is received: each sentence of a reply,
 *   for a voice
 * @property {string} [url] the socket; by default that of the page's own server
 * @property {new (url: string) => any} [WebSocket] the class to connect with; by default the global
 *   one. Node has one from version 22 on; before that, give it the one of the package `ws`
 * @property {number} [firstRetryMs] longest wait before the first attempt to reconnect; it doubles
 *   up to 15 s
 * @property {number} [answerTimeoutMs] how long a server may take to open a session or to store a
 *   message; one that is silent for longer is connected to again
 */

/** @typedef {Partner & ConnectionOptions} Options */

/** @typedef {"connecting" | "open" | "waiting" | "closed"} State */

/**
 * What "state" tells of the connection.
 * @typedef {Object} StateChange
 * @property {State} state "waiting": until the next attempt. "closed": for good, as `close()` was
 *   called, the server said not to reconnect, or it refused to open the session
 * @property {number} [code] with which the connection was closed; 0 if it never was one
 * @property {string} [reason]
 * @property {number} [retryMs] how long "waiting" lasts
 */

/**
 * An event of the server, also one of a later version.
 * @typedef {{type: string, seq: number, [field: string]: any}} AnyEvent
 */

/**
 * What is dispatched, by its type: every event of the server, and "state".
 * @typedef {import("./protocol.js").ServerEvents & {state: StateChange}} Events
 */

/**
 * The settings that one message may have, for its own turn.
 * @typedef {import("./protocol.js").TurnSettings} TurnSettings
 */

/**
 * Whom something is said to in a scene, by id or slug, by default to all; and how loud.
 * @typedef {{to?: string | string[], volume?: "whisper" | "say" | "shout"}} Speech
 */

/**
 * Something that happens in a world, as in `docs/worlds.md`.
 * @typedef {{id: string, type: string, text: string, [field: string]: any}} WorldEvent
 */

/**
 * What an `EventTarget` takes, in a browser as in Node, whose types have not the same names.
 * @typedef {Parameters<EventTarget["addEventListener"]>[1]} AnyListener
 */
/** @typedef {Parameters<EventTarget["addEventListener"]>[2]} ListenerOptions */

export class Foremind extends EventTarget {
  /** @type {Options} */
  #options;
  /** A WebSocket, of whichever class. @type {any} */
  #socket = null;
  #closed = false;
  #attempt = 0; // in a row that failed
  #openedAt = 0;
  /** Fresh tokens that were refused since a session was opened. */
  #refusals = 0;
  /** Raised by whatever ends an attempt to connect, so that pending waits end. */
  #dialled = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retry;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #renewal;
  /** Runs while an answer is expected. @type {ReturnType<typeof setTimeout> | undefined} */
  #patience;
  #open = false;
  /** The gateway that serves the session, as the server told. @type {string | null} */
  #owner = null;
  /** Whether it was told since a session was opened: then the next one is to serve it. */
  #redirected = false;
  /** Whether this connection was told where its open session goes on. */
  #moved = false;
  /** What was told since then, and did not answer. @type {string | null} */
  #unanswered = null;
  /** The newest draft that is not sent yet. @type {({text: string} & Speech) | null} */
  #draft = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #merge;
  /** Its id and its user's, once a session with a companion is open. @type {{id: string, user: string} | null} */
  #relationship = null;
  /** To resume it by. @type {{session_id: string, seq: number} | null} */
  #session = null;
  /** The one in use. @type {string | null} */
  #token = null;
  /**
   * What goes on, until the server has said that it knows.
   * @type {{id: string, patch: {task?: string, flags: Object<string, any>}} | null}
   */
  #untold = null;
  /**
   * The frames of message.send, message.edit and response.regenerate by id, until message.accepted,
   * and those of action.result by event id, until action.accepted.
   * @type {Map<string, {type: string, id: string, [field: string]: any}>}
   */
  #unaccepted = new Map();
  /** Who handles "context.ready", which the server sends only while there are some. */
  #prepares = new Set();
  /** Whether the server was told that there are. */
  #asked = false;

  /**
   * @param {Options} options
   * @throws {TypeError} naming the option that is missing
   */
  constructor(options) {
    super();
    if (!!options?.companion === !!(options?.world || options?.scene)) {
      throw new TypeError("companion: expected the slug of a companion, or world and scene");
    }
    for (const name of /** @type {const} */ (["world", "scene"])) {
      if (!options.companion && !options[name]) throw new TypeError(`${name}: expected the name of a ${name}`);
    }
    if (!options.url && typeof location === "undefined") {
      throw new TypeError("url: expected ws://HOST:PORT/v1/ws; there is no page to take it from");
    }
    if (!options.WebSocket && typeof WebSocket === "undefined") {
      throw new TypeError("WebSocket: expected a class such as that of the package ws; none is global");
    }
    this.#options = options;
  }

  /**
   * Have every event of a type handled.
   * @template {keyof Events} Type
   * @param {Type} type
   * @param {(event: Events[Type]) => void} handle is given the event itself
   * @returns {() => void} ends it
   */
  on(type, handle) {
    /** @param {Event} event */
    const listener = (event) => handle(/** @type {CustomEvent<Events[Type]>} */ (event).detail);
    this.addEventListener(type, listener);
    return () => this.removeEventListener(type, listener);
  }

  /**
   * As of any `EventTarget`; an event's `detail` is of its type.
   * @template {keyof Events} Type
   * @overload
   * @param {Type} type
   * @param {(event: CustomEvent<Events[Type]>) => void} listener
   * @param {ListenerOptions} [options]
   * @returns {void}
   */
  /**
   * @overload
   * @param {string} type
   * @param {AnyListener} listener
   * @param {ListenerOptions} [options]
   * @returns {void}
   */
  /**
   * @param {string} type
   * @param {any} listener
   * @param {ListenerOptions} [options]
   */
  addEventListener(type, listener, options) {
    super.addEventListener(type, listener, options);
    if (type === "context.ready") this.#prepares.add(listener);
    this.#tellContexts();
  }

  /**
   * @param {string} type
   * @param {any} listener
   * @param {boolean | EventListenerOptions} [options]
   */
  removeEventListener(type, listener, options) {
    super.removeEventListener(type, listener, options);
    if (type === "context.ready") this.#prepares.delete(listener);
    this.#tellContexts();
  }

  /** True while messages go straight to the server. */
  get open() {
    return this.#open;
  }

  /** Connect, and stay connected until `close()`. */
  connect() {
    if (this.#socket && !this.#closed) return;
    clearTimeout(this.#retry);
    this.#closed = false;
    this.#dial();
  }

  /**
   * Tell the whole draft as it now stands; call it on every keystroke. One that fits no frame, or
   * was typed while there is no connection, is not told.
   * @param {string} text
   * @param {Speech} [how] in a scene: whom it will be said to, and how loud, as far as that is known
   */
  type(text, { to, volume } = {}) {
    this.#draft = { text, to, volume };
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
   * @param {Object} [how]
   * @param {boolean} [how.remember] false: no memory is made of it, and it is erased with its session
   * @param {TurnSettings} [how.settings] settings of this turn alone, by name
   * @param {Speech["to"]} [how.to] in a scene
   * @param {Speech["volume"]} [how.volume] in a scene
   * @returns {string} the message's id
   * @throws {RangeError} while 16 messages wait for the server, or if this one fits no frame
   */
  send(text, { remember = true, settings, to, volume } = {}) {
    return this.#keep({ type: "message.send", text, settings, to, volume, ...(remember ? {} : { remember }) });
  }

  /**
   * Put another text in the place of the last message, which is then forgotten with all replies to
   * it. It is kept and sent again as a message is.
   * @param {string} messageId of the last message
   * @param {string} text
   * @param {Object} [how] as for `send`
   * @param {boolean} [how.remember]
   * @param {TurnSettings} [how.settings]
   * @returns {string} the id of the message that takes its place
   * @throws {RangeError} while 16 messages wait for the server, or if this one fits no frame
   */
  edit(messageId, text, { remember = true, settings } = {}) {
    const frame = { type: "message.edit", message_id: messageId, text, settings };
    return this.#keep({ ...frame, ...(remember ? {} : { remember }) });
  }

  /**
   * Ask for another reply to the last message; the ones before can be chosen again. The request is
   * kept and sent again as a message is.
   * @param {string} messageId of the last message
   * @param {Object} [how]
   * @param {TurnSettings} [how.settings] settings of this reply alone, by name
   * @returns {string} the id of the request
   * @throws {RangeError} while 16 messages wait for the server, or if this one fits no frame
   */
  regenerate(messageId, { settings } = {}) {
    return this.#keep({ type: "response.regenerate", message_id: messageId, settings });
  }

  /**
   * Choose which reply to the last message stands; `response.chosen` says that it does.
   * @param {string} messageId of the last message
   * @param {number} index as in response.created, from 0
   */
  choose(messageId, index) {
    this.#write({ type: "response.choose", message_id: messageId, index });
  }

  /** @param {{type: string, [field: string]: any}} message */
  #keep(message) {
    if (this.#unaccepted.size >= MAX_UNACCEPTED) {
      throw new RangeError(`at most ${MAX_UNACCEPTED} messages may wait for the server`);
    }
    const id = newId();
    // The event id of a message is its own, so that an error can be told to be about it.
    const frame = { id, ...message, event_id: id };
    const isResult = frame.type === "action.result";
    const field = isResult ? "result" : "text";
    if (!fits(frame)) throw new RangeError(`${field}: expected a message of at most ${MAX_FRAME_BYTES} bytes`);
    if (!isResult) this.#forgetDraft();
    this.#unaccepted.set(id, frame);
    this.#submit(id);
    return id;
  }

  /** @param {string} messageId that the server has stored, or is answering again */
  #accepted(messageId) {
    this.#unaccepted.delete(messageId);
    for (const [id, frame] of this.#unaccepted) {
      const again = frame.type === "response.regenerate" && frame.message_id === messageId;
      if (again) this.#unaccepted.delete(id);
    }
  }

  /**
   * Tell a mind what came of an action that it asked for, as the game server of its world. It is
   * kept and sent again as a message is; the first result counts.
   * @param {string} id as in action.requested
   * @param {any} result in words or as JSON
   * @returns {string} what `action.accepted`, or an error, has as `event_id`
   * @throws {RangeError} while 16 messages wait for the server, or if this one fits no frame
   */
  answerAction(id, result) {
    return this.#keep({ type: "action.result", id, result });
  }

  /**
   * Report what happens in the world, as its game server; also without a connection. A failure that
   * may pass is tried again: no event is stored twice.
   * @param {WorldEvent[]} events
   * @returns {Promise<{id: string, duplicate: boolean}[]>} the stored events
   * @throws {Error} saying why it could not be done, also by its `code`, `param` and `retryable`
   */
  async report(events) {
    const path = `/v1/worlds/${encodeURIComponent(this.#options.world ?? "")}/events`;
    for (let failures = 1; ; failures++) {
      try {
        this.#token = await this.#freshToken();
        return (await this.#fetch("POST", path, { events })).events;
      } catch (/** @type {any} */ error) {
        if (error.retryable === false || failures === MAX_REPORTS) throw error; // without: no answer came
        const least = (error.retry_after_s ?? 0) * 1000;
        await new Promise((over) => setTimeout(over, least + Math.random() * this.#longestRetryMs(failures - 1)));
      }
    }
  }

  /**
   * Tell what goes on in the session: what is not given stays, a flag of null goes. It holds for
   * what is sent after it, and is told again after a lost connection until the server knows.
   * @param {{task?: string, flags?: Object<string, boolean | number | string | null>}} state
   * @throws {RangeError} if what the server does not know yet fits no frame
   */
  setState({ task, flags }) {
    const before = this.#untold?.patch;
    const patch = { ...before, flags: { ...before?.flags, ...flags } };
    if (task !== undefined) patch.task = task;
    const untold = { id: newId(), patch };
    if (!fits(stateUpdate(untold))) throw new RangeError(`state: expected at most ${MAX_FRAME_BYTES} bytes`);
    this.#untold = untold;
    this.#tellState();
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
   * @returns {Promise<{memories: string[], turns: number, records: number, reread: number, layers: Record<string, number>, remade: Record<string, number>, shortened: number, dry_run: boolean}>} the receipt
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
   * Everything that is known of this user, with every companion.
   * @returns {Promise<object>}
   * @throws {Error} saying why it could not be done
   */
  exportUser() {
    return this.#fetch("GET", `/v1/users/${encodeURIComponent(this.#user())}/export`);
  }

  /**
   * Erase this user everywhere, with every companion and for good; the session ends.
   * @returns {Promise<object>} how much there was
   * @throws {Error} saying why it could not be done
   */
  eraseUser() {
    return this.#fetch("DELETE", `/v1/users/${encodeURIComponent(this.#user())}`);
  }

  #user() {
    if (!this.#relationship) throw new Error("not connected");
    return this.#relationship.user;
  }

  /**
   * Restore what was exported, as this user's relationship with this companion; also another
   * program's file.
   * @param {object | Blob} exported
   * @returns {Promise<{id: string, program: string, turns: number, notices: {field: string, text: string}[]}>}
   * @throws {Error} saying why it could not be done
   */
  restore(exported) {
    const companion = encodeURIComponent(this.#options.companion ?? "");
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
    const isFile = body instanceof Blob;
    if (body) headers.set("content-type", isFile ? "application/octet-stream" : "application/json");
    const keepalive = method === "DELETE"; // also when the page is left at once
    const answer = await fetch(target, { method, headers, keepalive, body: isFile ? body : body && JSON.stringify(body) });
    const result = await answer.json();
    if (!answer.ok) throw Object.assign(new Error(result.error.message), result.error, { status: answer.status });
    return result;
  }

  /** Leave for good. */
  close() {
    this.#closed = true;
    this.#open = false;
    this.#attempt = 0;
    clearTimeout(this.#retry);
    clearTimeout(this.#renewal);
    this.#stopExpecting();
    this.#dialled++;
    this.#forgetDraft();
    if (this.#socket) this.#socket.close(1000);
    else this.#tell("closed", 1000, "");
  }

  async #dial() {
    this.#tell("connecting");
    const attempt = ++this.#dialled;
    try {
      const token = await this.#freshToken(); // first: the server waits only so long for it
      if (attempt !== this.#dialled) return;
      this.#token = token;
    } catch (error) {
      if (attempt === this.#dialled) this.#lost(0, `no token: ${error}`);
      return;
    }
    const { url = ownServer(), WebSocket: Socket = WebSocket } = this.#options;
    const socket = new Socket(this.#owner ?? url);
    this.#socket = socket;
    this.#expectAnswer();
    const tooLate = this.#owner && setTimeout(() => {
      if (this.#socket === socket) this.#lost(0, "no answer");
      socket.close();
    }, TOLD_TIMEOUT_MS);
    socket.onopen = () => {
      clearTimeout(tooLate ?? undefined);
      const { companion, world, scene, user, language, sentences } = this.#options;
      // "Yesterday" is the player's, not the server's.
      const time_zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
      const who = this.#token ? { token: this.#token } : { user };
      const resume = this.#session && !world ? { resume: this.#session } : {}; // a scene is joined again
      const redirected = this.#redirected;
      const contexts = (this.#asked = this.#prepares.size > 0);
      const hints = { time_zone, language };
      const open = { type: "session.open", companion, world, scene, ...hints, follow: true, redirected, contexts, sentences };
      socket.send(JSON.stringify({ ...open, ...who, ...resume }));
    };
    socket.onerror = () => {}; // it is closed next; an error that nobody handles ends a program in Node
    socket.onmessage = (/** @type {{data: string}} */ { data }) => {
      if (this.#socket === socket) this.#receive(JSON.parse(data));
    };
    socket.onclose = (/** @type {{code: number, reason: string}} */ { code, reason }) => {
      if (this.#socket === socket) this.#lost(code, reason);
    };
  }

  /** @returns {Promise<string | null>} */
  async #freshToken() {
    const { token } = this.#options;
    if (typeof token !== "function") return token ?? null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const tooLate = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error("it took too long")), TOKEN_TIMEOUT_MS);
    });
    try {
      return await Promise.race([token(), tooLate]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Give the session a fresh token before the one that it has expires. */
  #renewLater() {
    const delay = renewalDelay(this.#token, Date.now() / 1000);
    if (typeof this.#options.token !== "function" || delay === null || this.#options.world) return;
    const socket = this.#socket;
    this.#renewal = setTimeout(async () => {
      try {
        const token = await this.#freshToken();
        if (this.#socket !== socket || !this.#open) return;
        this.#token = token;
        this.#write({ type: "session.update", token });
        this.#renewLater();
      } catch {
        // The next connection gets one of its own.
      }
    }, Math.min(delay * 1000, 2 ** 31 - 1)); // what a timer can wait for
  }

  /** @param {AnyEvent} event */
  #receive(event) {
    this.#stopExpecting();
    if (event.type === "session.opened") {
      this.#session = { session_id: event.session_id, seq: event.seq };
      if (!this.#options.world) this.#relationship = { id: event.relationship_id, user: event.user.id };
      this.#open = true;
      this.#openedAt = performance.now();
      this.#refusals = 0;
      this.#redirected = this.#moved = false;
      this.#unanswered = null;
      this.#renewLater();
      this.#tell("open");
    }
    if (this.#open && this.#session) this.#session.seq = event.seq;
    if (event.type === "message.accepted") this.#accepted(event.id);
    if (event.type === "action.accepted") this.#unaccepted.delete(event.event_id);
    if (event.type === "session.updated") this.#told(event.event_id);
    if (event.type === "error") this.#refused(event.error);
    this.dispatchEvent(new CustomEvent(event.type, { detail: event }));
    if (event.type === "session.opened") {
      this.#tellState();
      this.#tellContexts();
      for (const id of this.#unaccepted.keys()) this.#submit(id);
    }
    if (event.type === "error" && !this.#open) this.#notOpened(event.error);
    if (!this.#open || this.#unaccepted.size) this.#expectAnswer();
    if (event.type === "session.redirect") this.#redirect(event.url);
  }

  /**
   * The session is served at another URL: an open one once its connection is closed, else at once.
   * @param {string} url
   */
  #redirect(url) {
    const secure = (this.#options.url ?? ownServer()).startsWith("wss:");
    const accepted = url.startsWith("wss://") || (!secure && url.startsWith("ws://")) ? url : null;
    if (this.#open) {
      this.#owner = accepted;
      this.#moved = true;
      return;
    }
    const socket = this.#socket;
    if (this.#redirected) this.#lost(0, "redirected twice");
    else {
      this.#redirected = true;
      this.#owner = url === this.#unanswered ? null : accepted;
      this.#socket = null;
      this.#stopExpecting();
      this.#dial();
    }
    socket?.close(1000);
  }

  /**
   * The session was not opened: try again where that may help, else leave for good. What is wrong
   * with a token is told by the close code that follows.
   * @param {{code: string, message: string, retryable: boolean}} error
   */
  #notOpened({ code, message, retryable }) {
    if (code === "not_authenticated") return;
    const socket = this.#socket;
    this.#closed ||= !retryable && !this.#owner;
    this.#lost(0, message);
    socket?.close(1000);
  }

  /** @param {string} id */
  #submit(id) {
    const frame = this.#unaccepted.get(id);
    if (frame === undefined || !this.#open) return;
    this.#write(frame);
    this.#expectAnswer();
  }

  /** Connect again unless the server says something in time: it may be gone without a word. */
  #expectAnswer() {
    const socket = this.#socket;
    if (!socket) return;
    this.#patience ??= setTimeout(() => {
      if (this.#socket !== socket) return;
      this.#lost(0, "the server does not answer");
      socket.close();
    }, this.#options.answerTimeoutMs ?? ANSWER_TIMEOUT_MS);
  }

  #stopExpecting() {
    clearTimeout(this.#patience);
    this.#patience = undefined;
  }

  #tellContexts() {
    const contexts = this.#prepares.size > 0;
    if (!this.#open || contexts === this.#asked || this.#options.world) return; // a scene is asked on joining
    this.#asked = contexts;
    this.#write({ type: "session.update", contexts });
  }

  #tellState() {
    if (this.#untold) this.#write(stateUpdate(this.#untold));
  }

  /** @param {string | null | undefined} id of what the server knows, or will never take */
  #told(id) {
    if (this.#untold?.id === id) this.#untold = null;
  }

  /**
   * Try a message again later, or give it up where the server will never take it.
   * @param {{event_id: string, retryable: boolean}} error
   */
  #refused({ event_id: id, retryable }) {
    if (!retryable) this.#told(id);
    if (!this.#unaccepted.has(id)) return;
    if (retryable) setTimeout(() => this.#submit(id), RESUBMIT_MS);
    else this.#unaccepted.delete(id);
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  #lost(code, reason) {
    const wasOpen = this.#open;
    const connected = this.#socket !== null;
    this.#open = false;
    this.#socket = null;
    this.#stopExpecting();
    clearTimeout(this.#renewal);
    if (wasOpen && code === ELSEWHERE && !this.#moved) this.#owner = null; // the first URL tells where
    if (this.#owner && connected && !wasOpen && !this.#closed) {
      this.#unanswered = this.#owner;
      this.#owner = null;
      this.#dial(); // where it was told first
      return;
    }
    if (this.#closed || this.#final(code)) {
      this.#tell("closed", code, reason);
      return;
    }
    // A server that closes whatever it opens is asked less and less often.
    const openMs = wasOpen ? performance.now() - this.#openedAt : 0;
    if (openMs > this.#longestRetryMs(this.#attempt - 1)) this.#attempt = 0;
    // Full jitter: clients that lost the same server do not come back at the same moment.
    const retryMs = Math.random() * this.#longestRetryMs(this.#attempt++);
    this.#retry = setTimeout(() => this.#dial(), retryMs);
    this.#tell("waiting", code, reason, retryMs); // last: a game may connect at once
  }

  /**
   * How long may be waited at most after so many failures.
   * @param {number} failures
   */
  #longestRetryMs(failures) {
    const { firstRetryMs = FIRST_RETRY_MS } = this.#options;
    return Math.min(LAST_RETRY_MS, firstRetryMs * 2 ** failures);
  }

  /**
   * Whether it would be the same again: a fresh token may do what an old one did not.
   * @param {number} code
   */
  #final(code) {
    if (code !== NOT_AUTHENTICATED) return FINAL_CODES.has(code);
    return typeof this.#options.token !== "function" || ++this.#refusals >= MAX_REFUSALS;
  }

  #flushDraft() {
    const frame = { type: "draft.update", ...this.#draft };
    this.#forgetDraft();
    if (fits(frame)) this.#write(frame);
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
   * @param {number} [retryMs]
   */
  #tell(state, code, reason, retryMs) {
    this.dispatchEvent(new CustomEvent("state", { detail: { state, code, reason, retryMs } }));
  }
}

/**
 * The message that tells what goes on.
 * @param {{id: string, patch: object}} untold
 */
function stateUpdate({ id, patch }) {
  return { type: "session.update", state: patch, event_id: id };
}

/**
 * Whether the server takes a frame of this size; one that it does not would be sent for ever.
 * @param {object} message
 */
function fits(message) {
  return new TextEncoder().encode(JSON.stringify(message)).length <= MAX_FRAME_BYTES;
}

function ownServer() {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/ws`;
}

/**
 * The seconds until a token should be replaced; null where it does not say its end. It is read, not
 * verified: the server does that.
 * @param {string | null} token
 * @param {number} now seconds since 1970
 */
function renewalDelay(token, now) {
  try {
    const payload = (token ?? "").split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    const { exp, iat = now } = JSON.parse(atob(payload));
    if (!Number.isFinite(exp) || !Number.isFinite(iat)) return null;
    const left = exp - now; // by this machine's clock, which may be wrong
    return Math.max(1, SHARE_OF_LIFE * (left > 0 ? Math.min(exp - iat, left) : exp - iat));
  } catch {
    return null;
  }
}

/** A random id; unlike crypto.randomUUID also on pages that were not loaded over TLS. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
