//! Results that fit: pictures arrive as pictures, what is too large to be given at once waits whole behind a link, and what is
//! larger than a result may be is refused as that.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

const LARGE: &str = include_str!("servers/large.py");

impl McpHarness {
    /// A harness with the server of large answers, and these settings.
    pub(super) async fn with_large(settings: &[(&str, &str)], upkeep: Value) -> Self {
        let harness = Self::open_with(settings).await;
        std::fs::write(harness.file("servers/large.py"), LARGE).unwrap();
        harness.put("large", &harness.large(&upkeep)).await;
        harness
    }

    fn large(&self, upkeep: &Value) -> Value {
        let permissions = [format!("filesystem:read:{}", self.path("servers"))];
        let args = [self.path("servers/large.py")];
        let reach = json!({ "type": "stdio", "command": "python3", "args": args, "permissions": permissions });
        json!({ "reach": reach, "upkeep": upkeep })
    }
}

async fn picture(client: &RawClient, bytes: usize, meta: Value) -> Value {
    let asked = json!({ "name": "large__picture", "arguments": { "bytes": bytes }, "_meta": meta });
    client.request("tools/call", asked).await.unwrap().result().unwrap()
}

async fn read(client: &RawClient, uri: &Value) -> Value {
    let read = client.request("resources/read", json!({ "uri": uri })).await.unwrap().result().unwrap();
    read["contents"][0].clone()
}

#[tokio::test]
async fn screenshots_of_300_kb_and_5_mb_arrive_as_pictures() {
    let harness = McpHarness::with_large(&[], json!({})).await;
    for client in [harness.old_client("2025-11-25").await, harness.new_client()] {
        for bytes in [300_000, 5_000_000] {
            let result = picture(&client, bytes, json!({})).await;
            assert_eq!(result["content"].as_array().unwrap().len(), 2, "{:.300}", result.to_string());
            let image = &result["content"][1];
            assert_eq!((&image["type"], &image["mimeType"]), (&json!("image"), &json!("image/png")));
            let data = STANDARD.decode(image["data"].as_str().unwrap()).unwrap();
            assert_eq!(data.len(), bytes);
            assert!(data.starts_with(b"\x89PNG"));
        }
    }
    let answer = harness.invoke("large.picture", json!({ "bytes": 5_000_000 })).await;
    assert_eq!(answer.status, 200, "{:.300}", answer.text);
}

#[tokio::test]
async fn a_picture_beyond_the_budget_is_a_link_that_gives_the_whole_of_it() {
    let harness = McpHarness::with_large(&[("GANTRY_MCP__MEDIA_BYTES_MAX", "100000")], json!({})).await;
    let client = harness.new_client();
    let small = picture(&client, 50_000, json!({})).await;
    assert_eq!(small["content"][1]["type"], "image", "{:.300}", small.to_string());
    // The caller's own word counts, in both directions.
    let asked = picture(&client, 300_000, json!({ "dev.gantry/result_bytes": 1_000_000 })).await;
    assert_eq!(asked["content"][1]["type"], "image", "{:.300}", asked.to_string());
    let less = picture(&client, 50_000, json!({ "dev.gantry/result_bytes": 2_000 })).await;
    assert_eq!(less["content"][2]["type"], "resource_link", "{less}");

    let parked = picture(&client, 5_000_000, json!({})).await;
    let words = parked["content"][1]["text"].as_str().unwrap();
    assert!(words.starts_with("This image (image/png) has 5000000 bytes"), "{words}");
    let link = &parked["content"][2];
    assert_eq!((&link["mimeType"], &link["size"]), (&json!("image/png"), &json!(5_000_000)), "{link}");
    let whole = read(&client, &link["uri"]).await;
    assert_eq!(whole["mimeType"], "image/png", "{:.300}", whole.to_string());
    let data = STANDARD.decode(whole["blob"].as_str().unwrap()).unwrap();
    assert_eq!((data.len(), data.starts_with(b"\x89PNG")), (5_000_000, true));
    let other = harness.gantry.mint(json!({ "tenant": "local", "sub": "somebody-else" })).await;
    let other = RawClient::new(&harness.door(), &other, raw_client::agreeable);
    let nothing = other.request("resources/read", json!({ "uri": link["uri"] })).await.unwrap();
    assert!(nothing.result().is_err(), "a link of somebody else leads nowhere");
}

#[tokio::test]
async fn a_long_text_is_shown_by_its_beginning_and_read_whole_or_in_pieces() {
    let harness = McpHarness::with_large(&[], json!({})).await;
    let client = harness.new_client();
    let result = client.call("large__words", &json!({ "bytes": 3_000_000 })).await.unwrap().result().unwrap();
    assert_eq!(result["isError"], false, "{:.300}", result.to_string());
    let words = result["content"][0]["text"].as_str().unwrap();
    assert!(words.starts_with("This text (text/plain) has 3000000 bytes"), "{words}");
    let (said, preview) = words.split_once("\n\n").unwrap();
    assert!(said.ends_with(&format!("Its first {} bytes:", preview.len())), "{said}");
    let link = &result["content"][1];
    assert_eq!((&link["mimeType"], &link["size"]), (&json!("text/plain"), &json!(3_000_000)), "{link}");
    let whole = read(&client, &link["uri"]).await;
    assert_eq!(whole["text"].as_str().unwrap().len(), 3_000_000);
    let piece = read(&client, &json!(format!("{}?offset=2999990", link["uri"].as_str().unwrap()))).await;
    assert_eq!(piece["text"], "wwwwwwwwww");

    // Structure and the text that repeats it are one thing: 200 KB of each are within 256 KiB, 300 KB are one link.
    let both = client.call("large__table", &json!({ "bytes": 200_000 })).await.unwrap().result().unwrap();
    assert_eq!(both["structuredContent"]["rows"].as_str().unwrap().len(), 200_000);
    let parked = client.call("large__table", &json!({ "bytes": 300_000 })).await.unwrap().result().unwrap();
    assert_eq!((parked["content"].as_array().unwrap().len(), &parked["isError"]), (2, &json!(true)), "{parked}");
    let whole = read(&client, &parked["content"][1]["uri"]).await;
    assert_eq!(whole["mimeType"], "application/json");
    let table: Value = serde_json::from_str(whole["text"].as_str().unwrap()).unwrap();
    assert_eq!(table["rows"].as_str().unwrap().len(), 300_000);
}

#[tokio::test]
async fn what_is_larger_than_a_result_may_be_is_413_at_every_door_and_the_limit_is_the_operators() {
    let harness = McpHarness::with_large(&[], json!({})).await;
    let ask = async |bytes: u64| harness.invoke("large.words", json!({ "bytes": bytes })).await;
    assert_eq!(ask(15_000_000).await.status, 200);
    let refused = ask(17_000_000).await;
    assert_eq!((refused.status, refused.refusal().1), (413, "E3414"), "{:.300}", refused.text);
    // More than a message of a server may have: the call is told, and the server is not lost for it.
    let huge = ask(40_000_000).await;
    assert_eq!((huge.status, huge.refusal().1), (413, "E3414"), "{:.300}", huge.text);
    assert!(!harness.gantry.log().contains("a message of the server was too long"), "{}", harness.gantry.log());
    let failed =
        harness.new_client().call("large__words", &json!({ "bytes": 17_000_000 })).await.unwrap().result().unwrap();
    assert_eq!((&failed["isError"], &failed["_meta"]["dev.gantry/error"]["code"]), (&json!(true), &json!("E3414")));

    // Another limit of the server is another version of its tools.
    harness.put("large", &harness.large(&json!({ "result_bytes_max": 2048 }))).await;
    assert_eq!(ask(1_000).await.status, 200);
    let refused = ask(3_000).await;
    assert_eq!((refused.status, refused.refusal().1), (413, "E3414"), "{}", refused.text);
    assert!(refused.text.contains("larger than 2048 bytes"), "{}", refused.text);
}

#[tokio::test]
async fn the_limits_of_the_installation_hold_for_every_tool() {
    let settings = [("GANTRY_LIMITS__RESULT_BYTES_CEILING", "100000"), ("GANTRY_LIMITS__RESULT_BYTES_MAX", "5000")];
    let harness = McpHarness::with_large(&settings, json!({})).await;
    assert_eq!(harness.invoke("large.words", json!({ "bytes": 90_000 })).await.status, 200);
    let refused = harness.invoke("large.words", json!({ "bytes": 100_001 })).await;
    assert_eq!((refused.status, refused.refusal().1), (413, "E3414"), "{:.300}", refused.text);
}
