-- What running tools have saved of their state (CKPT-001…015).
--
-- A row is written once; only its rank and its time change. Until when it is kept is compared with the store's clock, so it
-- is a number: milliseconds since 1970, UTC.

CREATE TABLE checkpoints (
    checkpoint_id   TEXT NOT NULL PRIMARY KEY,
    tenant_id       TEXT NOT NULL CHECK (tenant_id <> ''),
    invocation_id   TEXT NOT NULL,
    owner           TEXT NOT NULL CHECK (owner <> ''), -- Who made the call.
    tool_id         TEXT NOT NULL,
    tool_version    TEXT NOT NULL,
    checkpoint_type TEXT NOT NULL CHECK (checkpoint_type IN ('micro', 'macro', 'named')),
    label           TEXT,
    parent_id       TEXT,
    saved_at        INTEGER NOT NULL,
    base_id         TEXT, -- What the payload is a delta against.
    chain           INTEGER NOT NULL CHECK (chain BETWEEN 0 AND 255 AND (chain = 0) = (base_id IS NULL)),
    schema_version  TEXT NOT NULL,
    is_gzip         INTEGER NOT NULL CHECK (is_gzip IN (0, 1)),
    content_bytes   INTEGER NOT NULL CHECK (content_bytes >= 0),
    stored_bytes    INTEGER NOT NULL CHECK (stored_bytes >= 0),
    checksum        BLOB NOT NULL,
    seal            BLOB NOT NULL,
    fence           INTEGER NOT NULL,
    rank            INTEGER NOT NULL, -- The highest of an invocation is its newest.
    expires_at      INTEGER, -- NULL: kept until it is deleted.
    payload         BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX checkpoints_by_invocation ON checkpoints (tenant_id, invocation_id, rank);
CREATE INDEX checkpoints_by_base ON checkpoints (base_id) WHERE base_id IS NOT NULL;
CREATE INDEX checkpoints_by_end ON checkpoints (expires_at) WHERE expires_at IS NOT NULL;
