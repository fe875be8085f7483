//! Server-sent events, taken out of bytes as they come.
//!
//! Invariants
//! - SSE-1: no more than the given bytes of one event are ever kept; a longer one is an error, and the stream of no use.
//! - SSE-2: how the bytes are cut into pieces changes nothing.
//!
//! Not here: connecting again and from where (`connection::streamable`).

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// The word before the data; `message` if there is none.
    pub kind: String,
    /// All its lines.
    pub data: String,
    /// From which the stream can be taken up again.
    pub id: Option<String>,
    /// Milliseconds until the stream should be opened again.
    pub retry_ms: Option<u64>,
}

/// An event that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {0} bytes")]
pub struct TooLong(pub usize);

/// Takes bytes, gives events.
#[derive(Debug)]
pub struct SseEvents {
    most: usize,
    /// Bytes of a line that has no end yet.
    line: Vec<u8>,
    event: SseEvent,
    /// Bytes of the event so far.
    size: usize,
    any: bool,
    after_return: bool,
}

impl SseEvents {
    /// For events of at most so many bytes.
    pub fn new(most: usize) -> Self {
        Self { most, line: Vec::new(), event: SseEvent::default(), size: 0, any: false, after_return: false }
    }

    /// Takes bytes and gives the events that end in them.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, TooLong> {
        let mut ended = Vec::new();
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (piece, end) = rest.split_at(at);
            let is_return = end.first() == Some(&b'\r');
            rest = end.get(1..).unwrap_or_default();
            // `\r\n` is one end.
            if !is_return && self.after_return && piece.is_empty() && self.line.is_empty() {
                self.after_return = false;
                continue;
            }
            self.after_return = is_return;
            self.keep(piece)?;
            let line = std::mem::take(&mut self.line);
            ended.extend(self.line_ended(&line));
        }
        if !rest.is_empty() {
            self.after_return = false;
        }
        self.keep(rest)?;
        Ok(ended)
    }

    fn keep(&mut self, piece: &[u8]) -> Result<(), TooLong> {
        self.size = self.size.saturating_add(piece.len());
        if self.size > self.most {
            return Err(TooLong(self.most));
        }
        self.line.extend_from_slice(piece);
        Ok(())
    }

    fn line_ended(&mut self, line: &[u8]) -> Option<SseEvent> {
        if line.is_empty() {
            self.size = 0;
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.any).then_some(event);
        }
        let line = String::from_utf8_lossy(line);
        let line = line.strip_prefix('\u{feff}').unwrap_or(&line);
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.kind),
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry_ms = value.parse().ok(),
            // A comment, or a field of a later time.
            _ => return None,
        }
        self.any = true;
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> Vec<SseEvent> {
        SseEvents::new(10_000).push(text.as_bytes()).unwrap()
    }

    #[test]
    fn events_are_read_as_they_are_written() {
        let event = |kind: &str, data: &str, id: Option<&str>, retry_ms| SseEvent {
            kind: kind.into(),
            data: data.into(),
            id: id.map(str::to_owned),
            retry_ms,
        };
        for (text, expected) in [
            ("data: a\n\n", vec![event("", "a", None, None)]),
            ("data:a\ndata: b\n\n", vec![event("", "a\nb", None, None)]),
            ("event: endpoint\ndata: /x\n\n", vec![event("endpoint", "/x", None, None)]),
            ("id: 7\nretry: 50\ndata:\n\n", vec![event("", "", Some("7"), Some(50))]),
            (": comment\n\n", vec![]),
            ("data: a\r\n\r\ndata: b\r\r", vec![event("", "a", None, None), event("", "b", None, None)]),
            ("data: unfinished", vec![]),
        ] {
            assert_eq!(all(text), expected, "{text:?}");
        }
    }

    #[test]
    fn an_event_without_end_is_an_error_and_not_a_heap() {
        let mut events = SseEvents::new(100);
        assert!(events.push(&[b'x'; 100]).is_ok());
        assert_eq!(events.push(b"x"), Err(TooLong(100)));
        let mut events = SseEvents::new(100);
        let many = "data: 1234567890\n".repeat(20);
        assert_eq!(events.push(many.as_bytes()), Err(TooLong(100)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn cutting_the_bytes_changes_nothing(text in "(data: ?[a-c]{0,3}|id: [0-9]|event: x|: c|)(\n|\r\n|\r|\n\n|\r\n\r\n){1,2}".prop_map(|line| line.repeat(3)), cut in 0usize..40) {
            let whole = all(&text);
            let mut events = SseEvents::new(10_000);
            let (first, second) = text.as_bytes().split_at(cut.min(text.len()));
            let mut pieces = events.push(first).unwrap();
            pieces.extend(events.push(second).unwrap());
            prop_assert_eq!(pieces, whole);
        }
    }
}
