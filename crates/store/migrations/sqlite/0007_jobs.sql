-- The durable queue (ASYNC-001…009, ASYNC-015).
--
-- Times are milliseconds since the epoch, because leases and dues are computed with. Bodies stand apart, so that a job that
-- moves from state to state does not drag its payload along. Everything the next job is chosen by is in small indexes of
-- what waits: choosing costs the same however much has been done and however much waits.

CREATE TABLE jobs (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    TEXT NOT NULL CHECK (tenant_id <> ''),
    id           TEXT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind <> ''),
    label        TEXT NOT NULL,
    subject      TEXT NOT NULL,
    digest       TEXT NOT NULL,
    priority     INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 10),
    state        TEXT NOT NULL
                 CHECK (state IN ('delayed', 'queued', 'running', 'done', 'failed', 'dead', 'cancelled')),
    rank         INTEGER NOT NULL, -- Due time less what the priority is worth; smallest first.
    attempts     INTEGER NOT NULL DEFAULT 0,
    attempts_max INTEGER NOT NULL CHECK (attempts_max > 0),
    dedupe_key   TEXT,
    dedupe_until INTEGER,
    owner_id     TEXT, -- Who holds it while it runs.
    fence        INTEGER NOT NULL DEFAULT 0,
    progress     REAL,
    phase        TEXT,
    cancel_asked TEXT, -- The reason; NULL: nobody has asked.
    error        TEXT CHECK (json_valid(error)),
    events       INTEGER NOT NULL DEFAULT 0, -- The number of its newest event.
    created_at   INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    started_at   INTEGER,
    ended_at     INTEGER,
    UNIQUE (tenant_id, id),
    CHECK ((dedupe_key IS NULL) = (dedupe_until IS NULL)),
    CHECK ((state = 'running') = (owner_id IS NOT NULL)),
    CHECK ((state IN ('done', 'failed', 'dead', 'cancelled')) = (ended_at IS NOT NULL))
) STRICT;

CREATE INDEX jobs_queued ON jobs (tenant_id, rank, seq) WHERE state = 'queued';
CREATE INDEX jobs_delayed ON jobs (due_at) WHERE state = 'delayed';
CREATE INDEX jobs_running ON jobs (owner_id) WHERE state = 'running';
CREATE INDEX jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX jobs_of_tenant ON jobs (tenant_id, seq);
CREATE UNIQUE INDEX jobs_deduped ON jobs (tenant_id, kind, dedupe_key) WHERE dedupe_key IS NOT NULL;

CREATE TRIGGER jobs_end_once BEFORE UPDATE OF state ON jobs WHEN OLD.ended_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'an ended job does not change');
END;

CREATE TABLE job_bodies (
    seq     INTEGER PRIMARY KEY,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    result  TEXT CHECK (json_valid(result))
) STRICT;

CREATE TABLE job_events (
    seq    INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    data   TEXT NOT NULL CHECK (json_valid(data)),
    PRIMARY KEY (seq, number)
) STRICT, WITHOUT ROWID;

-- Whose turn it is. The tenant '' stands for all of them together, and its `served` is the last ticket that was given out.
CREATE TABLE job_tenants (
    tenant_id TEXT PRIMARY KEY,
    waiting   INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    ready     INTEGER NOT NULL DEFAULT 0 CHECK (ready >= 0),
    running   INTEGER NOT NULL DEFAULT 0 CHECK (running >= 0),
    served    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX job_tenants_turn ON job_tenants (running, served) WHERE ready > 0;
INSERT INTO job_tenants (tenant_id) VALUES ('');

CREATE TABLE job_owners (
    owner_id    TEXT PRIMARY KEY,
    lease_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
