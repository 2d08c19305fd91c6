/** What an operator may ask the server for; in open mode that is whoever reaches it. */

const ADMIN = "/v1/admin/companions";

export class Operator {
  #user;

  /** `user` gives the id in whose name it is asked. */
  constructor(user) {
    this.#user = user;
  }

  async companions() {
    return (await this.#json("GET", ADMIN)).companions;
  }

  /** The language models in use, and those found on this machine if there are none. */
  models() {
    return this.#json("GET", "/v1/admin/models");
  }

  put(slug, companion) {
    return this.#json("PUT", `${ADMIN}/${encodeURIComponent(slug)}`, JSON.stringify(companion));
  }

  retire(slug) {
    return this.#json("DELETE", `${ADMIN}/${encodeURIComponent(slug)}`);
  }

  /** The character card of a companion, as an object. */
  card(slug) {
    return this.#json("GET", cardPath(slug));
  }

  async cardFile(slug, format) {
    return (await this.#ask("GET", `${cardPath(slug)}?as=${format}`)).blob();
  }

  /** What a card's file says, and the short name that the character's name makes; nothing is stored. */
  readCard(file) {
    return this.#json("POST", `/v1/admin/cards?name=${encodeURIComponent(file.name.replace(/\.[^.]*$/, ""))}`, file);
  }

  /** Create or replace a companion by a card's file: JSON, PNG or CHARX. */
  putCard(slug, file) {
    return this.#json("PUT", cardPath(slug), file);
  }

  /** A companion's reply to a text of nobody's, who is erased afterwards. */
  async tryModel(slug, text) {
    const nobody = `page-test-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
    const turn = { id: nobody, companion: slug, user: nobody, text, remember: false };
    try {
      const { replies } = await this.#json("POST", "/v1/turns", JSON.stringify(turn));
      return replies[0].text;
    } finally {
      await this.#json("DELETE", `/v1/users/${nobody}?user=${nobody}`);
    }
  }

  async #json(method, path, body) {
    return (await this.#ask(method, path, body)).json();
  }

  async #ask(method, path, body) {
    const address = new URL(path, location.origin);
    if (!address.searchParams.has("user")) address.searchParams.set("user", this.#user());
    const headers = body ? { "content-type": typeof body === "string" ? "application/json" : body.type || "application/octet-stream" } : {};
    const answer = await fetch(address, { method, headers, body });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    return answer;
  }
}

function cardPath(slug) {
  return `${ADMIN}/${encodeURIComponent(slug)}/card`;
}
