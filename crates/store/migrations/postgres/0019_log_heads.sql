-- The newest signed checkpoint of the audit log of each instance, for the others to write down in theirs.
--
-- A log only grows: a head that is smaller, or another one for the same size, is refused here as well as by the statement
-- that writes it.

CREATE TABLE log_heads (
    origin text COLLATE "C" PRIMARY KEY CHECK (octet_length(origin) BETWEEN 1 AND 512),
    size   bigint NOT NULL CHECK (size >= 0),
    root   text NOT NULL CHECK (octet_length(root) <= 128),
    note   text NOT NULL CHECK (octet_length(note) BETWEEN 1 AND 4096)
);

CREATE FUNCTION log_heads_grow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.origin <> OLD.origin OR NEW.size <= OLD.size THEN
        RAISE EXCEPTION 'the head of a log only grows' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER log_heads_grow BEFORE UPDATE ON log_heads FOR EACH ROW EXECUTE FUNCTION log_heads_grow();
