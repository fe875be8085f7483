//! The words of policies: the published schema, and the names of its types ready for use.
//!
//! The schema is part of the binary, so that what a policy was checked against is what decides about it.

use std::sync::LazyLock;

use cedar_policy::{EntityId, EntityTypeName, EntityUid, Schema};

/// The published schema, in Cedar's own syntax.
pub const SCHEMA: &str = include_str!("../../../../schemas/gantry.cedarschema");

/// The schema read, and a name for each of its types.
#[derive(Debug)]
pub(super) struct Vocabulary {
    pub(super) schema: Schema,
    pub(super) tenant: EntityTypeName,
    pub(super) user: EntityTypeName,
    pub(super) agent: EntityTypeName,
    pub(super) namespace: EntityTypeName,
    pub(super) tool: EntityTypeName,
    pub(super) texts: EntityTypeName,
    pub(super) numbers: EntityTypeName,
    pub(super) decimals: EntityTypeName,
    pub(super) flags: EntityTypeName,
    pub(super) lists: EntityTypeName,
    pub(super) invoke: EntityUid,
}

/// `Type::"id"`.
pub(super) fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

/// The one vocabulary of this build.
pub(super) fn vocabulary() -> &'static Vocabulary {
    static READ: LazyLock<Vocabulary> = LazyLock::new(read);
    &READ
}

#[expect(clippy::expect_used, reason = "the texts are constants of this build, and a test reads them")]
fn read() -> Vocabulary {
    let (schema, _warnings) = Schema::from_cedarschema_str(SCHEMA).expect("the embedded schema is sound");
    let kind = |name: &str| name.parse::<EntityTypeName>().expect("a plain identifier");
    Vocabulary {
        schema,
        tenant: kind("Tenant"),
        user: kind("User"),
        agent: kind("Agent"),
        namespace: kind("Namespace"),
        tool: kind("Tool"),
        texts: kind("Texts"),
        numbers: kind("Numbers"),
        decimals: kind("Decimals"),
        flags: kind("Flags"),
        lists: kind("Lists"),
        invoke: uid(&kind("Action"), "invoke"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_named_here_is_in_the_schema_and_reading_it_warns_of_nothing() {
        let (_, warnings) = Schema::from_cedarschema_str(SCHEMA).unwrap();
        assert_eq!(warnings.map(|w| w.to_string()).collect::<Vec<_>>(), Vec::<String>::new());
        let words = vocabulary();
        let known: Vec<_> = words.schema.entity_types().collect();
        for kind in [
            &words.tenant,
            &words.user,
            &words.agent,
            &words.namespace,
            &words.tool,
            &words.texts,
            &words.numbers,
            &words.decimals,
            &words.flags,
            &words.lists,
        ] {
            assert!(known.contains(&kind), "{kind}");
        }
        assert!(words.schema.actions().any(|action| *action == words.invoke));
    }
}
