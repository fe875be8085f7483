-- Which attempt at an invocation may save, and until when it counts as running (CKPT-C).
--
-- A row outlives its attempt, so that one which comes back late is known to be late.

CREATE TABLE checkpoint_attempts (
    tenant_id     TEXT NOT NULL CHECK (tenant_id <> ''),
    invocation_id TEXT NOT NULL,
    fence         INTEGER NOT NULL CHECK (fence >= 0),
    held_until    INTEGER NOT NULL, -- Milliseconds since 1970, UTC.
    PRIMARY KEY (tenant_id, invocation_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX checkpoint_attempts_by_end ON checkpoint_attempts (held_until);
