//! Whose a call is, and everything that is kept of it: jobs, outcomes, keys, checkpoints.
//!
//! Whoever holds a token may exchange it for one with any other name of its tenant. So a name says who somebody is only
//! together with the names of those who handed the token on: `alice`, whom an authority has named, and `alice`, whom
//! `mallory` has made of its own token, are two owners. All names of the chain count and not its root alone, because two
//! agents of one root are no more each other than two agents of two roots.
//!
//! Tokens that were only narrowed, for the same name, have the owner of the token they came of.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use contract::ids::{NameError, Subject};

use crate::caller::Caller;

/// Stands between names. No name has a space.
const BETWEEN: char = ' ';

/// The names of a delegation chain, from the root to the caller's own; without delegation the caller's name alone.
///
/// Its text is what is kept and compared. Where nothing was handed on it is the plain name.
///
/// ```
/// # use gantry_policy::CallOwner;
/// let (alice, made): (CallOwner, CallOwner) = ("alice".parse().unwrap(), "mallory alice".parse().unwrap());
/// assert_eq!(alice.subject(), made.subject());
/// assert_ne!(alice, made);
/// assert_eq!((alice.delegators(), made.delegators()), (None, Some("mallory")));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallOwner {
    text: Arc<str>,
    subject: Subject,
}

impl CallOwner {
    /// Of a call by this caller.
    pub(crate) fn of(caller: &Caller) -> Self {
        let own = caller.subject();
        if caller.chain().iter().all(|link| link.sub == *own) {
            return Self::from(own.clone());
        }
        let mut text = String::new();
        let mut last: Option<&Subject> = None;
        for name in caller.chain().iter().rev().map(|link| &link.sub).chain([own]) {
            if last == Some(name) {
                continue;
            }
            if last.is_some() {
                text.push(BETWEEN);
            }
            text.push_str(name.as_str());
            last = Some(name);
        }
        Self { text: text.into(), subject: own.clone() }
    }

    /// As it is kept in two parts: the caller's name, and the names before it if there are any.
    pub fn kept(subject: &str, delegators: Option<&str>) -> Result<Self, NameError> {
        match delegators {
            None => Ok(Self::from(subject.parse::<Subject>()?)),
            Some(delegators) => format!("{delegators}{BETWEEN}{subject}").parse(),
        }
    }

    /// The caller's own name.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The name that an authority has given: the first of the chain.
    pub fn root(&self) -> &str {
        self.text.split(BETWEEN).next().unwrap_or_default()
    }

    /// Those who handed the token on, the root first; `None` if nobody did.
    pub fn delegators(&self) -> Option<&str> {
        self.text.rsplit_once(BETWEEN).map(|(delegators, _)| delegators)
    }

    /// All names in one text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl From<Subject> for CallOwner {
    fn from(subject: Subject) -> Self {
        Self { text: subject.as_str().into(), subject }
    }
}

impl FromStr for CallOwner {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut names = text.split(BETWEEN).map(str::parse::<Subject>);
        // Splitting gives one part at least, and an empty one is no name.
        let mut subject = names.next().unwrap_or_else(|| "".parse())?;
        for name in names {
            subject = name?;
        }
        Ok(Self { text: text.into(), subject })
    }
}

impl fmt::Display for CallOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for CallOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallOwner({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delegation::Delegator;
    use serde_json::json;

    /// The owner of what is done with a token of `names`, from the root to the caller.
    fn owner(names: &[&str]) -> CallOwner {
        let (own, before) = names.split_last().unwrap();
        let claims = json!({
            "iss": "gantry", "aud": "gantry", "sub": own, "exp": 60, "nbf": 0, "iat": 0, "jti": "j", "tenant": "t",
            "roles": ["agent"], "tools": [], "scopes": [],
        });
        let link = |name: &&str| -> Delegator { serde_json::from_value(json!({ "sub": name })).unwrap() };
        let chain = before.iter().rev().map(link).collect();
        Caller::from_token(serde_json::from_value(claims).unwrap(), chain, 0).owner()
    }

    #[test]
    fn a_name_is_its_own_owner_until_it_comes_from_another_hand() {
        assert_eq!(owner(&["alice"]), "alice".parse().unwrap());
        assert_eq!(owner(&["alice", "alice", "alice"]), owner(&["alice"]), "narrowed for itself");
        assert_eq!(owner(&["boss", "boss", "alice"]), owner(&["boss", "alice"]));
        let all = [
            owner(&["alice"]),
            owner(&["mallory", "alice"]),
            owner(&["boss", "alice"]),
            owner(&["boss", "mallory", "alice"]),
            owner(&["alice", "mallory", "alice"]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all.iter().skip(index + 1).all(|other| other != one), "{one}");
            assert_eq!(one.subject().as_str(), "alice");
        }
    }

    #[test]
    fn what_is_kept_is_read_back() {
        for one in [owner(&["alice"]), owner(&["mallory", "alice"]), owner(&["boss", "mallory", "alice"])] {
            assert_eq!(CallOwner::kept(one.subject().as_str(), one.delegators()).unwrap(), one);
            assert_eq!(one.as_str().parse::<CallOwner>().unwrap(), one);
        }
        for broken in ["", " ", "a ", " a", "a  b", "a\tb"] {
            broken.parse::<CallOwner>().unwrap_err();
        }
        CallOwner::kept("alice", Some("")).unwrap_err();
        CallOwner::kept("alice bob", None).unwrap_err();
    }
}
