//! Parts of results that are too large to be given at once: they wait here whole, and the caller gets a preview and a link. Read
//! at `gantry://results/{id}`, texts also in pieces by `?offset=`, by whoever made the call and nobody else, for a while.
//!
//! Bounded in bytes and time. At the limit the oldest part of whoever holds most makes room: of the tenant that does, and
//! within it of the agent; so nobody's results are pushed out by a louder neighbour. An id is unguessable, and all the same the principal is
//! compared: a link that leaks gives nothing away. What is kept is what the caller was allowed to see then; whoever reads it
//! asks the kernel what of it may be seen now.
//!
//! Not here: which parts are too large (`result_fit`).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use base::{MutexExt as _, SaturatingFrom as _};
use policy::Caller;
use ports::entropy::{Entropy, new_token_id};
use rmcp::model::ResourceContents;
use serde_json::json;

use super::config::McpConfig;
use super::seal;

/// Where they are read.
pub(crate) const RESULTS: &str = "gantry://results/";
/// Bytes of one piece.
const PIECE_BYTES: usize = 64 * 1024;

/// Parts that wait.
#[derive(Debug, Default)]
pub(crate) struct ParkedResults(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    /// The oldest first.
    parked: VecDeque<Parked>,
    bytes: usize,
    /// Parts that had to make room before their time was over.
    evicted: u64,
}

/// For whom a part waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResultOwner {
    tenant: String,
    /// The root of the chain: names that an agent gives itself hold no more.
    agent: String,
    /// Who may read it.
    principal: String,
}

impl ResultOwner {
    pub(crate) fn of(caller: &Caller) -> Self {
        Self {
            tenant: caller.tenant().to_string(),
            agent: caller.root_subject().to_string(),
            principal: seal::principal(caller),
        }
    }

    #[cfg(test)]
    pub(crate) fn named(tenant: &str, agent: &str) -> Self {
        Self { tenant: tenant.to_owned(), agent: agent.to_owned(), principal: agent.to_owned() }
    }
}

#[derive(Debug)]
struct Parked {
    id: String,
    owner: ResultOwner,
    part: ParkedPart,
    until_ms: i64,
}

/// One that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParkedPart {
    /// The tool that said it.
    pub(crate) tool_id: Arc<str>,
    pub(crate) mime_type: Arc<str>,
    pub(crate) body: ParkedBody,
}

/// What it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParkedBody {
    Text(Arc<str>),
    /// In base64, as it came.
    Blob(Arc<str>),
}

impl ParkedBody {
    /// Bytes that it takes here.
    fn len(&self) -> usize {
        match self {
            Self::Text(text) | Self::Blob(text) => text.len(),
        }
    }
}

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TextPiece {
    pub(crate) text: String,
    pub(crate) next: Option<usize>,
    pub(crate) bytes: usize,
}

impl ParkedResults {
    /// Keeps a part, and says where it is read. `None`: it is larger than everything that may wait. A part that waits already,
    /// because its task was asked for twice, waits once and for longer.
    pub(crate) fn put(
        &self,
        owner: &ResultOwner,
        part: ParkedPart,
        config: &McpConfig,
        entropy: &dyn Entropy,
        now_ms: i64,
    ) -> Option<String> {
        let until_ms = now_ms.saturating_add(i64::saturating_from(config.parked_for().as_millis()));
        let mut shelf = self.0.lock_unpoisoned();
        shelf.forget(now_ms);
        let same = |one: &&mut Parked| one.owner == *owner && one.part == part;
        if let Some(known) = shelf.parked.iter_mut().find(same) {
            known.until_ms = until_ms;
            return Some(format!("{RESULTS}{}", known.id));
        }
        let id = new_token_id(entropy).to_string();
        let uri = format!("{RESULTS}{id}");
        let parked = Parked { id, owner: owner.clone(), part, until_ms };
        shelf.put(parked, config.parked_bytes_max).then_some(uri)
    }

    /// A part that waits. `None`: there is none, or not for this caller, or not any more.
    pub(crate) fn find(&self, id: &str, principal: &str, now_ms: i64) -> Option<ParkedPart> {
        let mut shelf = self.0.lock_unpoisoned();
        shelf.forget(now_ms);
        let found = shelf.parked.iter().find(|one| one.id == id && one.owner.principal == principal)?;
        Some(found.part.clone())
    }

    /// How many wait, and their bytes.
    pub(crate) fn held(&self) -> (usize, usize) {
        let shelf = self.0.lock_unpoisoned();
        (shelf.parked.len(), shelf.bytes)
    }

    /// How many had to make room before their time was over.
    pub(crate) fn evicted(&self) -> u64 {
        self.0.lock_unpoisoned().evicted
    }
}

impl Shelf {
    fn put(&mut self, parked: Parked, bytes_max: usize) -> bool {
        let bytes = parked.part.body.len();
        if bytes > bytes_max {
            return false;
        }
        self.bytes += bytes;
        self.parked.push_back(parked);
        while self.bytes > bytes_max && self.evict() {}
        true
    }

    /// The oldest part of the agent that holds most, in the tenant that does: of those who hold more than the newest part, which
    /// stays, because it was let in.
    fn evict(&mut self) -> bool {
        let before = self.parked.len().saturating_sub(1);
        let evictable = || self.parked.iter().take(before);
        let (mut of_tenants, mut of_agents) = (HashMap::new(), HashMap::new());
        for one in &self.parked {
            let (tenant, agent) = (one.owner.tenant.as_str(), one.owner.agent.as_str());
            *of_tenants.entry(tenant).or_insert(0) += one.part.body.len();
            *of_agents.entry((tenant, agent)).or_insert(0) += one.part.body.len();
        }
        // The names decide between equals, so that the same state always gives the same answer; of one agent the oldest goes.
        let weight = |one: &&Parked| {
            let (tenant, agent) = (one.owner.tenant.as_str(), one.owner.agent.as_str());
            let held = |sum: Option<&usize>| sum.copied().unwrap_or_default();
            (held(of_tenants.get(tenant)), tenant.to_owned(), held(of_agents.get(&(tenant, agent))), agent.to_owned())
        };
        let Some(heaviest) = evictable().max_by_key(weight).map(|one| one.owner.clone()) else { return false };
        let is_theirs = |one: &&Parked| one.owner.tenant == heaviest.tenant && one.owner.agent == heaviest.agent;
        let Some(id) = evictable().find(is_theirs).map(|one| one.id.clone()) else { return false };
        self.parked.retain(|one| {
            one.id != id || {
                self.bytes -= one.part.body.len();
                self.evicted += 1;
                false
            }
        });
        true
    }

    fn forget(&mut self, now_ms: i64) {
        self.parked.retain(|one| one.until_ms > now_ms);
        self.bytes = self.parked.iter().map(|one| one.part.body.len()).sum();
    }
}

/// At most `bytes_max` bytes from `offset`, cut between characters.
pub(crate) fn piece(text: &str, offset: usize, bytes_max: usize) -> TextPiece {
    let rest = text.get(offset..).unwrap_or_default();
    let end = rest.floor_char_boundary(bytes_max);
    let next = offset + end;
    TextPiece {
        text: rest.get(..end).unwrap_or_default().to_owned(),
        next: (next < text.len()).then_some(next),
        bytes: text.len(),
    }
}

impl TextPiece {
    /// The piece of a text that begins there. `None`: nothing does.
    pub(crate) fn at(text: &str, offset: usize) -> Option<Self> {
        (offset < text.len() && text.is_char_boundary(offset)).then(|| piece(text, offset, PIECE_BYTES))
    }

    /// As a resource. A piece of JSON is none, so it says that it is text.
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

    fn text(text: &str) -> ParkedPart {
        ParkedPart { tool_id: "a.tool".into(), mime_type: "text/plain".into(), body: ParkedBody::Text(text.into()) }
    }

    fn id_of(uri: &str) -> &str {
        uri.strip_prefix(RESULTS).unwrap()
    }

    #[test]
    fn a_part_is_found_by_its_owner_and_nobody_else_for_its_time() {
        let (results, config, entropy) = (ParkedResults::default(), McpConfig::default(), Counting(0.into()));
        let long = "ä".repeat(100_000);
        let uri = results.put(&ResultOwner::named("home", "me"), text(&long), &config, &entropy, 0).unwrap();
        let id = id_of(&uri);
        assert_eq!(results.find(id, "me", 1), Some(text(&long)));
        assert_eq!(results.find(id, "you", 1), None);
        assert_eq!(
            results.put(&ResultOwner::named("home", "me"), text(&long), &config, &entropy, 10).as_deref(),
            Some(&*uri),
            "it waits already"
        );
        assert_ne!(results.put(&ResultOwner::named("home", "you"), text(&long), &config, &entropy, 10).unwrap(), uri);
        assert!(results.find(id, "me", 900_005).is_some(), "and for longer");
        assert_eq!(results.find(id, "me", 900_010), None, "its time is over");
        assert_eq!(results.held(), (0, 0));
    }

    #[test]
    fn pieces_of_a_text_make_the_whole_and_begin_between_characters() {
        let long = "ä".repeat(100_000);
        let mut read = String::new();
        let mut at = Some(0);
        while let Some(offset) = at {
            let piece = TextPiece::at(&long, offset).unwrap();
            assert_eq!(piece.bytes, 200_000);
            read += &piece.text;
            at = piece.next;
        }
        assert_eq!(read, long);
        assert_eq!(TextPiece::at(&long, 1), None, "between two bytes of one character");
        assert_eq!(TextPiece::at(&long, long.len()), None);
    }

    #[test]
    fn the_oldest_make_room_and_what_never_fits_is_not_kept() {
        let (results, entropy) = (ParkedResults::default(), Counting(0.into()));
        let config = McpConfig { parked_bytes_max: 5_000, ..McpConfig::default() };
        let put = |letter: &str, bytes: usize| {
            results.put(&ResultOwner::named("home", "me"), text(&letter.repeat(bytes)), &config, &entropy, 0)
        };
        let (first, second) = (put("a", 3_000).unwrap(), put("b", 3_000).unwrap());
        assert_eq!(results.find(id_of(&first), "me", 0), None);
        assert!(results.find(id_of(&second), "me", 0).is_some());
        assert_eq!((put("c", 6_000), results.held()), (None, (1, 3_000)));
    }

    #[test]
    fn whoever_holds_most_makes_room_and_nobody_else() {
        let (results, entropy) = (ParkedResults::default(), Counting(0.into()));
        let config = McpConfig { parked_bytes_max: 10_000, ..McpConfig::default() };
        let put = |tenant: &str, agent: &str, letter: u8, bytes: usize| {
            let part = text(&char::from(letter).to_string().repeat(bytes));
            let uri = results.put(&ResultOwner::named(tenant, agent), part, &config, &entropy, 0).unwrap();
            id_of(&uri).to_owned()
        };
        let quiet = put("acme", "ann", b'q', 2_000);
        let neighbour = put("mallory", "moe", b'n', 1_000);
        let loud: Vec<String> = (b'a'..b'p').map(|letter| put("mallory", "max", letter, 1_500)).collect();
        let found = |id: &str, agent: &str| results.find(id, agent, 0).is_some();
        assert!(found(&quiet, "ann") && found(&neighbour, "moe"), "others keep theirs");
        let kept = loud.iter().filter(|id| found(id, "max")).count();
        assert_eq!(kept, 4, "the loud one has what is left, and its newest");
        assert!(found(loud.last().unwrap(), "max"));
        let second = put("zeta", "zoe", b'z', 4_500);
        assert!(found(&second, "zoe") && found(&quiet, "ann") && found(&neighbour, "moe"));
        assert_eq!(loud.iter().filter(|id| found(id, "max")).count(), 1);
        assert_eq!(results.evicted(), 14);
        let whole = put("acme", "ann", b'w', 10_000);
        assert!(found(&whole, "ann"), "what is let in is kept, if it takes all of the room");
        assert_eq!(results.held(), (1, 10_000));
    }
}
