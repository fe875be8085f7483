-- Which attempt at an invocation may save, and until when it counts as running (CKPT-C).
--
-- A row outlives its attempt, so that one which comes back late is known to be late.

CREATE TABLE checkpoint_attempts (
    tenant_id     text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    invocation_id text COLLATE "C" NOT NULL,
    fence         bigint NOT NULL CHECK (fence >= 0),
    held_until    bigint NOT NULL, -- Milliseconds since 1970, UTC, by the server's clock.
    PRIMARY KEY (tenant_id, invocation_id)
);

CREATE INDEX checkpoint_attempts_by_end ON checkpoint_attempts (held_until);

ALTER TABLE checkpoint_attempts ENABLE ROW LEVEL SECURITY;
ALTER TABLE checkpoint_attempts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON checkpoint_attempts
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
