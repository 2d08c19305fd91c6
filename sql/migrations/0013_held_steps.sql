-- Steps that are held are tried again after a while, also of those who say nothing any more.
CREATE INDEX curation_steps_held ON curation_steps (held_at) WHERE held_at IS NOT NULL;
