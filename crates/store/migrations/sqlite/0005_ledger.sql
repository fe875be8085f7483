-- Calls with effects: reserved, journalled, settled (DESIGN §5, IDEM-001…016, STORE-004, STORE-005).
--
-- Times are RFC 3339 text of one width, so that they compare as text.

-- Processes that run calls. One lease for everything a process runs.
CREATE TABLE ledger_owners (
    owner_id    TEXT NOT NULL PRIMARY KEY,
    lease_until TEXT NOT NULL CHECK (lease_until LIKE '%Z')
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger (
    invocation_id      TEXT NOT NULL PRIMARY KEY,
    trace_id           TEXT NOT NULL,
    tenant_id          TEXT NOT NULL CHECK (tenant_id <> ''),
    subject            TEXT NOT NULL,
    tool_id            TEXT NOT NULL,
    tool_version       TEXT NOT NULL,
    side_effect_policy TEXT NOT NULL,
    scope              TEXT,
    key                TEXT,
    holds_key          INTEGER NOT NULL CHECK (holds_key IN (0, 1)), -- 0: another call has the key by now.
    parameters_digest  TEXT NOT NULL,
    window_seconds     INTEGER NOT NULL,
    owner_id           TEXT NOT NULL,
    fence              INTEGER NOT NULL,
    state              TEXT NOT NULL CHECK (state IN ('in_flight', 'done', 'failed_clean', 'unknown')),
    begun_at           TEXT NOT NULL CHECK (begun_at LIKE '%Z'),
    settled_at         TEXT CHECK (settled_at LIKE '%Z'),
    keep_until         TEXT CHECK (keep_until LIKE '%Z'),
    outcome            TEXT CHECK (json_valid(outcome)),
    CHECK ((key IS NULL) = (scope IS NULL)),
    CHECK (holds_key = 0 OR key IS NOT NULL),
    CHECK ((state = 'in_flight') = (settled_at IS NULL))
) STRICT;

-- LEDGER-1: the database itself lets no two calls have one key.
CREATE UNIQUE INDEX ledger_by_key ON ledger (tenant_id, tool_id, scope, key) WHERE holds_key = 1;
CREATE INDEX ledger_by_tenant ON ledger (tenant_id, invocation_id);
CREATE INDEX ledger_in_flight ON ledger (owner_id, begun_at) WHERE state = 'in_flight';
CREATE INDEX ledger_unknown ON ledger (invocation_id) WHERE state = 'unknown';
CREATE INDEX ledger_to_forget ON ledger (keep_until) WHERE state IN ('done', 'failed_clean');
