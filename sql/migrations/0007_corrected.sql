-- Whether a turn says something else than what was sent, because its user corrected it.
ALTER TABLE turns ADD COLUMN corrected boolean NOT NULL DEFAULT false;
