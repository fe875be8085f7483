// Slug: a tool of the world `gantry:tool/tool`, in JavaScript.
//
// `invoke` gets the parameters as a JSON text and answers with one. What it throws is a `tool-error`: `failed` is the
// tool's own fault, `invalid-parameters` the caller's.
import { log, progress } from "gantry:tool/host@1.0.0";

export function invoke(parametersJson) {
  const { text, length_max: lengthMax = 60 } = JSON.parse(parametersJson);
  log("debug", `making a slug of ${text.length} characters`);
  const words = text.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase().match(/[a-z0-9]+/g);
  if (words === null) {
    throw { kind: "invalid-parameters", message: "the text has no letter or digit that a slug may contain" };
  }
  let slug = "";
  for (const [index, word] of words.entries()) {
    const longer = slug === "" ? word.slice(0, lengthMax) : `${slug}-${word}`;
    if (longer.length > lengthMax) break;
    slug = longer;
    progress((100 * (index + 1)) / words.length, word);
  }
  return JSON.stringify({ slug });
}
