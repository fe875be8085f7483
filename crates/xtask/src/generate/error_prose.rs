//! What the error table is too short to say: why each code of this release happens, and what helps.
//!
//! Written for somebody who meets the code for the first time, in the words of the documentation: nothing here may name
//! an internal type. Codes that this release does not answer with have no entry; a test keeps both directions true.

use contract::error::ErrorCode;

/// The cause in plain words, and the steps in the order in which to try them.
pub(super) fn prose(code: ErrorCode) -> Option<(&'static str, &'static [&'static str])> {
    PROSE.iter().find(|(known, _, _)| *known == code).map(|(_, cause, steps)| (*cause, *steps))
}

type Entry = (ErrorCode, &'static str, &'static [&'static str]);

#[rustfmt::skip]
static PROSE: &[Entry] = &[
    (ErrorCode::E3000, "Something failed inside Gantry that should not have. The message is general on purpose; the details are in the server's log under the `trace_id` of the answer.", &[
        "Look up the `trace_id` in the server's log.",
        "Run `gantry doctor` to check the data directory and the store.",
        "If it can be reproduced, report it with the log lines of that trace.",
    ]),
    (ErrorCode::E3001, "The server cannot take the call at the moment: too many calls are running at once and too many wait, or none ended within the time of this one; it is starting or shutting down, or what it needs to decide (the store, the state that servers share) does not answer. A breaker cannot be changed by hand while the shared state is away: the change would hold for one server only.", &[
        "Wait for `retry_after_ms` (the `Retry-After` header) and send the call again.",
        "If it happens often, lower the concurrency of the callers or raise the server's limit of concurrent calls.",
    ]),
    (ErrorCode::E3002, "No time was left for the call: the token was about to expire, or the caller's own deadline had passed, before the tool could start.", &[
        "Give the call more time (`resource_limits.timeout_seconds`), within what the tool's manifest allows.",
        "Use a token that lives longer than the call takes.",
    ]),
    (ErrorCode::E3003, "Either too many authentications from this address have failed within a minute: tokens that were used with success before still work, others have to wait. Or the agent has as many calls running that run code of tools on this server (processes, WASM, containers) as it may have at once, or its tenant holds its share of all places, and none became free within the time of the call: `details.concurrent_calls_per_agent` says how many one agent has, names it made by token exchange included, and nothing was run. A call in the background waits for longer. Or a limit on calls is reached: `details.limit` says whether it is that of the tool for its user (`rate_limit` of the manifest), of the tenant, or of the whole installation.", &[
        "Wait for `retry_after_ms` (the `Retry-After` header) if there is one, and check the token before trying again: `gantry token inspect`.",
        "If an honest client shares the address with a broken one, mend the broken one or raise `[identity] auth_failures_per_minute`.",
        "If calls are running, call again when one of them has ended, or let the operator raise `[limits] concurrent_calls_per_agent`.",
    ]),
    (ErrorCode::E3004, "The request could not be understood: it is not valid JSON, has an unknown or misspelt member, names a member twice, or a query parameter has a wrong value. The message says where.", &[
        "Correct what the message names; for JSON it gives line and column.",
        "Compare with the request's schema in `/openapi.json`. Unknown members are refused, not ignored.",
    ]),
    (ErrorCode::E3005, "The body of the request is larger than the server accepts. Nothing of it was processed.", &[
        "Send less: pass a reference instead of the content, or split the call.",
        "The operator can raise the limit of the server; see `docs/configuration.md`.",
    ]),
    (ErrorCode::E3006, "The request has a body whose content type is not JSON.", &[
        "Send the header `Content-Type: application/json`.",
        "Send UTF-8; other character sets are not accepted.",
    ]),
    (ErrorCode::E3007, "The path exists, but not with this HTTP method.", &[
        "Use one of the methods in the answer's `Allow` header.",
        "See `/openapi.json` or `/docs` for all operations.",
    ]),
    (ErrorCode::E3008, "There is nothing at this path. This is about the address, not about a tool: an unknown tool is E3101.", &[
        "Check the path for typing errors and a missing `/v1`.",
        "See `/openapi.json` or `/docs` for all operations.",
    ]),
    (ErrorCode::E3009, "The request began but did not arrive completely within the time the server waits for it.", &[
        "Send headers and body without long pauses.",
        "Check the network or proxy between caller and server.",
    ]),
    (ErrorCode::E3010, "The request asks for something the wire contract knows but this server does not have, for example an asynchronous call or a dry run. The call was not run: an option that cannot be honoured is refused, never ignored.", &[
        "Leave out the option named in the message.",
        "Use a server or release that has it.",
    ]),
    (ErrorCode::E3101, "No tool of this name is registered, or the token does not allow the caller to know of it: the two look the same on purpose.", &[
        "Check the spelling; the answer suggests the nearest known name. A tool in a namespace is written `namespace.tool_id`.",
        "List what this token may see: `gantry tool list` or `GET /v1/tools`.",
        "If the tool should be there, register it (`gantry tool add`), or ask for a token that names it.",
    ]),
    (ErrorCode::E3102, "The tool exists, but the exact version that was asked for was never registered.", &[
        "Use one of the versions in `details.available_versions`.",
        "Ask for a range such as `^1.0.0`, or leave `tool_version` out for the latest.",
    ]),
    (ErrorCode::E3103, "Either a range was asked for that no registered version satisfies, or a manifest was registered under a version that already exists with other content. A published version never changes.", &[
        "When calling: widen the range, or pin one of `details.available_versions`.",
        "When registering: raise the version in the manifest. `gantry tool diff` says whether the change is a patch, minor or major one.",
    ]),
    (ErrorCode::E3104, "The version was published once and has been removed at the end of its life.", &[
        "Use the replacement named in the answer, if there is one, and read its migration guide.",
        "See which versions are left: `gantry tool show TOOL`.",
    ]),
    (ErrorCode::E3105, "The manifest is not admissible. The answer lists every reason at once, each with the place in the manifest.", &[
        "Correct each entry of the list; `gantry tool add FILE` checks a manifest before it sends it.",
        "Compare with the manifest's schema, `schemas/tool-manifest.schema.json`, which most editors can use while typing.",
    ]),
    (ErrorCode::E3107, "A person has taken the tool out of use, in every version and on every server of this installation.", &[
        "Ask whoever keeps the tool why; the record of the act has the reason: `gantry audit tail`.",
        "`gantry tool release TOOL --reason …` puts it back into use.",
        "Use another tool meanwhile.",
    ]),
    (ErrorCode::E3108, "The tool is registered but cannot run at the moment: it is switched off, has no execution, or this server lacks what it runs on.", &[
        "Read the message: it names what is missing.",
        "For a tool from a folder, add the folder: `gantry tool add DIR`, or start the server with `--tools` and that folder.",
        "Use another version or tool meanwhile.",
    ]),
    (ErrorCode::E3201, "The token was genuine, but its time is over, or it was revoked, or one of those it was delegated from has ended or was revoked. The message says which.", &[
        "Get a new token (`gantry token mint`, or from whoever issued this one) and send the call again.",
        "`gantry token inspect` shows when a token ends.",
    ]),
    (ErrorCode::E3202, "The token's signature does not fit: it was changed on the way, or it was signed by another server's key.", &[
        "Check that the token was copied completely.",
        "Check that it was issued by this server: a new data directory has new keys, and tokens of the old one are void.",
        "The keys this server accepts are at `/.well-known/jwks.json`.",
    ]),
    (ErrorCode::E3203, "No token came with the request, or what came is not a token this server understands (wrong form, wrong issuer or audience, or not valid yet).", &[
        "Send the header `Authorization: Bearer <token>`.",
        "On your own machine the administrator's token is in the data directory (`admin.token`); `gantry token mint` makes narrower ones.",
        "`gantry token inspect` explains a token.",
    ]),
    (ErrorCode::E3204, "The token is genuine but does not name this tool, or not this version of it.", &[
        "Ask for a token whose `tools` include the tool and version, for example `gantry token mint --tool demo.word_stats`.",
        "Use a version inside the token's `version_range`.",
    ]),
    (ErrorCode::E3205, "Nobody could decide whether the call is allowed: the external policy engine did not answer in time or not sensibly, or the policies in force cannot be used. What cannot be decided is refused.", &[
        "Try again after `retry_after_ms`.",
        "As an operator: look at the policy engine of `[policy] engine_url` and at the server's log; `gantry policy show` says whether the policies are usable.",
    ]),
    (ErrorCode::E3206, "The token is genuine but too narrow: a scope the tool needs is missing, an argument is beyond the token's limits, a policy forbids the call, the act needs another role, the request says something about its sender that the token contradicts, or it came by a name (`Host`) or from a page (`Origin`) that is not known here. The message says which.", &[
        "Ask for a token with the scope in `details.missing_scope`.",
        "If `details.policies` names policies, they decided: `gantry policy explain TOOL …` shows what would be allowed.",
        "For administrative acts use a token whose role allows them.",
        "Leave out members of `agent_context` that the token states itself.",
        "Call a server on a loopback address as `127.0.0.1` or `localhost`, or have its name added to `[server] allowed_hosts`.",
    ]),
    (ErrorCode::E3207, "The token's subject, or the agent or tenant that was asked for, is not known here. A DID is known when an administrator has introduced it (minting a token for it does), when it certifies itself (`did:key`), or when its document can be found (`did:web`, if the host is allowed).", &[
        "Ask an administrator to introduce the agent: `gantry agent add`.",
        "Use a `did:key`, or have the host of a `did:web` added to `[identity] did_web_hosts`.",
    ]),
    (ErrorCode::E3208, "What the tool does cannot be undone, or its manifest, a policy, an activation or the call itself asks for a person's approval first. Nothing was run.", &[
        "Have the call approved where approvals are available. This release has none, so such tools cannot be run yet.",
    ]),
    (ErrorCode::E3210, "The tool's manifest, a policy or an activation wants the user to confirm each call. Nothing was run.", &[
        "Confirm where confirmation is available. This release cannot ask for it, so such tools cannot be run yet.",
    ]),
    (ErrorCode::E3211, "The token allows a certain number of calls, together with everything delegated from it, and they are used up. Nothing was run.", &[
        "Ask for a new token, with a larger budget if there is a need for one.",
    ]),
    (ErrorCode::E3301, "The parameters do not fit the tool. The answer lists what is wrong, each with its place; the tool was not run.", &[
        "Correct each entry of the list. Undeclared parameters are refused: check the spelling.",
        "See the parameter schema and examples of the tool: `gantry tool show TOOL`.",
    ]),
    (ErrorCode::E3302, "A parameter is a string where a number or boolean is wanted, and the string does not stand for exactly one such value (`\"12\"` does, `\"twelve\"` does not).", &[
        "Send the value in its own JSON type: `12`, not `\"12\"`.",
    ]),
    (ErrorCode::E3303, "The tool ran, but its result does not fit its own result schema, so it was not returned. The call was fine; the tool is at fault.", &[
        "Tell the author of the tool; `details.paths` names the places.",
        "Authors: correct the tool or its `result_schema`, and publish a new version.",
    ]),
    (ErrorCode::E3304, "What would have been written about the call could not be redacted, so nothing was written. If it was about the parameters, the tool was not run.", &[
        "Send a value with fewer levels.",
        "Operators: the server's log says why, under `REDACTION_FAILED`.",
    ]),
    (ErrorCode::E3305, "A parameter whose field is guarded (`x-guard`) holds text that would be dangerous there, for example shell characters in a file name. It was refused, not rewritten.", &[
        "Send the value without the dangerous part.",
        "If the value is legitimate, ask the author of the tool to change the field's guard.",
    ]),
    (ErrorCode::E3401, "The tool started and reported failure itself.", &[
        "Read the message; for process tools the tool's own log lines are in the server's log under the `trace_id`.",
        "Try the tool by itself, outside Gantry, with the same parameters.",
    ]),
    (ErrorCode::E3402, "The tool did not finish within the time it was given and was stopped. What it had done by then is not known.", &[
        "Give it more time (`resource_limits.timeout_seconds`), up to what its manifest allows.",
        "Ask for less work in one call.",
    ]),
    (ErrorCode::E3403, "The tool used more memory than it was given, and the system ended it. It is told apart from a crash by the system's own count.", &[
        "Ask for less work at once: a smaller file, fewer rows.",
        "If the tool honestly needs more, raise `resource_limits.memory` in its manifest, within the envelope of the server.",
        "If the request itself has a `resource_limits.memory_mb_limit`, raise that.",
    ]),
    (ErrorCode::E3404, "The tool's process ended abnormally (killed by a signal) instead of answering.", &[
        "Look up the `trace_id` in the server's log for the tool's last words.",
        "Try the tool by itself, outside Gantry, with the same parameters.",
    ]),
    (ErrorCode::E3405, "The isolation that the tool demands cannot be had on this server, so it was not started. Isolation is never lowered silently.", &[
        "Read the message: it names what is missing.",
        "`gantry doctor` says, mechanism by mechanism, what this machine offers and what to change.",
        "If a machine cannot make namespaces at all and you trust the tool, the operator can permit processes without a sandbox explicitly (`--unsandboxed-processes`).",
    ]),
    (ErrorCode::E3406, "The tool tried to connect to a host, port or address that its manifest does not declare, or that is never reachable from a tool (loopback, private and link-local addresses, the cloud's metadata service). The connection was not made, and the attempt is in the audit log with the destinations tried.", &[
        "If the destination belongs to the tool, declare it: `network:https://host:port` in `required_permissions`, or `network_policy`. The token then needs the same scope.",
        "A program of an MCP server declares nothing: `gantry server grant NAME --allow-host HOST` lets it connect there.",
        "Check that `network_policy.deny_all_egress` is not set.",
        "If nobody can explain the attempt, treat the tool as hostile.",
    ]),
    (ErrorCode::E3407, "The tool used more than the limit allows; or its manifest or the request asks for more CPU, memory, network or scratch space than this server gives to any call. The message has both numbers.", &[
        "Ask for less work in one call.",
        "Authors: lower `resource_limits` in the manifest; operators: raise the limit that the message names.",
    ]),
    (ErrorCode::E3408, "Something that must be true before this call is not, for example a setting the tool needs is not made. The message names it.", &[
        "Bring about the condition in the message; `gantry doctor` shows the settings in effect.",
    ]),
    (ErrorCode::E3409, "A call with the same idempotency key is running, or two callers changed the same thing at once. Nothing was run for this one.", &[
        "Wait until the other call has ended, then send this one again with the same key: it is answered with what the first came to.",
        "Leave `wait_for_duplicate` out to wait for the first call instead of being refused.",
    ]),
    (ErrorCode::E3410, "The idempotency key was used before for a call with other parameters or with another callback, or the invocation id is taken by another call of the tenant. Nothing was run: a key or an id that meant two things would protect neither.", &[
        "Use a new key for a new call.",
        "Send the same parameters if the same call is meant; its result is returned again.",
        "Leave `invocation_id` out, or use a new UUID. Whose call has it is not told.",
        "Leave `execution_options.callback` out of a repeated call, or send the one of the first.",
    ]),
    (ErrorCode::E3411, "The call failed in a way that is tried again, but calls to this service are being tried again too often already: the budget of retries that all callers share is used up. `details.last_error` has what the service said last, `details.attempts` how often this call was tried.", &[
        "Wait before trying again: the service is failing for everybody.",
        "Look at its health and at `gantry breakers list`.",
        "If the service is well and the budget is too small for the traffic, let the operator raise `[resilience] retries_per_minute`.",
    ]),
    (ErrorCode::E3413, "The call was interrupted while it may have been having its effect, and nobody can know whether it did. It is not repeated blindly.", &[
        "Find out whether the effect happened, for example in the system the tool writes to.",
        "Say what was found: `gantry jobs resolve ID --happened` or `--did-not-happen`.",
        "Only then decide whether to call the tool again.",
    ]),
    (ErrorCode::E3414, "The tool has run, and its result is larger than a result of this tool may be, or than a policy allows this caller (`result_bytes`). The message has the number. Nothing of the result is kept.", &[
        "Ask for less, for example a page, a shorter range or a smaller picture.",
        "Authors: return a summary or a reference, or say `result_bytes_max` in the manifest.",
        "Operators: `gantry server edit NAME --result-bytes BYTES` for the tools of an MCP server; `[limits] result_bytes_max` and `result_bytes_ceiling` for all.",
    ]),
    (ErrorCode::E3501, "The service behind the tool has failed so often that it is left alone for a while, or somebody has stopped calls to it by hand: its circuit breaker is open, and nothing was run. `details.breaker` names it, `details.state` says whether it is open, forced open by somebody, or being tried with a few calls.", &[
        "Wait for `retry_after_ms` (the `Retry-After` header) and send the call again, or use another tool.",
        "See how it stands and why it opened: `gantry breakers list`.",
        "Once the service is well, an operator can let calls through at once: `gantry breakers close NAME`.",
    ]),
    (ErrorCode::E3502, "A service the tool depends on could not be reached, or answered with a failure of its own.", &[
        "Wait and send the call again, if the answer says it is retryable.",
        "Check the address and the health of the service named in the message.",
    ]),
    (ErrorCode::E3503, "A service the tool depends on did not answer in time.", &[
        "Give the call more time (`resource_limits.timeout_seconds`).",
        "Check the health of the service named in the message.",
    ]),
    (ErrorCode::E3504, "A service the tool depends on refuses more requests for now, or was asked as often as this installation lets it be asked; then `details.limit` is `service`, and nothing was run.", &[
        "Wait for `retry_after_ms` and send the call again.",
        "Call the tool less often, or raise the quota at the service.",
    ]),
    (ErrorCode::E3601, "The tool needs a credential, and the place where credentials are kept did not answer. The tool was not started.", &[
        "Send the call again after a pause.",
        "The operator finds the cause in the server's log under the `trace_id` of the answer.",
    ]),
    (ErrorCode::E3602, "The tool declares a credential (`credentials:name`) that nobody has provisioned for this tenant. The tool was not started.", &[
        "Let the operator provision the credential named in the message.",
        "Check the name in `required_permissions` of the manifest for typing errors.",
    ]),
    (ErrorCode::E3603, "The MCP server behind the tool answered 401 or 403: the credentials that Gantry was given for it are wrong, have expired, or do not cover this.", &[
        "Let the operator renew the credentials of that server, see `gantry server list`.",
        "The tool was not run; nothing has to be undone.",
    ]),
    (ErrorCode::E3701, "As many jobs wait as may, for this tenant or in all. Nothing was kept.", &[
        "Wait for `retry_after_ms` and submit the call again.",
        "Submit fewer, or let the operator raise `[jobs] queue_per_agent`, `queue_per_tenant`, `queue_total` or `concurrency`.",
    ]),
    (ErrorCode::E3702, "There is no job with this id for this caller. Jobs of other tenants and agents are answered in the same way, and ended jobs are forgotten after their retention.", &[
        "Check the id, and that the token is of the agent that submitted the call.",
        "Only calls that were submitted with `async_mode`, or went on in the background, are kept.",
    ]),
    (ErrorCode::E3703, "Somebody cancelled the call, or its caller went away. A tool that was running was told and then ended.", &[
        "Call it again if the result is still wanted.",
        "A tool with effects may have had some of them before it ended.",
    ]),
    (ErrorCode::E3704, "A webhook could not be delivered: the receiver did not answer with 2xx in all the attempts it was given, or its address may not be called. No call is answered with it; it is in the delivery, in its job and in the audit log.", &[
        "Look at the attempts: `gantry webhook deliveries ID` has the status and one word about each.",
        "Mend the receiver, try it with `gantry webhook test ID`, then send what was given up again: `gantry webhook resend ID`.",
    ]),
    (ErrorCode::E3801, "The audit log cannot be written, so the call was not run: what cannot be recorded does not happen. (The name of the code comes from installations that stream their audit log.)", &[
        "Operators: check free space and permissions of the `audit` folder in the data directory; `gantry doctor` does.",
        "Callers: wait and send the call again.",
    ]),
    (ErrorCode::E3803, "Audit records come faster than they can be written, and the queue for them is full. The call was not run.", &[
        "Wait for `retry_after_ms` and send the call again.",
        "Operators: put the data directory on a faster disk, or lower the rate of calls.",
    ]),
    (ErrorCode::E3902, "A checkpoint could not be kept: the store did not take it, or the call has lost its place to another attempt.", &[
        "Let the tool go on and save again later; nothing of the call is lost by it.",
        "If it happens often, let the operator look at the store: `gantry doctor`.",
    ]),
    (ErrorCode::E3903, "There is no such checkpoint among those of the caller. One that has passed its time, or belongs to somebody else, is answered in the same way.", &[
        "Check the id: `GET /v1/checkpoints` lists those there are.",
        "Start the call from the beginning if its checkpoints are gone.",
    ]),
    (ErrorCode::E3904, "The checkpoint does not have the digest it was saved with, and no intact one stands before it.", &[
        "Resume from an earlier checkpoint of the call, or start from the beginning.",
        "Let the operator look at the store: what was written is not what is read.",
    ]),
    (ErrorCode::E3905, "The call cannot go on from this checkpoint: it was saved by another tool or in a form that this version does not read.", &[
        "Call the tool in the version that saved the checkpoint.",
        "Start the call from the beginning.",
    ]),
    (ErrorCode::E3906, "What the tool wanted to save is not JSON, or more than a checkpoint may hold.", &[
        "Let the tool save less, for example a position instead of what was read so far.",
        "Send numbers of more than 64 bits as strings.",
    ]),
    (ErrorCode::E3908, "The state has changed since it was read: the call goes on elsewhere, has ended, or somebody else has resolved it.", &[
        "Read the current state, for example `GET /v1/invocations/{id}`, then decide anew.",
    ]),
];
