-- Background work on a relationship, step by step. Neither table holds a word of what was said, and
-- who looks for work must see that of all relationships: row-level security would hide it.

-- One kind of work on one relationship. `lane`: those that ask a language model and those that never
-- do go on beside each other. `place`: which model server it waits for, '' where rules do the work.
-- `marks` rises whenever something makes it due, so that what came while it ran is not lost. `since`
-- is when what waits was first asked for. `attempts` failed in a row, the last with `code`; held, it
-- is tried again when something is said, or the next day.
CREATE TABLE curation_steps (
    relationship_id bigint NOT NULL REFERENCES relationships ON DELETE CASCADE,
    step text NOT NULL,
    lane text NOT NULL,
    place text NOT NULL,
    companion_id bigint NOT NULL,
    due_at timestamptz,
    since timestamptz NOT NULL,
    marks bigint NOT NULL DEFAULT 1,
    attempts integer NOT NULL DEFAULT 0,
    code text,
    held_at timestamptz,
    PRIMARY KEY (relationship_id, step)
);
CREATE INDEX curation_steps_by_due ON curation_steps (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX curation_steps_failing ON curation_steps (attempts) WHERE attempts > 0;
CREATE INDEX curation_steps_held ON curation_steps (held_at) WHERE held_at IS NOT NULL;

-- Which worker does the steps of a lane, and until when it has them unless it says that it lives.
CREATE TABLE curation_claims (
    relationship_id bigint NOT NULL REFERENCES relationships ON DELETE CASCADE,
    lane text NOT NULL,
    place text NOT NULL,
    holder uuid NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (relationship_id, lane)
);
CREATE INDEX curation_claims_by_holder ON curation_claims (holder);
CREATE INDEX curation_claims_by_place ON curation_claims (place);

-- What rules read as stated, and what a language model read for the profile, is kept apart from the
-- notes, which may wait for a model; up to here it was kept with them.
ALTER TABLE relationships
    ADD COLUMN stated_turn_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN profiled_turn_id bigint NOT NULL DEFAULT 0;
UPDATE relationships SET stated_turn_id = noted_turn_id, profiled_turn_id = noted_turn_id;
