-- What running tools have saved of their state (CKPT-001…015).
--
-- A row is written once; only its rank and its time change. Until when it is kept is compared with the server's clock, so
-- it is a number: milliseconds since 1970, UTC. That no two rows of an invocation have one rank is what makes instances that
-- save at once do it one after the other; that a base cannot go while something stands on it is the foreign key's work.

CREATE TABLE checkpoints (
    checkpoint_id   text COLLATE "C" PRIMARY KEY,
    tenant_id       text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    invocation_id   text COLLATE "C" NOT NULL,
    owner           text NOT NULL CHECK (owner <> ''), -- Who made the call.
    tool_id         text NOT NULL,
    tool_version    text NOT NULL,
    checkpoint_type text NOT NULL CHECK (checkpoint_type IN ('micro', 'macro', 'named')),
    label           text,
    parent_id       text,
    saved_at        bigint NOT NULL,
    base_id         text COLLATE "C" REFERENCES checkpoints (checkpoint_id), -- What the payload is a delta against.
    chain           bigint NOT NULL CHECK (chain BETWEEN 0 AND 255 AND (chain = 0) = (base_id IS NULL)),
    schema_version  text NOT NULL,
    is_gzip         boolean NOT NULL,
    content_bytes   bigint NOT NULL CHECK (content_bytes >= 0),
    stored_bytes    bigint NOT NULL CHECK (stored_bytes >= 0),
    checksum        bytea NOT NULL,
    seal            bytea NOT NULL,
    fence           bigint NOT NULL,
    rank            bigint NOT NULL, -- The highest of an invocation is its newest.
    expires_at      bigint, -- NULL: kept until it is deleted.
    payload         bytea NOT NULL
);

-- Compressed already.
ALTER TABLE checkpoints ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE UNIQUE INDEX checkpoints_by_invocation ON checkpoints (tenant_id, invocation_id, rank);
CREATE INDEX checkpoints_by_base ON checkpoints (base_id) WHERE base_id IS NOT NULL;
CREATE INDEX checkpoints_by_end ON checkpoints (expires_at) WHERE expires_at IS NOT NULL;

ALTER TABLE checkpoints ENABLE ROW LEVEL SECURITY;
ALTER TABLE checkpoints FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON checkpoints
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
