-- What is made of a relationship beyond single memories: summaries, episodes, topics, a profile.

-- layers_version rises with every change to its records. The cursors say up to which turn each
-- kind of work is done; due_at when curation must look at the relationship next, NULL: never. A
-- worker that takes one puts due_at off, so that another takes over where it dies.
ALTER TABLE relationships
    ADD COLUMN layers_version bigint NOT NULL DEFAULT 0,
    ADD COLUMN settings jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN shares_counts boolean NOT NULL DEFAULT false,
    ADD COLUMN due_at timestamptz,
    ADD COLUMN noted_turn_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN summarised_turn_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN told_turn_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN habits_at timestamptz,
    -- Digests of what its user had removed and no background work may make again.
    ADD COLUMN dismissed text[] NOT NULL DEFAULT '{}';
CREATE INDEX relationships_by_due ON relationships (due_at) WHERE due_at IS NOT NULL;

-- One record of one layer.
CREATE TABLE records (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relationship_id bigint NOT NULL REFERENCES relationships,
    layer text NOT NULL CHECK (layer IN (
        'summary', 'opening', 'episodes', 'topics', 'profile', 'scratchpad', 'questions', 'hot',
        'vault'
    )),
    kind text NOT NULL DEFAULT '',
    title text NOT NULL DEFAULT '',
    content text NOT NULL,
    -- Names, places and works that are spoken of, folded: found exactly, in the process.
    refs text[] NOT NULL DEFAULT '{}',
    details jsonb NOT NULL DEFAULT '{}',
    embedding halfvec,
    made_by text NOT NULL CHECK (made_by IN ('model', 'rules', 'user', 'developer')),
    session_id uuid REFERENCES sessions,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    revision integer NOT NULL DEFAULT 1
);
CREATE INDEX records_by_relationship ON records (relationship_id, layer, id);

-- What a record was made of: turns, or other records.
CREATE TABLE record_sources (
    record_id bigint NOT NULL REFERENCES records,
    turn_id bigint REFERENCES turns,
    source_id bigint REFERENCES records,
    CHECK ((turn_id IS NULL) <> (source_id IS NULL))
);
CREATE INDEX record_sources_by_record ON record_sources (record_id);
CREATE INDEX record_sources_by_turn ON record_sources (turn_id);
CREATE INDEX record_sources_by_source ON record_sources (source_id);

-- Every earlier state of a record, to be looked at and restored; gone with what it was made of.
CREATE TABLE record_revisions (
    relationship_id bigint NOT NULL REFERENCES relationships,
    record_id bigint NOT NULL,
    revision integer NOT NULL,
    layer text NOT NULL,
    kind text NOT NULL,
    title text NOT NULL,
    content text NOT NULL,
    made_by text NOT NULL,
    replaced_at timestamptz NOT NULL,
    PRIMARY KEY (record_id, revision)
);
CREATE INDEX record_revisions_by_relationship ON record_revisions (relationship_id, record_id);

-- Who changed or read what, and when; never what it says.
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relationship_id bigint NOT NULL REFERENCES relationships,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    happened_at timestamptz NOT NULL
);
CREATE INDEX audit_by_relationship ON audit (relationship_id, id);

-- The reference library: documents of a companion, apart from what any user said.
CREATE TABLE documents (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    companion_id bigint NOT NULL REFERENCES companions,
    title text NOT NULL,
    media_type text NOT NULL,
    chunks integer NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX documents_by_companion ON documents (companion_id, id);

CREATE TABLE document_chunks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    document_id bigint NOT NULL REFERENCES documents ON DELETE CASCADE,
    companion_id bigint NOT NULL REFERENCES companions,
    position integer NOT NULL,
    content text NOT NULL,
    embedding halfvec
);
CREATE INDEX document_chunks_by_companion ON document_chunks (companion_id, id);
CREATE INDEX document_chunks_by_document ON document_chunks (document_id, position);
