-- What became of breakers, each transition once, whichever instances have heard of it (RES-011).

CREATE TABLE breaker_history (
    tenant_id     text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    breaker       text COLLATE "C" NOT NULL CHECK (breaker <> ''), -- as it is written, so with its tenant, if that is not the home one
    at            bigint NOT NULL CHECK (at >= 0),
    epoch         bigint NOT NULL CHECK (epoch >= 0),
    from_state    text COLLATE "C" NOT NULL,
    to_state      text COLLATE "C" NOT NULL,
    reason        text NOT NULL CHECK (json_typeof(reason::json) IS NOT NULL),
    PRIMARY KEY (breaker, at, epoch)
);

CREATE INDEX breaker_history_by_time ON breaker_history (at, epoch, breaker);

ALTER TABLE breaker_history ENABLE ROW LEVEL SECURITY;
ALTER TABLE breaker_history FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON breaker_history
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
