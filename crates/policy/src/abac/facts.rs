//! A [`PolicyQuestion`] in the engine's terms: the request, and the entities it speaks of.
//!
//! The entities are made for one decision and dropped after it. They are not checked against the schema a second time:
//! misfit arguments (see `arguments`) break it on purpose.

use base::SaturatingFrom as _;
use cedar_policy::{Context, Entities, Entity, EntityTypeName, EntityUid, Request, RestrictedExpression};
use contract::manifest::SideEffectPolicy;

use super::arguments::{Arguments, ArgumentsError};
use super::calendar::Moment;
use super::reads::{Reads, View};
use super::vocabulary::{Vocabulary, uid};
use super::{PolicyQuestion, PolicyUpstream, Risk, ToolFacts};
use crate::role::Role;

/// Why a question cannot be put. The call is denied.
#[derive(Debug, thiserror::Error)]
pub(super) enum FactsError {
    #[error(transparent)]
    Arguments(#[from] ArgumentsError),
    /// Cedar refused a value, for example a time beyond the year 9999.
    #[error("the question cannot be put to the policies")]
    Unfit(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What the engine is asked, and which slices of the policies may answer.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) request: Request,
    pub(super) entities: Entities,
    /// Everything a scope may name that is or contains the principal or the resource.
    pub(super) named: Vec<EntityUid>,
}

impl Facts {
    /// Builds what policies that read `reads` may look at.
    pub(super) fn of(question: &PolicyQuestion<'_>, reads: &Reads, words: &Vocabulary) -> Result<Self, FactsError> {
        let Named { tenant, agent, tool, namespace } = Named::of(question, words);
        let user = question.user.map(|user| uid(&words.user, user.as_str()));

        let mut entities = vec![
            entity(agent.clone(), agent_attributes(question, user.as_ref()), Some(&tenant))?,
            entity(tool.clone(), tool_attributes(&question.tool)?, namespace.as_ref())?,
        ];
        if let Some(user) = user {
            entities.push(entity(user, Vec::new(), Some(&tenant))?);
        }
        let mut context = vec![
            pair("environment", text(question.environment)),
            pair("risk", text(Risk::of(question.tool.effects).as_str())),
        ];
        if let Some(session) = question.session.filter(|_| reads.session) {
            context.push(pair("session", text(session)));
        }
        if reads.time {
            context.extend(time_attributes(question.now_ms));
        }
        if reads.arguments() {
            let arguments = Arguments::of(question.arguments, reads)?;
            context.push(pair("arguments", arguments_attribute(arguments, words, &mut entities)?));
        }
        let context = Context::from_pairs(context).map_err(unfit)?;
        let request = Request::new(agent.clone(), words.invoke.clone(), tool.clone(), context, None).map_err(unfit)?;
        Ok(Self {
            request,
            entities: Entities::from_entities(entities, None).map_err(unfit)?,
            named: Named { tenant, agent, tool, namespace }.all(),
        })
    }
}

/// What a scope may name.
pub(super) struct Named {
    tenant: EntityUid,
    agent: EntityUid,
    tool: EntityUid,
    namespace: Option<EntityUid>,
}

impl Named {
    pub(super) fn of(question: &PolicyQuestion<'_>, words: &Vocabulary) -> Self {
        Self {
            tenant: uid(&words.tenant, question.tenant.as_str()),
            agent: uid(&words.agent, question.agent.as_str()),
            tool: uid(&words.tool, question.tool.id.as_str()),
            namespace: question.tool.id.namespace().map(|name| uid(&words.namespace, name)),
        }
    }

    /// Each of them.
    pub(super) fn all(self) -> Vec<EntityUid> {
        [Some(self.tool), Some(self.agent), self.namespace, Some(self.tenant)].into_iter().flatten().collect()
    }
}

type Pair = (String, RestrictedExpression);

fn agent_attributes(question: &PolicyQuestion<'_>, user: Option<&EntityUid>) -> Vec<Pair> {
    let mut attributes = vec![
        pair("roles", texts(question.roles.iter().copied().map(role_name))),
        pair("scopes", texts(question.scopes.iter().map(crate::scope::PermissionScope::as_str))),
    ];
    if let Some(user) = user {
        attributes.push(pair("user", RestrictedExpression::new_entity_uid(user.clone())));
    }
    attributes
}

fn tool_attributes(tool: &ToolFacts<'_>) -> Result<Vec<Pair>, FactsError> {
    let mut attributes = vec![
        pair("name", text(tool.id.local())),
        pair("version", text(&tool.version.to_string())),
        // Beyond 64 bits it is a very new version all the same.
        pair("major", RestrictedExpression::new_long(i64::saturating_from(tool.version.major()))),
        pair("tags", texts(tool.tags.iter().map(String::as_str))),
        pair("categories", texts(tool.categories.iter().map(String::as_str))),
        pair("side_effects", text(effects_name(tool.effects))),
        pair("required_permissions", texts(tool.required_permissions.iter().map(String::as_str))),
        pair("provider", text(tool.provider)),
        pair("permissions", texts(tool.reach.permissions.iter().map(String::as_str))),
        pair("hosts", texts(tool.reach.hosts.iter().map(String::as_str))),
        pair("output_schema", text(tool.output_schema.as_str())),
    ];
    if let Some(namespace) = tool.id.namespace() {
        attributes.push(pair("namespace", text(namespace)));
    }
    if let Some(upstream) = tool.reach.upstream {
        attributes.push(pair("upstream", upstream_attribute(upstream)?));
    }
    Ok(attributes)
}

fn upstream_attribute(upstream: PolicyUpstream<'_>) -> Result<RestrictedExpression, FactsError> {
    let PolicyUpstream { server, transport, command, addresses } = upstream;
    let mut members = vec![
        pair("server", text(server)),
        pair("transport", text(transport)),
        pair("addresses", texts(addresses.iter().map(String::as_str))),
    ];
    if let Some(command) = command {
        members.push(pair("command", text(command)));
    }
    RestrictedExpression::new_record(members).map_err(unfit)
}

fn time_attributes(now_ms: i64) -> [Pair; 4] {
    let now = Moment::at(now_ms);
    [
        pair("time", RestrictedExpression::new_datetime(now.to_cedar())),
        pair("hour", RestrictedExpression::new_long(now.hour)),
        pair("minute", RestrictedExpression::new_long(now.minute)),
        pair("weekday", RestrictedExpression::new_long(now.weekday)),
    ]
}

/// The views become entities with tags; the attribute points to them.
fn arguments_attribute(
    mut arguments: Arguments,
    words: &Vocabulary,
    entities: &mut Vec<Entity>,
) -> Result<RestrictedExpression, FactsError> {
    let mut members = vec![pair("names", texts(arguments.names.iter().map(String::as_str)))];
    for view in View::ALL {
        let this = uid(view_type(view, words), "arguments");
        entities.push(Entity::new_with_tags(this.clone(), [], [], arguments.take(view)).map_err(unfit)?);
        members.push(pair(view.as_str(), RestrictedExpression::new_entity_uid(this)));
    }
    RestrictedExpression::new_record(members).map_err(unfit)
}

fn view_type(view: View, words: &Vocabulary) -> &EntityTypeName {
    match view {
        View::Text => &words.texts,
        View::Number => &words.numbers,
        View::Decimal => &words.decimals,
        View::Flag => &words.flags,
        View::List => &words.lists,
    }
}

/// As the tokens write it.
pub(super) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Admin => "admin",
        Role::Operator => "operator",
        Role::Approver => "approver",
        Role::Auditor => "auditor",
        Role::ToolAuthor => "tool_author",
        Role::Agent => "agent",
    }
}

/// As the manifests write it.
fn effects_name(effects: SideEffectPolicy) -> &'static str {
    match effects {
        SideEffectPolicy::Pure => "pure",
        SideEffectPolicy::Idempotent => "idempotent",
        SideEffectPolicy::Compensatable => "compensatable",
        SideEffectPolicy::Irreversible => "irreversible",
        SideEffectPolicy::Unclassified => "unclassified",
    }
}

fn entity(this: EntityUid, attributes: Vec<Pair>, parent: Option<&EntityUid>) -> Result<Entity, FactsError> {
    Entity::new_with_tags(this, attributes, parent.cloned(), []).map_err(unfit)
}

fn pair(name: &str, value: RestrictedExpression) -> Pair {
    (name.to_owned(), value)
}

fn text(value: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(value.to_owned())
}

fn texts<'a>(values: impl Iterator<Item = &'a str>) -> RestrictedExpression {
    RestrictedExpression::new_set(values.map(text))
}

fn unfit(error: impl std::error::Error + Send + Sync + 'static) -> FactsError {
    FactsError::Unfit(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_policies_see_are_those_of_the_wire() {
        for role in [Role::Admin, Role::Operator, Role::Approver, Role::Auditor, Role::ToolAuthor, Role::Agent] {
            assert_eq!(serde_json::to_value(role).unwrap(), role_name(role));
        }
        for effects in [
            SideEffectPolicy::Pure,
            SideEffectPolicy::Idempotent,
            SideEffectPolicy::Compensatable,
            SideEffectPolicy::Irreversible,
            SideEffectPolicy::Unclassified,
        ] {
            assert_eq!(serde_json::to_value(effects).unwrap(), effects_name(effects));
        }
    }
}
