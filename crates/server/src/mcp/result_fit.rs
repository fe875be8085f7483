//! How a result fits into one answer: what of it is given at once, and what becomes a preview and a link.
//!
//! Texts and structure are what a model reads, and have one budget; pictures, sounds and files have another, because clients take
//! them apart and a picture that is cut is none. A part is given whole or parked whole (`results`).
//!
//! Invariants
//! - FIT-1: what is said of a part (bytes, kind, how much of it is shown) is so, and its link gives all of it.
//! - FIT-2: nothing is counted twice: structure and the text that repeats it are one part.
//! - FIT-3: an answer has at most [`PARTS_PARKED_MAX`] previews. A result with more large parts is one part, as JSON.

use base::SaturatingFrom as _;
use ports::entropy::Entropy;
use rmcp::model::{CallToolResult, ContentBlock, EmbeddedResource, Resource, ResourceContents};
use serde_json::{Value, json};

use super::config::McpConfig;
use super::results::{ParkedBody, ParkedPart, ParkedResults, ResultOwner, piece};

/// Bytes of a preview.
const PREVIEW_BYTES: usize = 2 * 1024;
/// Parts of one result that wait by themselves.
const PARTS_PARKED_MAX: usize = 16;

/// What is known of a result before it is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResultOutline<'a> {
    /// The tool that gave it.
    pub(crate) tool_id: &'a str,
    /// The tool has an output schema.
    pub(crate) structured_promised: bool,
    /// The text repeats what is structured, as in all results of our own.
    pub(crate) text_is_copy: bool,
}

/// How much is given at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResultBudget {
    /// Bytes of texts and structure.
    text: usize,
    /// Bytes of pictures, sounds and files, as they are sent.
    media: usize,
    /// Bytes of all of it.
    all: usize,
}

impl ResultBudget {
    /// As the installation has it, or as the caller says.
    pub(crate) fn of(config: &McpConfig, asked: Option<usize>) -> Self {
        match asked {
            Some(bytes) => Self { text: bytes, media: bytes, all: bytes },
            None => Self { text: config.result_bytes_max, media: config.media_bytes_max, all: usize::MAX },
        }
    }
}

/// Where parts that do not fit wait, and for whom.
pub(crate) struct ResultParking<'a> {
    pub(crate) results: &'a ParkedResults,
    pub(crate) owner: &'a ResultOwner,
    pub(crate) config: &'a McpConfig,
    pub(crate) entropy: &'a dyn Entropy,
    pub(crate) now_ms: i64,
}

impl ResultParking<'_> {
    /// The result as it may be given: itself, or with previews and links in the place of what is too large.
    pub(crate) fn fit(&self, result: CallToolResult, shape: ResultOutline<'_>, budget: ResultBudget) -> CallToolResult {
        if is_small(&result, shape, budget) {
            return result;
        }
        let structured = result.structured_content.as_ref().map(Value::to_string);
        let is_copy = structured.is_some() && (shape.text_is_copy || repeats(&result));
        let large = Large::of(&result.content, structured.as_deref().map(str::len), is_copy, budget);
        if large.is_none() {
            return result;
        }
        let mut telling = Telling { desk: self, shape, parts: Vec::new() };
        let mut result = result;
        if large.blocks.len() > PARTS_PARKED_MAX {
            // FIT-3.
            let all = json!({ "content": result.content, "structuredContent": result.structured_content.take() });
            result.content = telling.text("result", "application/json", &all.to_string());
        } else {
            let shown = if large.structured { result.structured_content.take().and(structured) } else { None };
            let blocks = std::mem::take(&mut result.content);
            if let Some(whole) = &shown {
                result.content = telling.text("structured result", "application/json", whole);
            }
            for (index, block) in blocks.into_iter().enumerate() {
                let is_said = shown.is_some() && is_copy && matches!(block, ContentBlock::Text(_));
                match large.blocks.contains(&index) {
                    _ if is_said => {}
                    true => result.content.extend(telling.block(block)),
                    false => result.content.push(block),
                }
            }
        }
        // A client that was promised structure takes its absence for a fault of the protocol, unless the result says
        // itself that it is not what was asked for.
        if shape.structured_promised && result.structured_content.is_none() && structured_was_there(&large) {
            result.is_error = Some(true);
        }
        let mut meta = result.meta.take().unwrap_or_default();
        meta.0.insert("dev.gantry/parked".to_owned(), Value::Array(telling.parts));
        result.with_meta(Some(meta))
    }
}

/// The parts that do not fit.
#[derive(Debug, Default)]
struct Large {
    /// By their places.
    blocks: Vec<usize>,
    structured: bool,
    /// There was structure, which a whole parking takes along.
    had_structure: bool,
}

fn structured_was_there(large: &Large) -> bool {
    large.structured || (large.had_structure && large.blocks.len() > PARTS_PARKED_MAX)
}

impl Large {
    fn is_none(&self) -> bool {
        self.blocks.is_empty() && !self.structured
    }

    /// Texts come first, each as long as there is room; then structure; then what is binary.
    fn of(blocks: &[ContentBlock], structured: Option<usize>, is_copy: bool, budget: ResultBudget) -> Self {
        let mut large = Self { had_structure: structured.is_some(), ..Self::default() };
        let mut text_left = budget.text;
        let mut used = 0;
        let mut fits = |bytes: usize, left: &mut usize| {
            let is_fine = bytes <= *left && bytes <= budget.all.saturating_sub(used);
            if is_fine {
                *left -= bytes;
                used += bytes;
            }
            is_fine
        };
        // FIT-2: the structure stands for its copy.
        for (index, block) in blocks.iter().enumerate().filter(|_| !is_copy) {
            if let Some(bytes) = text_bytes(block)
                && !fits(bytes, &mut text_left)
            {
                large.blocks.push(index);
            }
        }
        large.structured = structured.is_some_and(|bytes| !fits(bytes, &mut text_left));
        let mut media_left = budget.media;
        for (index, block) in blocks.iter().enumerate() {
            if let Some(bytes) = media_bytes(block)
                && !fits(bytes, &mut media_left)
            {
                large.blocks.push(index);
            }
        }
        large
    }
}

/// Puts parts away and says so.
struct Telling<'a> {
    desk: &'a ResultParking<'a>,
    shape: ResultOutline<'a>,
    /// For the metadata.
    parts: Vec<Value>,
}

impl Telling<'_> {
    fn block(&mut self, block: ContentBlock) -> Vec<ContentBlock> {
        match block {
            ContentBlock::Text(text) => self.text("text", "text/plain", &text.text),
            ContentBlock::Image(image) => self.media("image", &image.mime_type, image.data),
            ContentBlock::Audio(audio) => self.media("audio", &audio.mime_type, audio.data),
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { mime_type, text, .. } => {
                    self.text("resource", mime_type.as_deref().unwrap_or("text/plain"), &text)
                }
                ResourceContents::BlobResourceContents { mime_type, blob, .. } => {
                    self.media("resource", mime_type.as_deref().unwrap_or("application/octet-stream"), blob)
                }
                // INVARIANT: what has no bytes that are counted is never large.
                other => vec![ContentBlock::Resource(EmbeddedResource::new(other))],
            },
            other => vec![other],
        }
    }

    fn text(&mut self, what: &str, mime_type: &str, text: &str) -> Vec<ContentBlock> {
        let (bytes, preview) = (text.len(), piece(text, 0, PREVIEW_BYTES).text);
        let uri = self.parked(mime_type, ParkedBody::Text(text.into()), bytes, preview.len());
        let where_it_is = self.whereabouts(uri.as_deref(), " (pieces of 64 KiB with ?offset=0 and on)");
        let words = format!(
            "This {what} ({mime_type}) has {bytes} bytes, more than are given at once: {where_it_is}. \
             Its first {} bytes:\n\n{preview}",
            preview.len()
        );
        linked(words, uri, what, mime_type, bytes)
    }

    fn media(&mut self, what: &str, mime_type: &str, base64: String) -> Vec<ContentBlock> {
        let bytes = decoded_bytes(&base64);
        let uri = self.parked(mime_type, ParkedBody::Blob(base64.into()), bytes, 0);
        let where_it_is = self.whereabouts(uri.as_deref(), "");
        let words = format!("This {what} ({mime_type}) has {bytes} bytes, more than are given at once: {where_it_is}.");
        linked(words, uri, what, mime_type, bytes)
    }

    fn whereabouts(&self, uri: Option<&str>, besides: &str) -> String {
        match uri {
            Some(uri) => {
                let seconds = self.desk.config.parked_ms / 1000;
                format!("read the whole of it from {uri}{besides}, within {seconds} s")
            }
            None => "it is too large to be kept; ask for less".to_owned(),
        }
    }

    fn parked(&mut self, mime_type: &str, body: ParkedBody, bytes: usize, preview_bytes: usize) -> Option<String> {
        let part = ParkedPart { tool_id: self.shape.tool_id.into(), mime_type: mime_type.into(), body };
        let ResultParking { results, owner, config, entropy, now_ms } = *self.desk;
        let uri = results.put(owner, part, config, entropy, now_ms);
        self.parts.push(json!({
            "uri": uri, "kept": uri.is_some(), "mime_type": mime_type, "bytes": bytes, "preview_bytes": preview_bytes,
        }));
        uri
    }
}

fn linked(words: String, uri: Option<String>, name: &str, mime_type: &str, bytes: usize) -> Vec<ContentBlock> {
    let link = uri.map(|uri| {
        let size = u64::saturating_from(bytes);
        ContentBlock::ResourceLink(Resource::new(uri, name).with_mime_type(mime_type).with_size(size))
    });
    std::iter::once(ContentBlock::text(words)).chain(link).collect()
}

/// Is it surely small enough? Nearly all are, and are not written out to find that out: one text, which what is
/// structured repeats.
fn is_small(result: &CallToolResult, shape: ResultOutline<'_>, budget: ResultBudget) -> bool {
    let all_is_text = shape.text_is_copy || result.structured_content.is_none();
    let bytes_max = budget.text.min(budget.all);
    matches!(result.content.as_slice(), [ContentBlock::Text(text)] if all_is_text && text.text.len() <= bytes_max)
}

/// Is the only text of a server's result what its structure says?
fn repeats(result: &CallToolResult) -> bool {
    let mut texts = result.content.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(&text.text),
        _ => None,
    });
    let (Some(text), None) = (texts.next(), texts.next()) else { return false };
    serde_json::from_str::<Value>(text).is_ok_and(|said| result.structured_content.as_ref() == Some(&said))
}

/// Bytes of a part that is read.
fn text_bytes(block: &ContentBlock) -> Option<usize> {
    match block {
        ContentBlock::Text(text) => Some(text.text.len()),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => Some(text.len()),
            _ => None,
        },
        _ => None,
    }
}

/// Bytes of a part that is looked at or listened to, as they are sent.
fn media_bytes(block: &ContentBlock) -> Option<usize> {
    match block {
        ContentBlock::Image(image) => Some(image.data.len()),
        ContentBlock::Audio(audio) => Some(audio.data.len()),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::BlobResourceContents { blob, .. } => Some(blob.len()),
            _ => None,
        },
        _ => None,
    }
}

/// Bytes that base64 stands for.
fn decoded_bytes(base64: &str) -> usize {
    let letters = base64.trim_end_matches('=').len();
    letters / 4 * 3 + (letters % 4).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Counting(std::sync::atomic::AtomicU8);
    impl Entropy for Counting {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
        }
    }

    const OF_SERVER: ResultOutline<'static> =
        ResultOutline { tool_id: "a.tool", structured_promised: false, text_is_copy: false };

    struct FitFixture {
        results: ParkedResults,
        config: McpConfig,
        entropy: Counting,
    }

    impl FitFixture {
        fn new(text: usize, media: usize) -> Self {
            let config = McpConfig { result_bytes_max: text, media_bytes_max: media, ..McpConfig::default() };
            Self { results: ParkedResults::default(), config, entropy: Counting(0.into()) }
        }

        fn fit(&self, result: CallToolResult, shape: ResultOutline<'_>, asked: Option<usize>) -> Value {
            let (results, config, entropy) = (&self.results, &self.config, &self.entropy);
            let owner = ResultOwner::named("home", "me");
            let desk = ResultParking { results, owner: &owner, config, entropy, now_ms: 0 };
            serde_json::to_value(desk.fit(result, shape, ResultBudget::of(config, asked))).unwrap()
        }

        fn whole(&self, link: &Value) -> ParkedPart {
            let id = link["uri"].as_str().unwrap().strip_prefix(super::super::results::RESULTS).unwrap();
            self.results.find(id, "me", 0).unwrap()
        }
    }

    #[test]
    fn pictures_are_given_whole_or_parked_whole_and_texts_around_them_stay() {
        let fixture = FitFixture::new(1_024, 4_000);
        let picture = |letter: &str, bytes: usize| ContentBlock::image(letter.repeat(bytes), "image/png");
        let result = CallToolResult::success(vec![
            ContentBlock::text("before"),
            picture("A", 4_000),
            picture("B", 4_000),
            ContentBlock::text("after"),
        ]);
        let given = fixture.fit(result, OF_SERVER, None);
        let kinds: Vec<_> =
            given["content"].as_array().unwrap().iter().map(|one| one["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["text", "image", "text", "resource_link", "text"]);
        assert_eq!(given["content"][1]["data"].as_str().unwrap().len(), 4_000);
        let link = &given["content"][3];
        assert_eq!((&link["mimeType"], &link["size"]), (&json!("image/png"), &json!(3_000)));
        assert!(given["content"][2]["text"].as_str().unwrap().starts_with("This image (image/png) has 3000 bytes"));
        let whole = fixture.whole(link);
        assert_eq!((&*whole.mime_type, whole.body), ("image/png", ParkedBody::Blob("B".repeat(4_000).into())));
        assert_eq!(given["_meta"]["dev.gantry/parked"][0]["bytes"], 3_000);
        assert_eq!(given["isError"], false);
    }

    #[test]
    fn a_text_that_is_too_large_says_what_is_shown_of_it() {
        let fixture = FitFixture::new(3_000, 0);
        let long = "ä".repeat(2_000);
        let given = fixture.fit(CallToolResult::success(vec![ContentBlock::text(long.clone())]), OF_SERVER, None);
        let words = given["content"][0]["text"].as_str().unwrap();
        assert!(words.starts_with("This text (text/plain) has 4000 bytes") && words.contains("Its first 2048 bytes:"));
        assert!(words.ends_with(&format!("\n\n{}", "ä".repeat(1_024))), "{words}");
        assert_eq!(fixture.whole(&given["content"][1]).body, ParkedBody::Text(long.into()));
        assert_eq!(given["content"][1]["size"], 4_000);
    }

    #[test]
    fn structure_and_the_text_that_repeats_it_count_once() {
        let value = json!({ "text": "x".repeat(2_000) });
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let make = |text: &str| {
            let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
            result.structured_content = Some(value.clone());
            result
        };
        let fixture = FitFixture::new(3_000, 0);
        let both = fixture.fit(make(&pretty), OF_SERVER, None);
        assert_eq!((&both["structuredContent"], both["content"].as_array().unwrap().len()), (&value, 1));
        assert!(both["_meta"].get("dev.gantry/parked").is_none());
        // Words of its own count, and go first.
        let other = fixture.fit(make(&"y".repeat(1_500)), OF_SERVER, None);
        assert!(other.get("structuredContent").is_none(), "{other}");
        assert_eq!(other["content"][2]["text"].as_str().unwrap().len(), 1_500);
        let promised = ResultOutline { structured_promised: true, ..OF_SERVER };
        let short = FitFixture::new(1_024, 0).fit(make(&pretty), promised, None);
        assert_eq!((&short["isError"], short.get("structuredContent")), (&json!(true), None));
        assert_eq!(short["content"].as_array().unwrap().len(), 2, "one preview, one link: {short}");
        assert_eq!(short["content"][1]["mimeType"], "application/json");
    }

    #[test]
    fn a_caller_says_how_much_it_takes() {
        let fixture = FitFixture::new(1_024, 1_024);
        let make = || {
            CallToolResult::success(vec![
                ContentBlock::text("x".repeat(2_000)),
                ContentBlock::image("A".repeat(2_000), "image/png"),
            ])
        };
        let all = fixture.fit(make(), OF_SERVER, Some(4_000));
        assert_eq!((all["content"].as_array().unwrap().len(), all.get("_meta")), (2, None));
        let less = fixture.fit(make(), OF_SERVER, Some(3_999));
        assert_eq!(less["content"].as_array().unwrap().len(), 3, "the picture is the part too much: {less}");
        assert_eq!(less["content"][2]["mimeType"], "image/png");
    }

    #[test]
    fn very_many_large_parts_are_one() {
        let fixture = FitFixture::new(1_024, 0);
        let blocks: Vec<_> = (0..100).map(|_| ContentBlock::image("A".repeat(400), "image/png")).collect();
        let given = fixture.fit(CallToolResult::success(blocks), OF_SERVER, None);
        assert_eq!(given["content"].as_array().unwrap().len(), 2, "{given}");
        let ParkedBody::Text(whole) = fixture.whole(&given["content"][1]).body else { panic!("{given}") };
        let whole: Value = serde_json::from_str(&whole).unwrap();
        assert_eq!(whole["content"].as_array().unwrap().len(), 100);
    }

    #[test]
    fn base64_is_measured_by_what_it_stands_for() {
        for (text, bytes) in [("", 0), ("QQ==", 1), ("QUI=", 2), ("QUJD", 3), ("QUJDRA==", 4), ("QUJDRA", 4)] {
            assert_eq!(decoded_bytes(text), bytes, "{text}");
        }
    }
}
