-- Workflows that run outside: that they were asked for, and how they ended (FLOW-005, FLOW-006, ASYNC-013).
--
-- Names and keys are the callers' and are kept as bytes, because text here cannot hold every character.

CREATE TABLE workflow_runs (
    tenant_id       text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    id              text COLLATE "C" NOT NULL,
    workflow        bytea NOT NULL,
    idempotency_key bytea NOT NULL,
    input           text NOT NULL CHECK (input IS JSON),
    state           text NOT NULL CHECK (state IN ('pending', 'success', 'failure')),
    output          text CHECK (output IS JSON),
    error           text CHECK (error IS JSON),
    created_at      bigint NOT NULL,
    completed_at    bigint,
    PRIMARY KEY (tenant_id, id),
    CHECK ((state = 'pending') = (completed_at IS NULL))
);

-- RUN-1: the database itself makes one run of one key.
CREATE UNIQUE INDEX workflow_runs_by_key ON workflow_runs (tenant_id, sha256(workflow), sha256(idempotency_key));
CREATE INDEX workflow_runs_by_end ON workflow_runs (completed_at) WHERE completed_at IS NOT NULL;

ALTER TABLE workflow_runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE workflow_runs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON workflow_runs
    USING (tenant_id = current_setting('gantry.tenant', true) OR current_setting('gantry.tenant', true) = '*');
