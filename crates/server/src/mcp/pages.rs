//! Pages of lists, and the cursors between them.
//!
//! A cursor names the last key of its page. So pages stay right when things come and go in between: nothing that stays is
//! left out or seen twice.

use contract::hex::lower_hex;

/// Longest key of something that is listed, in bytes. What has a longer one is left out.
pub(crate) const KEY_BYTES_MAX: usize = 4_096;

/// The part of a list after a cursor, and the next cursor. The list is ordered by its keys. `None`: the cursor is not ours.
pub(crate) fn page<T>(
    items: Vec<(String, T)>,
    cursor: Option<&str>,
    page_size: usize,
) -> Option<(Vec<T>, Option<String>)> {
    let last = match cursor {
        None => None,
        Some(cursor) => Some(key_of(cursor)?),
    };
    let mut rest = items.into_iter().filter(|(key, _)| last.as_ref().is_none_or(|last| key > last)).peekable();
    let (mut shown, mut end) = (Vec::new(), None);
    while shown.len() < page_size
        && let Some((key, item)) = rest.next()
    {
        shown.push(item);
        end = Some(key);
    }
    let next = rest.peek().and(end).map(|key| cursor_of(&key));
    Some((shown, next))
}

/// Opaque to clients, stable, and without meaning elsewhere.
pub(crate) fn cursor_of(key: &str) -> String {
    lower_hex(key.as_bytes())
}

/// The key that a cursor names.
pub(crate) fn key_of(cursor: &str) -> Option<String> {
    if cursor.len() > 2 * KEY_BYTES_MAX || !cursor.is_ascii() {
        return None;
    }
    let (pairs, rest) = cursor.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || pairs.is_empty() {
        return None;
    }
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(keys: &[&str]) -> Vec<(String, String)> {
        keys.iter().map(|key| ((*key).to_owned(), (*key).to_owned())).collect()
    }

    #[test]
    fn pages_stay_right_when_things_come_and_go() {
        let (first, next) = page(items(&["a", "b", "c", "d"]), None, 2).unwrap();
        assert_eq!(first, ["a", "b"]);
        // `b` went, `aa` and `bb` came.
        let (second, next) = page(items(&["a", "aa", "bb", "c", "d"]), next.as_deref(), 3).unwrap();
        assert_eq!((second, next), (vec!["bb".to_owned(), "c".to_owned(), "d".to_owned()], None));
        assert_eq!(page(items(&[]), None, 2).unwrap(), (vec![], None));
        for none in ["", "0", "zz", "c3", &"61".repeat(5_000)] {
            assert!(page(items(&["a"]), Some(none), 2).is_none(), "{none}");
        }
    }
}
