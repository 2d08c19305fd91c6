// Drives foremind.js in Node: says each line of standard input, prints what happens as JSON lines.
import { createInterface } from "node:readline";
import { Foremind } from "../../clients/javascript/lib/foremind.js";

const [url, token] = process.argv.slice(2);
const mind = new Foremind({ companion: "wren", url, token: async () => token });
const tell = (what) => console.log(JSON.stringify(what));
for (const type of ["session.opened", "message.accepted", "response.done", "error"]) {
  mind.addEventListener(type, ({ detail }) => tell(detail));
}
mind.addEventListener("state", ({ detail }) => tell({ type: "state", ...detail }));
mind.connect();
for await (const line of createInterface({ input: process.stdin })) {
  for (let end = 1; end <= line.length; end++) mind.type(line.slice(0, end));
  mind.send(line);
}
mind.close();
