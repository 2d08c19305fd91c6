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
    /**
     * @param {Options} options
     * @throws {TypeError} naming the option that is missing
     */
    constructor(options: Options);
    /**
     * Have every event of a type handled.
     * @template {keyof Events} Type
     * @param {Type} type
     * @param {(event: Events[Type]) => void} handle is given the event itself
     * @returns {() => void} ends it
     */
    on<Type extends keyof Events>(type: Type, handle: (event: Events[Type]) => void): () => void;
    /**
     * As of any `EventTarget`; an event's `detail` is of its type.
     * @template {keyof Events} Type
     * @overload
     * @param {Type} type
     * @param {(event: CustomEvent<Events[Type]>) => void} listener
     * @param {ListenerOptions} [options]
     * @returns {void}
     */
    addEventListener<Type extends keyof Events>(type: Type, listener: (event: CustomEvent<Events[Type]>) => void, options?: ListenerOptions): void;
    /**
     * @overload
     * @param {string} type
     * @param {AnyListener} listener
     * @param {ListenerOptions} [options]
     * @returns {void}
     */
    addEventListener(type: string, listener: AnyListener, options?: ListenerOptions): void;
    /**
     * @param {string} type
     * @param {any} listener
     * @param {boolean | EventListenerOptions} [options]
     */
    removeEventListener(type: string, listener: any, options?: boolean | EventListenerOptions): void;
    /** True while messages go straight to the server. */
    get open(): boolean;
    /** Connect, and stay connected until `close()`. */
    connect(): void;
    /**
     * Tell the whole draft as it now stands; call it on every keystroke. One that fits no frame, or
     * was typed while there is no connection, is not told.
     * @param {string} text
     * @param {Speech} [how] in a scene: whom it will be said to, and how loud, as far as that is known
     */
    type(text: string, { to, volume }?: Speech): void;
    /** Tell that the draft was given up. */
    clear(): void;
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
    send(text: string, { remember, settings, to, volume }?: {
        remember?: boolean | undefined;
        settings?: import("./protocol.js").TurnSettings | undefined;
        to?: Speech["to"];
        volume?: Speech["volume"];
    }): string;
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
    edit(messageId: string, text: string, { remember, settings }?: {
        remember?: boolean | undefined;
        settings?: import("./protocol.js").TurnSettings | undefined;
    }): string;
    /**
     * Ask for another reply to the last message; the ones before can be chosen again. The request is
     * kept and sent again as a message is.
     * @param {string} messageId of the last message
     * @param {Object} [how]
     * @param {TurnSettings} [how.settings] settings of this reply alone, by name
     * @returns {string} the id of the request
     * @throws {RangeError} while 16 messages wait for the server, or if this one fits no frame
     */
    regenerate(messageId: string, { settings }?: {
        settings?: import("./protocol.js").TurnSettings | undefined;
    }): string;
    /**
     * Choose which reply to the last message stands; `response.chosen` says that it does.
     * @param {string} messageId of the last message
     * @param {number} index as in response.created, from 0
     */
    choose(messageId: string, index: number): void;
    /**
     * Tell a mind what came of an action that it asked for, as the game server of its world. It is
     * kept and sent again as a message is; the first result counts.
     * @param {string} id as in action.requested
     * @param {any} result in words or as JSON
     * @returns {string} what `action.accepted`, or an error, has as `event_id`
     * @throws {RangeError} while 16 messages wait for the server, or if this one fits no frame
     */
    answerAction(id: string, result: any): string;
    /**
     * Report what happens in the world, as its game server; also without a connection. A failure that
     * may pass is tried again: no event is stored twice.
     * @param {WorldEvent[]} events
     * @returns {Promise<{id: string, duplicate: boolean}[]>} the stored events
     * @throws {Error} saying why it could not be done, also by its `code`, `param` and `retryable`
     */
    report(events: WorldEvent[]): Promise<{
        id: string;
        duplicate: boolean;
    }[]>;
    /**
     * Tell what goes on in the session: what is not given stays, a flag of null goes. It holds for
     * what is sent after it, and is told again after a lost connection until the server knows.
     * @param {{task?: string, flags?: Object<string, boolean | number | string | null>}} state
     * @throws {RangeError} if what the server does not know yet fits no frame
     */
    setState({ task, flags }: {
        task?: string;
        flags?: {
            [x: string]: boolean | number | string | null;
        };
    }): void;
    /**
     * Stop a reply.
     * @param {string} responseId as in response.created
     */
    cancel(responseId: string): void;
    /**
     * Forget a memory for good, with everything that quotes it.
     * @param {string} memoryId as in context.ready and memory.stored
     * @returns {Promise<{memories: string[], turns: number, records: number, reread: number, layers: Record<string, number>, remade: Record<string, number>, shortened: number, dry_run: boolean}>} the receipt
     * @throws {Error} saying why it could not be done
     */
    forget(memoryId: string): Promise<{
        memories: string[];
        turns: number;
        records: number;
        reread: number;
        layers: Record<string, number>;
        remade: Record<string, number>;
        shortened: number;
        dry_run: boolean;
    }>;
    /**
     * Ask the server something about this relationship, or have it changed.
     * @param {string} method
     * @param {string} path below `/v1/relationships/{id}`
     * @param {object} [body] sent as JSON
     * @returns {Promise<any>} the answer
     * @throws {Error} saying why it could not be done
     */
    request(method: string, path: string, body?: object): Promise<any>;
    /**
     * Everything that is known of this user, with every companion.
     * @returns {Promise<object>}
     * @throws {Error} saying why it could not be done
     */
    exportUser(): Promise<object>;
    /**
     * Erase this user everywhere, with every companion and for good; the session ends.
     * @returns {Promise<object>} how much there was
     * @throws {Error} saying why it could not be done
     */
    eraseUser(): Promise<object>;
    /**
     * Restore what was exported, as this user's relationship with this companion; also another
     * program's file.
     * @param {object | Blob} exported
     * @returns {Promise<{id: string, program: string, turns: number, notices: {field: string, text: string}[]}>}
     * @throws {Error} saying why it could not be done
     */
    restore(exported: object | Blob): Promise<{
        id: string;
        program: string;
        turns: number;
        notices: {
            field: string;
            text: string;
        }[];
    }>;
    /** Leave for good. */
    close(): void;
    #private;
}
/**
 * With whom: the slug of a companion or, in place of it, a world and the scene of it that is joined.
 */
export type Partner = {
    companion: string;
    world?: undefined;
    scene?: undefined;
} | {
    companion?: undefined;
    world: string;
    scene: string;
};
export type ConnectionOptions = {
    /**
     * who is talking, where the server runs open
     */
    user?: {
        id: string;
        name: string;
    } | undefined;
    /**
     * a signed token, where it does
     * not; or what gets one, which is asked for every connection, and again before a token expires;
     * where it fails, it is asked again like a connection that cannot be made
     */
    token?: string | (() => string | Promise<string>) | undefined;
    /**
     * the player's, a BCP 47 tag such as "de" or "pt-BR"; by default the
     * one that was stated last
     */
    language?: string | undefined;
    /**
     * whether `response.sentence` is received: each sentence of a reply,
     * for a voice
     */
    sentences?: boolean | undefined;
    /**
     * the socket; by default that of the page's own server
     */
    url?: string | undefined;
    /**
     * the class to connect with; by default the global
     * one. Node has one from version 22 on; before that, give it the one of the package `ws`
     */
    WebSocket?: (new (url: string) => any) | undefined;
    /**
     * longest wait before the first attempt to reconnect; it doubles
     * up to 15 s
     */
    firstRetryMs?: number | undefined;
    /**
     * how long a server may take to open a session or to store a
     * message; one that is silent for longer is connected to again
     */
    answerTimeoutMs?: number | undefined;
};
export type Options = Partner & ConnectionOptions;
export type State = "connecting" | "open" | "waiting" | "closed";
/**
 * What "state" tells of the connection.
 */
export type StateChange = {
    /**
     * "waiting": until the next attempt. "closed": for good, as `close()` was
     * called, the server said not to reconnect, or it refused to open the session
     */
    state: State;
    /**
     * with which the connection was closed; 0 if it never was one
     */
    code?: number | undefined;
    reason?: string | undefined;
    /**
     * how long "waiting" lasts
     */
    retryMs?: number | undefined;
};
/**
 * An event of the server, also one of a later version.
 */
export type AnyEvent = {
    type: string;
    seq: number;
    [field: string]: any;
};
/**
 * What is dispatched, by its type: every event of the server, and "state".
 */
export type Events = import("./protocol.js").ServerEvents & {
    state: StateChange;
};
/**
 * The settings that one message may have, for its own turn.
 */
export type TurnSettings = import("./protocol.js").TurnSettings;
/**
 * Whom something is said to in a scene, by id or slug, by default to all; and how loud.
 */
export type Speech = {
    to?: string | string[];
    volume?: "whisper" | "say" | "shout";
};
/**
 * Something that happens in a world, as in `docs/worlds.md`.
 */
export type WorldEvent = {
    id: string;
    type: string;
    text: string;
    [field: string]: any;
};
/**
 * What an `EventTarget` takes, in a browser as in Node, whose types have not the same names.
 */
export type AnyListener = Parameters<EventTarget["addEventListener"]>[1];
export type ListenerOptions = Parameters<EventTarget["addEventListener"]>[2];
