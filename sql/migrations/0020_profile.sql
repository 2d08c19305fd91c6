-- A language model reads what users say of themselves for the profile, some turns at a time; what
-- was said before there were slots is known by then.
ALTER TABLE relationships ADD COLUMN profiled_turn_id bigint NOT NULL DEFAULT 0;
UPDATE relationships SET profiled_turn_id = stated_turn_id;
