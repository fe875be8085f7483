-- How many attempts of a job were interrupted by the end of their process: they cost no try.
ALTER TABLE jobs ADD COLUMN interruptions bigint NOT NULL DEFAULT 0;
