//! Secrets: keys of known providers, keys and tokens of known forms, and whatever is assigned to a name that says so.
//!
//! Everything that a secret can begin with, or that can stand in the middle of one, is found in one pass (`marks`). Only there
//! are the shapes looked at. Each look reads a bounded number of bytes, or bytes that no other look reads; what is found is
//! hidden to its end (`open_end`).
//!
//! Not here: values that are handed in (`engine`), and members of JSON with names of secrets (`document`).

mod assignment;
mod forms;
mod marks;
mod open_end;
mod plausible;
mod providers;

use crate::findings::{RedactionFinding, RedactionKind};
use marks::Marks;
use open_end::{Hidden, OpenEnd};
use providers::{PROVIDERS, Shape};

/// Parts of names after which a value is looked for.
const NAMES: [&str; 17] = [
    "passw",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "token",
    "key",
    "credential",
    "creds",
    "auth",
    "cookie",
    "bearer",
    "pat",
    "jwt",
    "pass",
    "signature",
    "webhook",
];
/// Beginnings of the forms that are not of one provider.
const FORMS: [&str; 9] =
    ["-----begin ", "eyj", "zxlk", "://", "bearer ", "basic ", "curl ", "kind", "putty-user-key-file-"];

/// What a mark stands for.
#[derive(Debug, Clone)]
enum Trigger {
    Name,
    Form(usize),
    Provider(Shape),
}

/// How far a text has been read.
#[derive(Debug, Default)]
struct Read {
    /// Up to here an assignment has been looked at: `api_key_secret` is one name, not three.
    named: usize,
    /// And up to here each of the forms that reads far: a form is not looked for in what it has read.
    forms: [usize; FORMS.len()],
    /// What is hidden.
    hidden: Hidden,
}

/// Finds secrets.
#[derive(Debug)]
pub(crate) struct SecretDetector {
    marks: Marks,
    /// Of each mark, by its number.
    triggers: Vec<Trigger>,
}

impl SecretDetector {
    pub(crate) fn new() -> Self {
        let mut literals: Vec<&str> = Vec::new();
        let mut triggers = Vec::new();
        for name in NAMES {
            literals.push(name);
            triggers.push(Trigger::Name);
        }
        for (index, form) in FORMS.into_iter().enumerate() {
            literals.push(form);
            triggers.push(Trigger::Form(index));
        }
        for row in PROVIDERS {
            let shape = Shape::of(row);
            literals.push(row.literal());
            triggers.push(Trigger::Provider(shape));
        }
        Self { marks: Marks::new(literals), triggers }
    }

    /// Appends the secrets of a text.
    pub(crate) fn find(&self, text: &str, found: &mut Vec<RedactionFinding>) {
        let mut read = Read::default();
        self.marks.each(text.as_bytes(), |mark, start, end| self.look(text, (mark, start, end), &mut read, found));
    }

    /// Looks at one mark. By itself, because most texts have none and should not pay for it.
    #[inline(never)]
    fn look(
        &self,
        text: &str,
        (mark, start, end): (usize, usize, usize),
        read: &mut Read,
        found: &mut Vec<RedactionFinding>,
    ) {
        let bytes = text.as_bytes();
        let place = match self.triggers.get(mark) {
            Some(Trigger::Name) if end > read.named => {
                let (next, place) = assignment::around(text, start, end);
                read.named = next;
                place
            }
            Some(Trigger::Form(form)) if read.forms.get(*form).is_some_and(|until| start >= *until) => {
                let alone = |place| (start, place);
                let whole = |(until, place): (usize, forms::Place)| {
                    (until, place.map(|(start, end)| (start, end, OpenEnd::None)))
                };
                let (until, place) = match FORMS.get(*form).copied().unwrap_or_default() {
                    "-----begin " => alone(forms::private_key(bytes, start)),
                    "eyj" => whole(forms::web_token(bytes, start)),
                    "zxlk" => whole(forms::wrapped_web_token(bytes, start)),
                    "://" => whole((start, forms::user_of_url(bytes, end))),
                    "bearer " => whole((start, forms::bearer(bytes, start, end))),
                    "basic " => whole((start, forms::basic(bytes, start, end))),
                    "curl " => whole(forms::user_of_curl(bytes, end)),
                    "kind" => (forms::kubernetes_secret(bytes, start, found), None),
                    _ => forms::putty_key(bytes, start),
                };
                if let Some(known) = read.forms.get_mut(*form) {
                    *known = until;
                }
                place
            }
            Some(Trigger::Provider(shape)) => shape.around(bytes, start, end),
            _ => None,
        };
        if let Some((start, end, rest)) = place {
            let end = read.hidden.end_of(bytes, end, rest);
            found.push(RedactionFinding { kind: RedactionKind::Secret, start, end });
        }
    }
}
