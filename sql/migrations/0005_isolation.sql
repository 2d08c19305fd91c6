-- Row-level security: a transaction sees the rows of one relationship, the one it names with
-- SET LOCAL foremind.relationship, or none. Forced, so that it holds for the tables' owner too.

ALTER TABLE memory_sources ADD COLUMN relationship_id bigint REFERENCES relationships;
UPDATE memory_sources AS source SET relationship_id = memory.relationship_id
FROM memories AS memory WHERE memory.id = source.memory_id;
ALTER TABLE memory_sources ALTER COLUMN relationship_id SET NOT NULL;

ALTER TABLE record_sources ADD COLUMN relationship_id bigint REFERENCES relationships;
UPDATE record_sources AS source SET relationship_id = record.relationship_id
FROM records AS record WHERE record.id = source.record_id;
ALTER TABLE record_sources ALTER COLUMN relationship_id SET NOT NULL;

-- Jobs name the relationship beside the turn.
UPDATE pgqueuer SET payload = convert_to(turn.relationship_id || ':' || turn.id, 'UTF8')
FROM turns AS turn WHERE convert_from(payload, 'UTF8') = turn.id::text;

CREATE FUNCTION foremind_relationship() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(current_setting('foremind.relationship', true), '')::bigint;

ALTER TABLE turns ENABLE ROW LEVEL SECURITY;
ALTER TABLE turns FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON turns
    USING (relationship_id = (SELECT foremind_relationship()));

ALTER TABLE memories ENABLE ROW LEVEL SECURITY;
ALTER TABLE memories FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON memories
    USING (relationship_id = (SELECT foremind_relationship()));

ALTER TABLE memory_terms ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_terms FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON memory_terms
    USING (relationship_id = (SELECT foremind_relationship()));

ALTER TABLE memory_sources ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_sources FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON memory_sources
    USING (relationship_id = (SELECT foremind_relationship()));

ALTER TABLE memory_facts ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_facts FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON memory_facts
    USING (relationship_id = (SELECT foremind_relationship()));

ALTER TABLE memory_changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_changes FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON memory_changes
    USING (relationship_id = (SELECT foremind_relationship()));

ALTER TABLE records ENABLE ROW LEVEL SECURITY;
ALTER TABLE records FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON records
    USING (relationship_id = (SELECT foremind_relationship()));
-- What users agreed to be counted by may be counted, in a transaction that says so.
CREATE POLICY counted ON records FOR SELECT
    USING (
        layer = 'topics' AND (SELECT current_setting('foremind.counting', true)) = 'on'
        AND EXISTS (
            SELECT FROM relationships AS bond WHERE bond.id = relationship_id AND bond.shares_counts
        )
    );

ALTER TABLE record_sources ENABLE ROW LEVEL SECURITY;
ALTER TABLE record_sources FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON record_sources
    USING (relationship_id = (SELECT foremind_relationship()));

ALTER TABLE record_revisions ENABLE ROW LEVEL SECURITY;
ALTER TABLE record_revisions FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON record_revisions
    USING (relationship_id = (SELECT foremind_relationship()));

ALTER TABLE audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON audit
    USING (relationship_id = (SELECT foremind_relationship()));
