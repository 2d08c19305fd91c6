// Drives foremind.js as the conformance suite says: commands in, events out, as JSON lines.
// Started with the URL and the options as JSON; driver.py does the same with the Python client.
import { createInterface } from "node:readline";
import { Foremind } from "../../client_demo/foremind.js";

const url = process.argv[2];
const { token, tokens, answerTimeoutMs, impatient, firstRetryMs = 10 } = JSON.parse(process.argv[3]);
const tell = (what) => console.log(JSON.stringify(what));
const next = async () => {
  const following = tokens.length > 1 ? tokens.shift() : tokens[0];
  if (following.fails) throw new Error(following.fails);
  return following.token;
};
const mind = new Foremind({
  companion: "wren", url, user: { id: "ana" }, token: token ?? (tokens && next), firstRetryMs,
  answerTimeoutMs,
});
const dispatch = mind.dispatchEvent.bind(mind);
mind.dispatchEvent = (event) => {
  const { detail } = event;
  if (event.type === "state" && detail.state === "closed") setImmediate(() => process.exit(0));
  tell(event.type === "state" ? { type: "state", ...detail } : detail);
  dispatch(event);
  if (impatient && detail.state === "waiting") mind.connect();
};
mind.connect();
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if ("reopen" in command) mind.close(), mind.connect();
  for (const text of command.type ?? []) mind.type(text);
  if ("send" in command) mind.send(command.send, command.how);
  if ("state" in command) mind.setState(command.state);
}
