// Reads an AsyncAPI document from a file with the official parser; prints what is wrong with it.
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";

const { document, diagnostics } = await new Parser().parse(readFileSync(process.argv[2], "utf8"));
const errors = diagnostics.filter(({ severity }) => severity === 0);
for (const { message, path } of errors) console.log(`${path.join(".")}: ${message}`);
console.log(`${document ? document.allMessages().length : 0} messages`);
process.exit(errors.length || !document ? 1 : 0);
