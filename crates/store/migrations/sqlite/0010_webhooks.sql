-- Webhooks: who is called back, what was sent, what came of it; and what has been seen at the door of jobs
-- (ASYNC-007, ASYNC-010, FLOW-005, IDEM-017).
--
-- No secret is in here: a subscription names a credential or the generation of a derived secret. Times are milliseconds
-- since 1970, because they are compared. Bodies go when they were delivered.

CREATE TABLE webhooks (
    tenant_id     TEXT NOT NULL CHECK (tenant_id <> ''),
    id            TEXT NOT NULL CHECK (id <> ''),
    url           TEXT NOT NULL CHECK (url <> ''),
    events        TEXT NOT NULL CHECK (json_valid(events) AND json_type(events) = 'array'), -- Empty: everything.
    generation    INTEGER CHECK (generation > 0), -- Of the derived secret.
    secret_name   TEXT,
    former_generation INTEGER CHECK (former_generation > 0),
    former_name   TEXT,
    former_until  INTEGER,
    added_at      INTEGER NOT NULL,
    added_by      TEXT NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CHECK ((generation IS NULL) <> (secret_name IS NULL)),
    CHECK (former_until IS NOT NULL OR (former_generation IS NULL AND former_name IS NULL)),
    CHECK (former_until IS NULL OR (former_generation IS NULL) <> (former_name IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE webhook_deliveries (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT, -- The mark of pages; never used twice.
    tenant_id     TEXT NOT NULL CHECK (tenant_id <> ''),
    id            TEXT NOT NULL,
    webhook_id    TEXT, -- Either a subscription …
    callback_url  TEXT, -- … or the address a call has named, and the credential that signs.
    callback_secret TEXT,
    event         TEXT NOT NULL,
    invocation_id TEXT,
    body          TEXT, -- NULL once it was delivered.
    state         TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'dead')),
    round         INTEGER NOT NULL CHECK (round > 0),
    attempts      INTEGER NOT NULL CHECK (attempts >= 0),
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    UNIQUE (tenant_id, id),
    CHECK ((webhook_id IS NULL) <> (callback_url IS NULL)),
    CHECK ((callback_url IS NULL) = (callback_secret IS NULL)),
    CHECK ((state = 'pending') = (ended_at IS NULL)),
    CHECK (state = 'delivered' OR body IS NOT NULL)
) STRICT;

CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (tenant_id, webhook_id, seq);
CREATE INDEX webhook_deliveries_by_end ON webhook_deliveries (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE webhook_attempts (
    delivery      INTEGER NOT NULL REFERENCES webhook_deliveries (seq) ON DELETE CASCADE,
    round         INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    status        INTEGER,
    took_ms       INTEGER NOT NULL,
    error         TEXT, -- A word of ours; NULL if it was delivered.
    PRIMARY KEY (delivery, round, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE claims (
    key           TEXT PRIMARY KEY CHECK (key <> ''),
    holder        TEXT NOT NULL,
    until         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX claims_by_end ON claims (until);

CREATE TABLE workflow_runs (
    tenant_id     TEXT NOT NULL CHECK (tenant_id <> ''),
    id            TEXT NOT NULL,
    workflow      TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    input         TEXT NOT NULL CHECK (json_valid(input)),
    state         TEXT NOT NULL CHECK (state IN ('pending', 'success', 'failure')),
    output        TEXT CHECK (json_valid(output)),
    error         TEXT CHECK (json_valid(error)),
    created_at    INTEGER NOT NULL,
    completed_at  INTEGER,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, workflow, idempotency_key),
    CHECK ((state = 'pending') = (completed_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX workflow_runs_by_end ON workflow_runs (completed_at) WHERE completed_at IS NOT NULL;
