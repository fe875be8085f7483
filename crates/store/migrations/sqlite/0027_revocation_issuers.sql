-- A token's id is unique among those of its issuer only: a revocation says of which issuers the token is that it makes void, one
-- on each line. NULL: of every issuer, as all revocations were that are here already, and as a release before this one writes
-- and reads them.

ALTER TABLE access_revocations ADD COLUMN issuers TEXT CHECK (issuers <> '');
