-- How many jobs of a flow wait, delayed ones included: what one agent may leave in the queue is bounded (JOB-9). The counter
-- follows the states of jobs, as those beside it do.

ALTER TABLE job_flows ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0);

DROP TRIGGER job_flows_in;
DROP TRIGGER job_flows_on;
DROP TRIGGER job_flows_out;

UPDATE job_flows SET waiting = ready;
INSERT INTO job_flows (tenant_id, flow, waiting)
SELECT tenant_id, flow, count(*) FROM jobs WHERE state = 'delayed' GROUP BY tenant_id, flow
ON CONFLICT (tenant_id, flow) DO UPDATE SET waiting = waiting + excluded.waiting;

CREATE TRIGGER job_flows_in AFTER INSERT ON jobs WHEN NEW.state IN ('delayed', 'queued', 'running')
BEGIN
    INSERT INTO job_flows (tenant_id, flow, served)
    SELECT NEW.tenant_id, NEW.flow, (SELECT served * 2 + 1 FROM job_tenants WHERE tenant_id = '')
    WHERE NOT EXISTS (SELECT 1 FROM job_flows WHERE tenant_id = NEW.tenant_id AND flow = NEW.flow);
    UPDATE job_flows SET waiting = waiting + (NEW.state IN ('delayed', 'queued')), ready = ready + (NEW.state = 'queued'),
                         running = running + (NEW.state = 'running')
    WHERE tenant_id = NEW.tenant_id AND flow = NEW.flow;
END;

CREATE TRIGGER job_flows_on AFTER UPDATE OF state ON jobs WHEN OLD.state <> NEW.state
BEGIN
    INSERT INTO job_flows (tenant_id, flow, served)
    SELECT NEW.tenant_id, NEW.flow, (SELECT served * 2 + 1 FROM job_tenants WHERE tenant_id = '')
    WHERE NEW.state IN ('delayed', 'queued', 'running')
      AND NOT EXISTS (SELECT 1 FROM job_flows WHERE tenant_id = NEW.tenant_id AND flow = NEW.flow);
    UPDATE job_flows SET waiting = waiting + (NEW.state IN ('delayed', 'queued')) - (OLD.state IN ('delayed', 'queued')),
                         ready = ready + (NEW.state = 'queued') - (OLD.state = 'queued'),
                         running = running + (NEW.state = 'running') - (OLD.state = 'running')
    WHERE tenant_id = NEW.tenant_id AND flow = NEW.flow;
    DELETE FROM job_flows WHERE tenant_id = NEW.tenant_id AND flow = NEW.flow AND waiting = 0 AND running = 0;
END;

CREATE TRIGGER job_flows_out AFTER DELETE ON jobs WHEN OLD.state IN ('delayed', 'queued', 'running')
BEGIN
    UPDATE job_flows SET waiting = waiting - (OLD.state IN ('delayed', 'queued')), ready = ready - (OLD.state = 'queued'),
                         running = running - (OLD.state = 'running')
    WHERE tenant_id = OLD.tenant_id AND flow = OLD.flow;
    DELETE FROM job_flows WHERE tenant_id = OLD.tenant_id AND flow = OLD.flow AND waiting = 0 AND running = 0;
END;
