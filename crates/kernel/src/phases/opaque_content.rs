//! Binary parts of an answer: pictures, sounds and files as MCP writes them, in base64. (SHOWN-3)
//!
//! Where a policy masks members, what cannot be looked into cannot be masked either. It gives way to a block of text, so that the
//! answer stays one that clients can read.

use serde_json::{Map, Value, json};

/// What stands in place of such a part.
const WITHHELD: &str = "[REDACTED]";

/// Takes out every binary part, at every depth.
pub(super) fn withhold_opaque(value: &mut Value) {
    match value {
        Value::Object(members) if is_picture(members) => *value = json!({ "type": "text", "text": WITHHELD }),
        Value::Object(members) => {
            if members.get("blob").is_some_and(Value::is_string) {
                members.remove("blob");
                members.entry("text").or_insert_with(|| WITHHELD.into());
                members.get_mut("mimeType").into_iter().for_each(|kind| *kind = "text/plain".into());
            }
            members.values_mut().for_each(withhold_opaque);
        }
        Value::Array(items) => items.iter_mut().for_each(withhold_opaque),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A block that holds bytes: of a known kind, or of one that says what its bytes are.
fn is_picture(block: &Map<String, Value>) -> bool {
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    let holds_bytes =
        matches!(text("type"), Some("image" | "audio")) || text("type").is_some() && text("mimeType").is_some();
    holds_bytes && text("data").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_parts_give_way_to_text_and_everything_else_stays() {
        let withheld = json!({ "type": "text", "text": WITHHELD });
        for (value, expected) in [
            (json!({ "type": "image", "data": "AA==", "mimeType": "image/png" }), withheld.clone()),
            (json!({ "type": "audio", "data": "AA==" }), withheld.clone()),
            (
                json!([{ "content": [{ "type": "video", "data": "AA==", "mimeType": "video/mp4" }] }]),
                json!([{ "content": [withheld] }]),
            ),
            (
                json!({ "type": "resource", "resource": { "uri": "x://1", "blob": "AA==", "mimeType": "a/b" } }),
                json!({ "type": "resource", "resource": { "uri": "x://1", "text": WITHHELD, "mimeType": "text/plain" } }),
            ),
            (json!({ "uri": "x://1", "blob": "AA==" }), json!({ "uri": "x://1", "text": WITHHELD })),
        ] {
            let mut shown = value.clone();
            withhold_opaque(&mut shown);
            assert_eq!(shown, expected, "{value}");
        }
        for same in [
            json!({ "type": "text", "text": "data" }),
            json!({ "data": "words of a tool", "type": "report" }),
            json!({ "data": { "type": "image" }, "blob": 7 }),
            json!({ "type": "resource_link", "uri": "x://1", "mimeType": "image/png" }),
        ] {
            let mut shown = same.clone();
            withhold_opaque(&mut shown);
            assert_eq!(shown, same);
        }
    }
}
