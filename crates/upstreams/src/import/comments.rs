//! JSON as some editors write it, made into JSON: comments and trailing commas become spaces, so that every place in the
//! text stays where it was and messages about it are right.

/// The text without comments and trailing commas.
pub(super) fn without(text: &str) -> String {
    let mut out: Vec<char> = Vec::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    // Where the last comma stands that nothing but blanks and comments has followed.
    let mut comma: Option<usize> = None;
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('"', _) => {
                comma = None;
                out.push(c);
                while let Some(inside) = rest.next() {
                    out.push(inside);
                    match inside {
                        '"' => break,
                        '\\' => out.extend(rest.next()),
                        _ => {}
                    }
                }
            }
            ('/', Some('/')) => {
                out.push(' ');
                while rest.peek().is_some_and(|next| *next != '\n') {
                    rest.next();
                    out.push(' ');
                }
            }
            ('/', Some('*')) => {
                rest.next();
                out.extend([' ', ' ']);
                let mut before = ' ';
                for inside in rest.by_ref() {
                    out.push(if inside == '\n' { '\n' } else { ' ' });
                    if before == '*' && inside == '/' {
                        break;
                    }
                    before = inside;
                }
            }
            (',', _) => {
                comma = Some(out.len());
                out.push(c);
            }
            ('}' | ']', _) => {
                if let Some(place) = comma.take().and_then(|at| out.get_mut(at)) {
                    *place = ' ';
                }
                out.push(c);
            }
            _ => {
                if !c.is_whitespace() {
                    comma = None;
                }
                out.push(c);
            }
        }
    }
    out.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn comments_and_trailing_commas_go_and_places_stay() {
        let text = "{ // one, \"two\"\n \"a\": \"// no\", /* x,\n y */ \"b\": [1, 2, /* z */ ], }";
        let plain = without(text);
        let value: serde_json::Value = serde_json::from_str(&plain).unwrap();
        assert_eq!(value, serde_json::json!({ "a": "// no", "b": [1, 2] }));
        assert_eq!(plain.chars().count(), text.chars().count());
        assert_eq!(plain.lines().count(), text.lines().count());
        for broken in ["\"abc", "/* abc", "{,", "\\", "\"\\"] {
            // Whatever is made of it: it comes back.
            let _ = without(broken);
        }
    }

    proptest! {
        #[test]
        fn what_is_json_already_stays_as_it_is(keys in proptest::collection::vec("\\PC{0,8}", 0..6), n in any::<i64>()) {
            let value = serde_json::json!({ "keys": keys, "n": n, "deep": [{ "x": [n, null, true] }] });
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                prop_assert_eq!(without(&text), text);
            }
        }
    }
}
