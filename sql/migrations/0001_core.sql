-- Companions, users, their relationships, what was said, and what is remembered of it.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE companions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slug text NOT NULL UNIQUE,
    name text NOT NULL,
    greeting text NOT NULL,
    persona text NOT NULL,
    settings jsonb NOT NULL DEFAULT '{}',
    version integer NOT NULL DEFAULT 1
);

CREATE TABLE users (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    external_id text NOT NULL UNIQUE,
    name text NOT NULL,
    -- The IANA name of the zone the player's clock is in: "yesterday" is read by it.
    time_zone text NOT NULL DEFAULT 'UTC'
);

-- One user with one companion: the unit of memory. Every query below it names it.
-- memory_version rises with every change to its memories; the two counts are the
-- collection statistics of BM25 (words count by their share, see memory_terms).
CREATE TABLE relationships (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id bigint NOT NULL REFERENCES users,
    companion_id bigint NOT NULL REFERENCES companions,
    memory_version bigint NOT NULL DEFAULT 0,
    memory_count bigint NOT NULL DEFAULT 0,
    term_count double precision NOT NULL DEFAULT 0,
    UNIQUE (user_id, companion_id)
);

-- One conversation, over one or more connections: it goes on where its user comes back in time.
CREATE TABLE sessions (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    relationship_id bigint NOT NULL REFERENCES relationships,
    opened_at timestamptz NOT NULL,
    active_at timestamptz NOT NULL,
    closed_at timestamptz
);
CREATE INDEX sessions_by_relationship ON sessions (relationship_id, opened_at);

CREATE TABLE turns (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relationship_id bigint NOT NULL REFERENCES relationships,
    session_id uuid NOT NULL REFERENCES sessions,
    user_id bigint NOT NULL REFERENCES users,
    speaker text NOT NULL CHECK (speaker IN ('user', 'companion')),
    message_id text,
    reply_to bigint UNIQUE REFERENCES turns,
    status text NOT NULL CHECK (status IN ('completed', 'cancelled', 'failed')),
    content text NOT NULL,
    created_at timestamptz NOT NULL,
    -- The vector of the exact text, once it is made: neighbours' memories are read with it.
    embedding halfvec,
    -- When its user had it removed: the text and the vector are gone then.
    removed_at timestamptz,
    -- A user's turn carries the client's message id, a companion's the turn it answers, if any.
    CHECK ((speaker = 'user') = (message_id IS NOT NULL)),
    CHECK (speaker = 'companion' OR reply_to IS NULL),
    UNIQUE (user_id, message_id)
);
CREATE INDEX turns_by_relationship ON turns (relationship_id, id);
CREATE INDEX turns_by_session ON turns (session_id, id);

-- The one embedding model whose vectors this store holds.
CREATE TABLE embedding_model (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    name text NOT NULL,
    fingerprint text NOT NULL,
    dimension integer NOT NULL
);

CREATE TABLE memories (
    relationship_id bigint NOT NULL REFERENCES relationships,
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- When it was said last; that it was said before is in memory_sources.
    created_at timestamptz NOT NULL,
    source_turn_id bigint UNIQUE REFERENCES turns,
    significance real NOT NULL CHECK (significance BETWEEN 0 AND 1),
    -- Why it scored what it did: a list of {name, score}.
    reasons jsonb NOT NULL DEFAULT '[]',
    term_count real NOT NULL,
    memory_type text NOT NULL
        CHECK (memory_type IN ('conversation', 'observation', 'event', 'relationship')),
    speaker text NOT NULL CHECK (speaker IN ('user', 'companion')),
    -- The span of time it speaks of ("last week"), where it names one.
    happened_from timestamptz,
    happened_to timestamptz,
    -- When it last served a reply; NULL: never.
    last_used_at timestamptz,
    -- The newer memory that contradicts it, if any.
    superseded_by bigint REFERENCES memories,
    -- Unit length, of the dimension in embedding_model; insert_memory checks both owners.
    embedding halfvec NOT NULL,
    content text NOT NULL,
    -- What its relationship's memory_version is once the last change to it is known: with it, a
    -- process that holds a relationship in memory reads only what changed.
    version bigint NOT NULL,
    -- The words of memory_terms again, packed (see storage/packed_words), to be read at once.
    words bytea NOT NULL,
    CHECK ((happened_from IS NULL) = (happened_to IS NULL))
);

-- A search reads every vector of one relationship, exactly. With the vectors in the index they
-- lie side by side: 5 ms for 10,000 of 100,000 memories, against 13 from the table, where each
-- is on a page of its own. An index entry holds at most 2,704 bytes, hence 1,280 dimensions.
CREATE INDEX memories_by_relationship ON memories
    (relationship_id, created_at) INCLUDE (id, significance, embedding);

CREATE INDEX memories_by_version ON memories (relationship_id, version);
-- Deleting a memory looks for those that it superseded.
CREATE INDEX memories_by_superseding ON memories (superseded_by) WHERE superseded_by IS NOT NULL;

-- The turns that said again what a memory says already.
CREATE TABLE memory_sources (
    turn_id bigint PRIMARY KEY REFERENCES turns,
    memory_id bigint NOT NULL REFERENCES memories,
    said_at timestamptz NOT NULL
);
CREATE INDEX memory_sources_by_memory ON memory_sources (memory_id);

-- What memories state that can be true only one way at a time: (user, home) = porto.
CREATE TABLE memory_facts (
    relationship_id bigint NOT NULL REFERENCES relationships,
    speaker text NOT NULL,
    slot text NOT NULL,
    value text NOT NULL,
    memory_id bigint NOT NULL REFERENCES memories,
    said_at timestamptz NOT NULL,
    PRIMARY KEY (relationship_id, speaker, slot, memory_id)
);
CREATE INDEX memory_facts_by_memory ON memory_facts (memory_id);

-- The trace: what was merged into what, what was superseded by what, and why.
CREATE TABLE memory_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relationship_id bigint NOT NULL REFERENCES relationships,
    memory_id bigint NOT NULL,
    change text NOT NULL CHECK (change IN ('merged', 'superseded')),
    other_turn_id bigint NOT NULL REFERENCES turns,
    reason text NOT NULL,
    changed_at timestamptz NOT NULL
);
CREATE INDEX memory_changes_by_relationship ON memory_changes (relationship_id, id);

-- The inverted index of full-text search: how often each stemmed word stands in each memory, the
-- words of the turns around it counted by their share.
-- 0.6 ms for the postings of a question in 10,000 memories, against 29 ms for ts_rank, and the
-- document frequencies that BM25 needs come with it. No foreign key to memories: checking it
-- on delete would scan by memory_id, so both are written and deleted together.
CREATE TABLE memory_terms (
    relationship_id bigint NOT NULL,
    term text NOT NULL,
    memory_id bigint NOT NULL,
    frequency real NOT NULL,
    PRIMARY KEY (relationship_id, term, memory_id) INCLUDE (frequency)
);

-- Mostly appended to: keep the pages all-visible, so that index-only scans stay so.
ALTER TABLE memories SET (autovacuum_vacuum_insert_scale_factor = 0.05);
ALTER TABLE memory_terms SET (autovacuum_vacuum_insert_scale_factor = 0.05);
