//! Results that are too large to be given at once: they wait here, and the caller gets a preview and a link. Read in pieces
//! by `gantry://results/{id}?offset=`, by whoever made the call and nobody else, for a while.
//!
//! Bounded in bytes and time; at the limit the oldest make room. An id is unguessable, and all the same the principal is
//! compared: a link that leaks gives nothing away. What is kept is what the caller was allowed to see then; whoever reads it
//! asks the kernel what of it may be seen now.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use kernel::ports::entropy::{Entropy, new_token_id};
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::{Value, json};

use super::config::McpConfig;

/// Where they are read.
pub(crate) const RESULTS: &str = "gantry://results/";
/// Bytes of one piece.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes of the preview.
const PREVIEW_BYTES: usize = 2 * 1024;

/// Results that wait.
#[derive(Debug, Default)]
pub(crate) struct ParkedResults(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    /// The oldest first.
    parked: VecDeque<Parked>,
    bytes: usize,
}

#[derive(Debug)]
struct Parked {
    id: String,
    principal: String,
    result: ParkedResult,
    until_ms: i64,
}

/// One that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParkedResult {
    /// The tool that said it.
    pub(crate) tool_id: Arc<str>,
    pub(crate) text: Arc<str>,
}

/// What is known of a result before it is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape<'a> {
    /// The tool that gave it.
    pub(crate) tool_id: &'a str,
    /// The tool has an output schema.
    pub(crate) structured_promised: bool,
    /// The text repeats what is structured, as in all results of our own.
    pub(crate) text_is_copy: bool,
}

/// A piece of a result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) next: Option<usize>,
    pub(crate) bytes: usize,
}

impl ParkedResults {
    /// The result as it may be given: itself, or a preview and a link to it.
    pub(crate) fn fit(
        &self,
        result: CallToolResult,
        principal: &str,
        shape: Shape<'_>,
        config: &McpConfig,
        entropy: &dyn Entropy,
        now_ms: i64,
    ) -> CallToolResult {
        let structured_promised = shape.structured_promised;
        if is_small(&result, shape, config.result_bytes_max) {
            return result;
        }
        let Some(text) = whole(&result).filter(|text| text.len() > config.result_bytes_max) else { return result };
        let bytes = text.len();
        let preview = piece(&text, 0, PREVIEW_BYTES).text;
        let id = new_token_id(entropy).to_string();
        let until_ms = now_ms.saturating_add(i64::try_from(config.parked_for().as_millis()).unwrap_or(i64::MAX));
        let uri = format!("{RESULTS}{id}");
        let result_kept = ParkedResult { tool_id: shape.tool_id.into(), text: text.into() };
        let parked = Parked { id, principal: principal.to_owned(), result: result_kept, until_ms };
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).put(parked, config.parked_bytes_max, now_ms);
        let more = if kept {
            format!("read the whole of it in pieces from {uri} (then ?offset=…), within {} s", config.parked_ms / 1000)
        } else {
            "it is too large to be kept; ask for less".to_owned()
        };
        let words =
            format!("The result has {bytes} bytes, more than are given at once: {more}. It begins:\n\n{preview}");
        let mut content = vec![ContentBlock::text(words)];
        if kept {
            let mime_type = if structured_promised { "application/json" } else { "text/plain" };
            let link = Resource::new(uri, "result")
                .with_mime_type(mime_type)
                .with_size(u64::try_from(bytes).unwrap_or(u64::MAX));
            content.push(ContentBlock::ResourceLink(link));
        }
        // A client that was promised structure takes its absence for a fault of the protocol, unless the result says
        // itself that it is not what was asked for.
        let short = if structured_promised { CallToolResult::error(content) } else { CallToolResult::success(content) };
        let mut meta = result.meta.unwrap_or_default();
        meta.0.insert("dev.gantry/parked".to_owned(), json!({ "bytes": bytes, "kept": kept }));
        short.with_meta(Some(meta))
    }

    /// A waiting result. `None`: there is none, or not for this caller, or not any more.
    pub(crate) fn find(&self, id: &str, principal: &str, now_ms: i64) -> Option<ParkedResult> {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.forget(now_ms);
        let found = shelf.parked.iter().find(|one| one.id == id && one.principal == principal)?;
        Some(found.result.clone())
    }

    /// How many wait, and their bytes.
    pub(crate) fn held(&self) -> (usize, usize) {
        let shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (shelf.parked.len(), shelf.bytes)
    }
}

impl Shelf {
    fn put(&mut self, parked: Parked, bytes_max: usize, now_ms: i64) -> bool {
        self.forget(now_ms);
        let bytes = parked.result.text.len();
        if bytes > bytes_max {
            return false;
        }
        while self.bytes + bytes > bytes_max {
            let Some(oldest) = self.parked.pop_front() else { break };
            self.bytes -= oldest.result.text.len();
        }
        self.bytes += bytes;
        self.parked.push_back(parked);
        true
    }

    fn forget(&mut self, now_ms: i64) {
        self.parked.retain(|one| one.until_ms > now_ms);
        self.bytes = self.parked.iter().map(|one| one.result.text.len()).sum();
    }
}

/// Is it surely small enough? Nearly all are, and are not written out to find that out: one text, which what is
/// structured repeats.
fn is_small(result: &CallToolResult, shape: Shape<'_>, bytes_max: usize) -> bool {
    let all_is_text = shape.text_is_copy || result.structured_content.is_none();
    matches!(result.content.as_slice(), [ContentBlock::Text(text)] if all_is_text && text.text.len() <= bytes_max)
}

/// Everything a result holds, as one text.
fn whole(result: &CallToolResult) -> Option<String> {
    if let Some(structured) = &result.structured_content {
        return Some(structured.to_string());
    }
    match result.content.as_slice() {
        [ContentBlock::Text(text)] => Some(text.text.clone()),
        [] => None,
        blocks => serde_json::to_value(blocks).ok().map(|value: Value| value.to_string()),
    }
}

/// At most `bytes_max` bytes from `offset`, cut between characters.
fn piece(text: &str, offset: usize, bytes_max: usize) -> Piece {
    let rest = text.get(offset..).unwrap_or_default();
    let end = rest.floor_char_boundary(bytes_max);
    let next = offset + end;
    Piece {
        text: rest.get(..end).unwrap_or_default().to_owned(),
        next: (next < text.len()).then_some(next),
        bytes: text.len(),
    }
}

impl Piece {
    /// The piece of a text that begins there. `None`: nothing does.
    pub(crate) fn at(text: &str, offset: usize) -> Option<Self> {
        (offset < text.len() && text.is_char_boundary(offset)).then(|| piece(text, offset, PIECE_BYTES))
    }

    /// As a resource.
    pub(crate) fn contents(self, uri: &str, id: &str) -> ResourceContents {
        let mut meta = rmcp::model::MetaObject::new();
        meta.0.insert("dev.gantry/bytes".to_owned(), json!(self.bytes));
        if let Some(next) = self.next {
            meta.0.insert("dev.gantry/next".to_owned(), json!(format!("{RESULTS}{id}?offset={next}")));
        }
        ResourceContents::text(self.text, uri).with_meta(meta)
    }
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

    const PLAIN: Shape<'static> = Shape { tool_id: "a.tool", structured_promised: false, text_is_copy: true };

    fn id_of(result: &CallToolResult) -> String {
        let value = serde_json::to_value(result).unwrap();
        value["content"][1]["uri"].as_str().unwrap().strip_prefix(RESULTS).unwrap().to_owned()
    }

    #[test]
    fn a_large_result_is_read_in_pieces_by_its_owner_and_nobody_else() {
        let results = ParkedResults::default();
        let config = McpConfig { result_bytes_max: 1024, ..McpConfig::default() };
        let entropy = Counting(0.into());
        let text = "ä".repeat(100_000);
        let large = CallToolResult::success(vec![ContentBlock::text(text.clone())]);
        let short = results.fit(large, "me", PLAIN, &config, &entropy, 0);
        let id = id_of(&short);
        let mut read = String::new();
        let mut at = Some(0);
        while let Some(offset) = at {
            let piece = Piece::at(&results.find(&id, "me", 1).unwrap().text, offset).unwrap();
            read += &piece.text;
            at = piece.next;
        }
        assert_eq!(read, text);
        assert_eq!(&*results.find(&id, "me", 1).unwrap().tool_id, "a.tool");
        assert_eq!(results.find(&id, "you", 1), None);
        assert_eq!(Piece::at(&text, 1), None, "between two bytes of one character");
        assert_eq!(Piece::at(&text, text.len()), None);
        assert_eq!(results.find(&id, "me", 900_000), None, "its time is over");
        assert_eq!(results.held(), (0, 0));
    }

    #[test]
    fn the_oldest_make_room_and_what_never_fits_is_not_kept() {
        let results = ParkedResults::default();
        let config = McpConfig { result_bytes_max: 1024, parked_bytes_max: 5_000, ..McpConfig::default() };
        let entropy = Counting(0.into());
        let make = |bytes: usize| CallToolResult::success(vec![ContentBlock::text("x".repeat(bytes))]);
        let first = id_of(&results.fit(make(3_000), "me", PLAIN, &config, &entropy, 0));
        let second = id_of(&results.fit(make(3_000), "me", PLAIN, &config, &entropy, 0));
        assert_eq!(results.find(&first, "me", 0), None);
        assert!(results.find(&second, "me", 0).is_some());
        let never = results.fit(make(6_000), "me", PLAIN, &config, &entropy, 0);
        assert_eq!((never.content.len(), results.held()), (1, (1, 3_000)));
        let small = results.fit(make(1_000), "me", PLAIN, &config, &entropy, 0);
        assert_eq!(small.content, make(1_000).content);
    }

    #[test]
    fn where_structure_was_promised_its_absence_is_said_aloud() {
        let config = McpConfig { result_bytes_max: 1024, ..McpConfig::default() };
        let mut result = CallToolResult::success(vec![ContentBlock::text("x")]);
        result.structured_content = Some(json!({ "text": "x".repeat(2_000) }));
        let short = ParkedResults::default().fit(
            result,
            "me",
            Shape { tool_id: "a.tool", structured_promised: true, text_is_copy: false },
            &config,
            &Counting(0.into()),
            0,
        );
        assert_eq!((short.is_error, short.structured_content), (Some(true), None));
    }
}
