-- Whose jobs and calls these are when the caller's token was handed on: the names of those who did, the root first, with
-- spaces between them. NULL: nobody did, or the row is of the release before, which kept the caller's own name only.

ALTER TABLE jobs ADD COLUMN delegators text COLLATE "C";
ALTER TABLE ledger ADD COLUMN delegators text COLLATE "C";
