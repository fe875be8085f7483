-- Calls with effects: reserved, journalled, settled (DESIGN §5, IDEM-001…016, STORE-004, STORE-005), and who is alive.
--
-- Times are milliseconds since 1970 by the server's clock. What a caller chose freely (scopes and keys) is kept as bytes,
-- because text here cannot hold every character, and indexed by its digest, because it may be longer than an index holds.

-- Processes of Gantry. Each has one lease for the calls and one for the jobs it runs: a process that was stopped for too long
-- renews the first by itself, but must be told that the second had lapsed.
CREATE TABLE instances (
    owner_id     text COLLATE "C" PRIMARY KEY,
    ledger_until bigint NOT NULL DEFAULT 0,
    jobs_until   bigint NOT NULL DEFAULT 0,
    first_seen   timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

CREATE TABLE ledger (
    invocation_id      text COLLATE "C" PRIMARY KEY,
    trace_id           text NOT NULL,
    tenant_id          text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    subject            text NOT NULL,
    tool_id            text COLLATE "C" NOT NULL,
    tool_version       text NOT NULL,
    side_effect_policy text NOT NULL,
    scope              bytea,
    key                bytea,
    holds_key          boolean NOT NULL, -- false: another call has the key by now.
    parameters_digest  text NOT NULL,
    window_seconds     bigint NOT NULL,
    owner_id           text COLLATE "C" NOT NULL,
    fence              bigint NOT NULL CHECK (fence > 0),
    claim              bigint NOT NULL, -- Which `begin` of its owner wrote it: tells an own write from another's after a lost answer.
    state              text NOT NULL CHECK (state IN ('in_flight', 'done', 'failed_clean', 'unknown')),
    begun_at           bigint NOT NULL,
    settled_at         bigint,
    keep_until         bigint,
    outcome            text CHECK (outcome IS JSON),
    CHECK ((key IS NULL) = (scope IS NULL)),
    CHECK (NOT holds_key OR key IS NOT NULL),
    CHECK ((state = 'in_flight') = (settled_at IS NULL))
);

-- LEDGER-1: the database itself lets no two calls have one key.
CREATE UNIQUE INDEX ledger_by_key ON ledger (tenant_id, tool_id, sha256(scope), sha256(key)) WHERE holds_key;
CREATE INDEX ledger_by_tenant ON ledger (tenant_id, invocation_id);
CREATE INDEX ledger_in_flight ON ledger (owner_id, begun_at) WHERE state = 'in_flight';
CREATE INDEX ledger_unknown ON ledger (invocation_id) WHERE state = 'unknown';
CREATE INDEX ledger_to_forget ON ledger (keep_until) WHERE state IN ('done', 'failed_clean');

ALTER TABLE ledger ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON ledger
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
