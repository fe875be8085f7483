-- What became of breakers, each transition once (RES-011).

CREATE TABLE breaker_history (
    tenant_id     TEXT NOT NULL CHECK (tenant_id <> ''),
    breaker       TEXT NOT NULL CHECK (breaker <> ''), -- as it is written, so with its tenant, if that is not the home one
    at            INTEGER NOT NULL CHECK (at >= 0),
    epoch         INTEGER NOT NULL CHECK (epoch >= 0),
    from_state    TEXT NOT NULL,
    to_state      TEXT NOT NULL,
    reason        TEXT NOT NULL CHECK (json_valid(reason)),
    PRIMARY KEY (breaker, at, epoch)
) STRICT, WITHOUT ROWID;

CREATE INDEX breaker_history_by_time ON breaker_history (at, epoch, breaker);
