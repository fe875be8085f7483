-- A revocation is of no use once its token cannot be used any more. Where the end of the token is known, the revocation
-- may be forgotten after it; where it is not (NULL), the revocation stays for good.

ALTER TABLE access_revocations ADD COLUMN needless_from TEXT CHECK (needless_from LIKE '%Z');

DROP TRIGGER access_revocations_never_go;

CREATE TRIGGER access_revocations_go_only_where_their_end_is_known
BEFORE DELETE ON access_revocations
WHEN OLD.needless_from IS NULL
BEGIN
    SELECT RAISE(ABORT, 'a revocation is never taken back');
END;
