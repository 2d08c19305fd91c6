// Reads files with cards by two parsers of others; prints what each makes of them, a line a file.
import { readFileSync } from "node:fs";
import { CCardLib } from "@risuai/ccardlib";
import utils from "character-card-utils";

for (const path of process.argv.slice(2)) {
  const card = JSON.parse(readFileSync(path, "utf8"));
  const version = CCardLib.character.check(card);
  const v2 = card.spec === "chara_card_v2" ? utils.parseToV2(card) : null;
  const v3 = CCardLib.character.convert(card, { to: "v3" });
  console.log(JSON.stringify({ version, v2, v3 }));
}
