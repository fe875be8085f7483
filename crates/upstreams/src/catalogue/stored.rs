//! The description of a server as it is stored: with the mark of who has described it, which is nobody's to write.
//!
//! The home tenant's servers are the operator's and have no mark. A description of another tenant without one is the
//! tenant's: so are those that were stored before there were marks, and those that an older release has replaced.

use ports::upstream_store::ServerRecord;
use serde_json::Value;

use crate::spec::{ServerSpec, SetBy};

/// The member of a stored description that no description has.
const MARK: &str = "set_by";
const OPERATOR: &str = "operator";

/// The record as it is stored.
pub(super) fn marked(record: &ServerRecord, set_by: SetBy) -> ServerRecord {
    let mut record = record.clone();
    if set_by == SetBy::Operator
        && !record.tenant.is_home()
        && let Some(members) = record.spec.as_object_mut()
    {
        members.insert(MARK.to_owned(), Value::from(OPERATOR));
    }
    record
}

/// A stored record without its mark, and what it describes; none if this release cannot read it.
pub(super) fn read(mut record: ServerRecord) -> (ServerRecord, Option<ServerSpec>) {
    let mark = record.spec.as_object_mut().and_then(|members| members.remove(MARK));
    let is_operators = record.tenant.is_home() || mark.is_some_and(|mark| mark == OPERATOR);
    let spec: Option<ServerSpec> = serde_json::from_value(record.spec.clone())
        .inspect_err(|error| tracing::error!(server = record.name, %error, "this server cannot be started"))
        .ok();
    let set_by = if is_operators { SetBy::Operator } else { SetBy::Tenant };
    (record, spec.map(|spec| ServerSpec { set_by, ..spec }))
}

#[cfg(test)]
mod tests {
    use ports::clock::UnixMillis;
    use serde_json::json;

    use super::*;

    #[test]
    fn who_has_described_a_server_is_kept_beside_the_description() {
        let spec = json!({ "reach": { "type": "stdio", "command": "x" } });
        for (tenant, set_by, kept) in [
            ("local", SetBy::Operator, SetBy::Operator),
            ("acme", SetBy::Operator, SetBy::Operator),
            ("acme", SetBy::Tenant, SetBy::Tenant),
        ] {
            let record = ServerRecord {
                tenant: tenant.parse().unwrap(),
                name: "files".into(),
                spec: spec.clone(),
                added_at: UnixMillis(0),
                added_by: "somebody".parse().unwrap(),
            };
            let stored = marked(&record, set_by);
            assert_eq!(stored.spec.get(MARK).is_some(), tenant == "acme" && set_by == SetBy::Operator);
            let (again, read) = read(stored);
            assert_eq!((again, read.unwrap().set_by), (record, kept), "{tenant}");
        }
        assert!(serde_json::from_value::<ServerSpec>(json!({ "reach": spec["reach"], MARK: OPERATOR })).is_err());
    }
}
