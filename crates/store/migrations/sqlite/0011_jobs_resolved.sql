-- A person may find out that a job which was written down as failed had its effect after all.

DROP TRIGGER jobs_end_once;

CREATE TRIGGER jobs_end_once BEFORE UPDATE OF state ON jobs
WHEN OLD.ended_at IS NOT NULL AND NOT (OLD.state = 'failed' AND NEW.state = 'done')
BEGIN
    SELECT RAISE(ABORT, 'an ended job does not change');
END;
