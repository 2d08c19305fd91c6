-- The whole schema. Everything that was said in a relationship, or derived from it, belongs to that
-- relationship: the keys of those tables begin with it, and so do their foreign keys, so that a
-- sharded PostgreSQL can distribute them by relationship. The tables of users, companions and the
-- operator are small and can be replicated.

CREATE EXTENSION IF NOT EXISTS vector;

-- -------------------------------------------------------------------------------------------------
-- Companions, users and relationships
-- -------------------------------------------------------------------------------------------------

CREATE TABLE companions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slug text NOT NULL UNIQUE,
    name text NOT NULL,
    greeting text NOT NULL,
    persona text NOT NULL,
    settings jsonb NOT NULL DEFAULT '{}',
    version integer NOT NULL DEFAULT 1,
    -- Since when it accepts no new sessions; what was said to it stays with its users.
    retired_at timestamptz
);

CREATE TABLE users (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    external_id text NOT NULL UNIQUE,
    name text NOT NULL,
    -- IANA name of the player's time zone; "yesterday" is resolved in it.
    time_zone text NOT NULL DEFAULT 'UTC'
);

-- One user with one companion: the unit of memory.
CREATE TABLE relationships (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id bigint NOT NULL REFERENCES users,
    companion_id bigint NOT NULL REFERENCES companions,
    -- Incremented by every change to its memories, records or past respectively. A reply or a
    -- background step that began before an erasure is refused when it is about to be written.
    memory_version bigint NOT NULL DEFAULT 0,
    layers_version bigint NOT NULL DEFAULT 0,
    erasures bigint NOT NULL DEFAULT 0,
    -- Collection statistics of BM25; words taken from neighbouring turns count by their weight.
    memory_count bigint NOT NULL DEFAULT 0,
    term_count double precision NOT NULL DEFAULT 0,
    -- The user's own settings, and the operator's, which rank between the companion's and the user's.
    settings jsonb NOT NULL DEFAULT '{}',
    operator_settings jsonb NOT NULL DEFAULT '{}',
    -- Whether the user agreed to be counted by topic together with other users.
    shares_counts boolean NOT NULL DEFAULT false,
    -- When the user agreed to be remembered, where the companion asks for it.
    consented_at timestamptz,
    -- When background work has to look at the relationship next; NULL: nothing happened.
    due_at timestamptz,
    -- Cursors: the last turn that each kind of background work has processed.
    stated_turn_id bigint NOT NULL DEFAULT 0,
    profiled_turn_id bigint NOT NULL DEFAULT 0,
    noted_turn_id bigint NOT NULL DEFAULT 0,
    summarised_turn_id bigint NOT NULL DEFAULT 0,
    told_turn_id bigint NOT NULL DEFAULT 0,
    habits_at timestamptz,
    -- When retention was last applied.
    woken_at timestamptz NOT NULL DEFAULT now(),
    -- Turns to process again because a record lost some of its sources: a list of {layer, turns}.
    remade jsonb NOT NULL DEFAULT '[]',
    -- Salted digests of what the user removed and no background work may recreate.
    dismissed text[] NOT NULL DEFAULT '{}',
    salt uuid NOT NULL DEFAULT gen_random_uuid(),
    UNIQUE (user_id, companion_id)
);
CREATE INDEX relationships_by_due ON relationships (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX relationships_by_waking ON relationships (woken_at);

-- -------------------------------------------------------------------------------------------------
-- What was said
-- -------------------------------------------------------------------------------------------------

-- One conversation, over one or more connections.
CREATE TABLE sessions (
    relationship_id bigint NOT NULL REFERENCES relationships,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    opened_at timestamptz NOT NULL,
    active_at timestamptz NOT NULL,
    closed_at timestamptz,
    PRIMARY KEY (relationship_id, id)
);
CREATE INDEX sessions_by_opening ON sessions (relationship_id, opened_at);

-- The state of a session as the game or client reports it, until the session ends.
CREATE TABLE session_states (
    relationship_id bigint NOT NULL,
    session_id uuid NOT NULL,
    task text NOT NULL DEFAULT '',
    -- json, not jsonb: jsonb would expand large numbers digit by digit.
    flags json NOT NULL DEFAULT '{}',
    set_at timestamptz NOT NULL,
    PRIMARY KEY (relationship_id, session_id),
    FOREIGN KEY (relationship_id, session_id) REFERENCES sessions ON DELETE CASCADE
);

CREATE TABLE turns (
    relationship_id bigint NOT NULL REFERENCES relationships,
    id bigint GENERATED ALWAYS AS IDENTITY,
    session_id uuid NOT NULL,
    user_id bigint NOT NULL REFERENCES users,
    speaker text NOT NULL CHECK (speaker IN ('user', 'companion')),
    message_id text,
    reply_to bigint,
    status text NOT NULL CHECK (status IN ('completed', 'cancelled', 'failed')),
    content text NOT NULL,
    created_at timestamptz NOT NULL,
    -- The vector of the exact text, once computed; neighbouring memories are embedded with it.
    embedding halfvec,
    -- When the user removed it: its text and vector are gone.
    removed_at timestamptz,
    -- The user corrected it, so that it no longer says what was sent.
    corrected boolean NOT NULL DEFAULT false,
    -- False: its text is erased when the session ends, and nothing is remembered of it.
    kept boolean NOT NULL DEFAULT true,
    -- Which process is answering a user's turn, and until when at the latest.
    answering_by bigint,
    answering_until timestamptz,
    PRIMARY KEY (relationship_id, id),
    -- A turn is answered once.
    UNIQUE (relationship_id, reply_to),
    FOREIGN KEY (relationship_id, session_id) REFERENCES sessions,
    FOREIGN KEY (relationship_id, reply_to) REFERENCES turns,
    -- A user's turn has the client's message id; a companion's the turn it answers, if any.
    CHECK ((speaker = 'user') = (message_id IS NOT NULL)),
    CHECK (speaker = 'companion' OR reply_to IS NULL)
);
CREATE INDEX turns_by_session ON turns (relationship_id, session_id, id);
CREATE INDEX turns_unkept ON turns (relationship_id, session_id) WHERE NOT kept;
-- Idempotency: a message id is stored once. It is the user's, also across companions; an index and
-- not a key of the table, because only an unsharded database can enforce that.
CREATE UNIQUE INDEX turns_by_message ON turns (user_id, message_id);

-- A process holds an advisory lock of its number while it lives, so that what a dead process was
-- answering may be answered by another one at once.
CREATE FUNCTION foremind_answering(process bigint, until timestamptz, moment timestamptz)
RETURNS boolean LANGUAGE sql VOLATILE
RETURN CASE
    WHEN process IS NULL OR until <= moment THEN false
    ELSE NOT pg_try_advisory_xact_lock_shared(process)
END;

-- -------------------------------------------------------------------------------------------------
-- What is remembered
-- -------------------------------------------------------------------------------------------------

-- The one embedding model whose vectors this store holds.
CREATE TABLE embedding_model (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    name text NOT NULL,
    fingerprint text NOT NULL,
    dimension integer NOT NULL
);

CREATE TABLE memories (
    relationship_id bigint NOT NULL REFERENCES relationships,
    id bigint GENERATED ALWAYS AS IDENTITY,
    -- When it was last said; earlier occasions are in memory_sources.
    created_at timestamptz NOT NULL,
    source_turn_id bigint,
    -- The session of that turn, repeated here because ranking needs it for every candidate.
    session_id uuid,
    significance real NOT NULL CHECK (significance BETWEEN 0 AND 1),
    -- Why it scored that much: a list of {name, score}.
    reasons jsonb NOT NULL DEFAULT '[]',
    term_count real NOT NULL,
    memory_type text NOT NULL
        CHECK (memory_type IN ('conversation', 'observation', 'event', 'relationship')),
    speaker text NOT NULL CHECK (speaker IN ('user', 'companion')),
    -- The span of time it speaks of ("last week"), where it names one.
    happened_from timestamptz,
    happened_to timestamptz,
    -- When a reply last used it; NULL: never.
    last_used_at timestamptz,
    -- The newer memory that contradicts it, if any.
    superseded_by bigint,
    -- A unit vector of the dimension in embedding_model.
    embedding halfvec NOT NULL,
    content text NOT NULL,
    -- The relationship's memory_version as of the last change to this row: a process with the
    -- relationship's index in memory reads only what changed since.
    version bigint NOT NULL,
    -- The rows of memory_terms in packed form (see text/packed_terms), to be read in one go.
    words bytea NOT NULL,
    PRIMARY KEY (relationship_id, id),
    UNIQUE (relationship_id, source_turn_id),
    FOREIGN KEY (relationship_id, source_turn_id) REFERENCES turns,
    FOREIGN KEY (relationship_id, superseded_by) REFERENCES memories,
    CHECK ((happened_from IS NULL) = (happened_to IS NULL))
);
-- A search reads every vector of one relationship, exactly. With the vectors in the index they are
-- adjacent: 5 ms for 10,000 of 100,000 memories, against 13 ms from the table, where each is on a
-- page of its own. An index entry holds at most 2,704 bytes, hence at most 1,280 dimensions.
CREATE INDEX memories_by_relationship ON memories
    (relationship_id, created_at) INCLUDE (id, significance, embedding);
CREATE INDEX memories_by_version ON memories (relationship_id, version);
CREATE INDEX memories_by_superseding ON memories (relationship_id, superseded_by)
WHERE superseded_by IS NOT NULL;

-- Turns that repeated what a memory says already.
CREATE TABLE memory_sources (
    relationship_id bigint NOT NULL,
    turn_id bigint NOT NULL,
    memory_id bigint NOT NULL,
    said_at timestamptz NOT NULL,
    PRIMARY KEY (relationship_id, turn_id),
    FOREIGN KEY (relationship_id, turn_id) REFERENCES turns,
    FOREIGN KEY (relationship_id, memory_id) REFERENCES memories
);
CREATE INDEX memory_sources_by_memory ON memory_sources (relationship_id, memory_id);

-- What memories state that can be true in only one way at a time: (user, home) = porto.
CREATE TABLE memory_facts (
    relationship_id bigint NOT NULL,
    speaker text NOT NULL,
    slot text NOT NULL,
    value text NOT NULL,
    memory_id bigint NOT NULL,
    said_at timestamptz NOT NULL,
    PRIMARY KEY (relationship_id, speaker, slot, memory_id),
    FOREIGN KEY (relationship_id, memory_id) REFERENCES memories
);
CREATE INDEX memory_facts_by_memory ON memory_facts (relationship_id, memory_id);

-- What was merged into what, what was superseded by what, when and why.
CREATE TABLE memory_changes (
    relationship_id bigint NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    memory_id bigint NOT NULL,
    change text NOT NULL CHECK (change IN ('merged', 'superseded')),
    other_turn_id bigint NOT NULL,
    reason text NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (relationship_id, id),
    FOREIGN KEY (relationship_id, other_turn_id) REFERENCES turns
);
CREATE INDEX memory_changes_by_turn ON memory_changes (relationship_id, other_turn_id);

-- The inverted index of lexical search: how often each stemmed word occurs in each memory, words of
-- neighbouring turns counted by their weight. Reading the postings of a question takes 0.6 ms among
-- 10,000 memories, against 29 ms with ts_rank, and yields the document frequencies for BM25. It has
-- no foreign key to memories: checking it on delete would scan by memory_id, so both are written and
-- deleted together.
CREATE TABLE memory_terms (
    relationship_id bigint NOT NULL,
    term text NOT NULL,
    memory_id bigint NOT NULL,
    frequency real NOT NULL,
    PRIMARY KEY (relationship_id, term, memory_id) INCLUDE (frequency)
);

-- Both are mostly appended to: vacuum early, so that index-only scans stay index-only.
ALTER TABLE memories SET (autovacuum_vacuum_insert_scale_factor = 0.05);
ALTER TABLE memory_terms SET (autovacuum_vacuum_insert_scale_factor = 0.05);

-- -------------------------------------------------------------------------------------------------
-- Records: what background work, users and games derive from a relationship, in layers
-- -------------------------------------------------------------------------------------------------

CREATE TABLE records (
    relationship_id bigint NOT NULL REFERENCES relationships,
    id bigint GENERATED ALWAYS AS IDENTITY,
    layer text NOT NULL CHECK (layer IN (
        'summary', 'opening', 'episodes', 'topics', 'profile', 'scratchpad', 'questions', 'hot',
        'vault'
    )),
    kind text NOT NULL DEFAULT '',
    title text NOT NULL DEFAULT '',
    content text NOT NULL,
    -- Names of people, places and works that it mentions, case-folded, for exact lookup.
    refs text[] NOT NULL DEFAULT '{}',
    details jsonb NOT NULL DEFAULT '{}',
    embedding halfvec,
    made_by text NOT NULL CHECK (made_by IN ('model', 'rules', 'user', 'developer')),
    session_id uuid,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    revision integer NOT NULL DEFAULT 1,
    -- In how many prompts of stored replies it stood, and when last.
    used integer NOT NULL DEFAULT 0,
    used_at timestamptz,
    -- Whether other relationships may count it: a topic of a user who agreed to that.
    counted boolean NOT NULL DEFAULT false CHECK (NOT counted OR layer = 'topics'),
    PRIMARY KEY (relationship_id, id),
    FOREIGN KEY (relationship_id, session_id) REFERENCES sessions
);
CREATE INDEX records_by_layer ON records (relationship_id, layer, id);

-- What a record was derived from: turns, or other records.
CREATE TABLE record_sources (
    relationship_id bigint NOT NULL,
    record_id bigint NOT NULL,
    turn_id bigint,
    source_id bigint,
    UNIQUE NULLS NOT DISTINCT (relationship_id, record_id, turn_id, source_id),
    FOREIGN KEY (relationship_id, record_id) REFERENCES records,
    FOREIGN KEY (relationship_id, turn_id) REFERENCES turns,
    FOREIGN KEY (relationship_id, source_id) REFERENCES records,
    CHECK ((turn_id IS NULL) <> (source_id IS NULL))
);
CREATE INDEX record_sources_by_turn ON record_sources (relationship_id, turn_id);
CREATE INDEX record_sources_by_source ON record_sources (relationship_id, source_id);

-- Earlier versions of a record, to be viewed and restored; erased together with their sources.
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
    PRIMARY KEY (relationship_id, record_id, revision)
);

-- Who changed or read what, and when; never what it says.
CREATE TABLE audit (
    relationship_id bigint NOT NULL REFERENCES relationships,
    id bigint GENERATED ALWAYS AS IDENTITY,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    happened_at timestamptz NOT NULL,
    PRIMARY KEY (relationship_id, id)
);
CREATE INDEX audit_by_actor ON audit (actor);

-- -------------------------------------------------------------------------------------------------
-- Background work. These tables hold no word of what was said, and a worker has to see the steps of
-- every relationship, so row-level security does not apply to them.
-- -------------------------------------------------------------------------------------------------

CREATE TABLE curation_steps (
    relationship_id bigint NOT NULL REFERENCES relationships ON DELETE CASCADE,
    step text NOT NULL,
    -- Steps that may ask a language model and steps that never do run in two separate lanes.
    lane text NOT NULL,
    -- The model server that it waits for; '' where rules do the work.
    place text NOT NULL,
    companion_id bigint NOT NULL,
    due_at timestamptz,
    -- When what is waiting was first requested.
    since timestamptz NOT NULL,
    -- Incremented by every request, so that one that arrives while the step runs is not lost.
    marks bigint NOT NULL DEFAULT 1,
    -- Consecutive failures, and the error code of the last one.
    attempts integer NOT NULL DEFAULT 0,
    code text,
    -- Since when it is suspended: retried when something is said, or the next day.
    held_at timestamptz,
    PRIMARY KEY (relationship_id, step)
);
CREATE INDEX curation_steps_by_due ON curation_steps (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX curation_steps_failing ON curation_steps (attempts) WHERE attempts > 0;
CREATE INDEX curation_steps_held ON curation_steps (held_at) WHERE held_at IS NOT NULL;

-- Which worker has a lane of a relationship, and until when unless it renews its lease.
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

-- -------------------------------------------------------------------------------------------------
-- The durable job queue of pgqueuer 1.6, as its own installer creates it
-- -------------------------------------------------------------------------------------------------

CREATE TYPE pgqueuer_status AS ENUM ('queued', 'picked', 'successful', 'exception', 'canceled', 'deleted', 'failed');

CREATE TABLE pgqueuer (
    id bigserial NOT NULL PRIMARY KEY,
    priority integer NOT NULL,
    queue_manager_id uuid,
    created timestamp with time zone NOT NULL DEFAULT now(),
    updated timestamp with time zone NOT NULL DEFAULT now(),
    heartbeat timestamp with time zone NOT NULL DEFAULT now(),
    execute_after timestamp with time zone NOT NULL DEFAULT now(),
    status pgqueuer_status NOT NULL,
    entrypoint text NOT NULL,
    dedupe_key text,
    payload bytea,
    headers jsonb,
    attempts integer NOT NULL DEFAULT 0,
    slot bigint
);

CREATE TABLE pgqueuer_log (
    id bigint GENERATED BY DEFAULT AS IDENTITY NOT NULL PRIMARY KEY,
    created timestamp with time zone NOT NULL DEFAULT now(),
    job_id bigint NOT NULL,
    status pgqueuer_status NOT NULL,
    priority integer NOT NULL,
    entrypoint text NOT NULL,
    traceback jsonb,
    aggregated boolean DEFAULT false
);

CREATE TABLE pgqueuer_schedules (
    id bigserial NOT NULL PRIMARY KEY,
    expression text NOT NULL,
    entrypoint text NOT NULL,
    heartbeat timestamp with time zone NOT NULL DEFAULT now(),
    created timestamp with time zone NOT NULL DEFAULT now(),
    updated timestamp with time zone NOT NULL DEFAULT now(),
    next_run timestamp with time zone NOT NULL DEFAULT now(),
    last_run timestamp with time zone,
    status pgqueuer_status DEFAULT 'queued'::pgqueuer_status,
    UNIQUE (expression, entrypoint)
);

CREATE TABLE pgqueuer_statistics (
    id bigserial NOT NULL PRIMARY KEY,
    created timestamp with time zone NOT NULL DEFAULT date_trunc('sec'::text, now()),
    count bigint NOT NULL,
    priority integer NOT NULL,
    status pgqueuer_status NOT NULL,
    entrypoint text NOT NULL
);

CREATE INDEX pgqueuer_ep_ea_idx ON pgqueuer USING btree (entrypoint, execute_after) WHERE (status = 'queued'::pgqueuer_status);

CREATE INDEX pgqueuer_ep_prio_id_idx ON pgqueuer USING btree (entrypoint, priority DESC, id) WHERE (status = 'queued'::pgqueuer_status);

CREATE INDEX pgqueuer_log_created ON pgqueuer_log USING btree (created);

CREATE INDEX pgqueuer_log_job_id_status ON pgqueuer_log USING btree (job_id, created DESC);

CREATE INDEX pgqueuer_log_not_aggregated ON pgqueuer_log USING btree ((1)) WHERE (NOT aggregated);

CREATE INDEX pgqueuer_log_status ON pgqueuer_log USING btree (status);

CREATE INDEX pgqueuer_picked_heartbeat_idx ON pgqueuer USING btree (heartbeat) WHERE (status = 'picked'::pgqueuer_status);

CREATE UNIQUE INDEX pgqueuer_picked_slot_idx ON pgqueuer USING btree (entrypoint, slot) WHERE ((status = 'picked'::pgqueuer_status) AND (slot IS NOT NULL));

CREATE INDEX pgqueuer_priority_id_id1_idx ON pgqueuer USING btree (priority, id DESC) INCLUDE (id) WHERE (status = 'queued'::pgqueuer_status);

CREATE INDEX pgqueuer_queue_manager_id_idx ON pgqueuer USING btree (queue_manager_id) WHERE (queue_manager_id IS NOT NULL);

CREATE UNIQUE INDEX pgqueuer_statistics_unique_count ON pgqueuer_statistics USING btree (priority, date_trunc('sec'::text, timezone('UTC'::text, created)), status, entrypoint);

CREATE UNIQUE INDEX pgqueuer_unique_dedupe_key ON pgqueuer USING btree (dedupe_key) WHERE ((status = ANY (ARRAY['queued'::pgqueuer_status, 'picked'::pgqueuer_status])) AND (dedupe_key IS NOT NULL));

CREATE INDEX pgqueuer_updated_id_id1_idx ON pgqueuer USING btree (updated, id DESC) INCLUDE (id) WHERE (status = 'picked'::pgqueuer_status);

CREATE FUNCTION fn_pgqueuer_changed() RETURNS TRIGGER AS $$
DECLARE
    to_emit BOOLEAN := false;  -- Flag to decide whether to emit a notification
BEGIN
    -- Check operation type and set the emit flag accordingly
    IF TG_OP = 'UPDATE' AND OLD IS DISTINCT FROM NEW THEN
        to_emit := true;
    ELSIF TG_OP = 'DELETE' THEN
        to_emit := true;
    ELSIF TG_OP = 'INSERT' THEN
        to_emit := true;
    ELSIF TG_OP = 'TRUNCATE' THEN
        to_emit := true;
    END IF;

    -- Perform notification if the emit flag is set
    IF to_emit THEN
        PERFORM pg_notify(
            'ch_pgqueuer',
            json_build_object(
                'channel', 'ch_pgqueuer',
                'operation', lower(TG_OP),
                'sent_at', NOW(),
                'table', TG_TABLE_NAME,
                'type', 'table_changed_event'
            )::text
        );
    END IF;

    -- Return appropriate value based on the operation
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        RETURN NEW;
    ELSIF TG_OP = 'DELETE' THEN
        RETURN OLD;
    ELSE
        RETURN NULL; -- For TRUNCATE and other non-row-specific contexts
    END IF;

END;
$$ LANGUAGE plpgsql;

CREATE TRIGGER tg_pgqueuer_changed
AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON pgqueuer
EXECUTE FUNCTION fn_pgqueuer_changed();

-- Enqueues a job for a turn the way pgqueuer does, within the statement that stores the turn.
CREATE FUNCTION foremind_enqueue(job text, relationship bigint, turn bigint) RETURNS bigint
LANGUAGE sql
BEGIN ATOMIC
    WITH added AS (
        INSERT INTO pgqueuer (priority, entrypoint, payload, status)
        VALUES (0, job, convert_to(relationship || ':' || turn, 'UTF8'), 'queued')
        RETURNING id, priority, entrypoint, status
    ), logged AS (
        INSERT INTO pgqueuer_log (job_id, priority, entrypoint, status) SELECT * FROM added
    )
    SELECT id FROM added;
END;

-- -------------------------------------------------------------------------------------------------
-- The reference library: documents of a companion, independent of what any user said
-- -------------------------------------------------------------------------------------------------

CREATE TABLE documents (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    companion_id bigint NOT NULL REFERENCES companions,
    title text NOT NULL,
    media_type text NOT NULL,
    chunks integer NOT NULL,
    created_at timestamptz NOT NULL,
    -- The version of the chunking; documents of an earlier one are chunked again by the server.
    cut smallint NOT NULL
);
CREATE INDEX documents_by_companion ON documents (companion_id, id);
CREATE INDEX documents_by_cut ON documents (cut);

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

-- -------------------------------------------------------------------------------------------------
-- Access
-- -------------------------------------------------------------------------------------------------

-- Revoked tokens: all of a user's that were issued up to a moment, or the one with an id.
CREATE TABLE revocations (
    subject text NOT NULL,
    token_id text,
    until timestamptz NOT NULL
);
CREATE INDEX revocations_by_subject ON revocations (subject);
CREATE INDEX revocations_by_until ON revocations (until);

-- The key of the pseudonyms under which the revocations of erased users stay in force.
CREATE TABLE pseudonym_key (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    key uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO pseudonym_key DEFAULT VALUES;

-- That a user was erased, when, on whose behalf and how much: nothing tells who it was.
CREATE TABLE erased_users (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    erased_at timestamptz NOT NULL,
    by_operator boolean NOT NULL,
    receipt jsonb NOT NULL
);

-- -------------------------------------------------------------------------------------------------
-- Row-level security: a transaction sees the rows of the one relationship that it names with
-- SET LOCAL foremind.relationship, or none. Forced, so that it applies to the tables' owner too.
-- -------------------------------------------------------------------------------------------------

CREATE FUNCTION foremind_relationship() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(current_setting('foremind.relationship', true), '')::bigint;

DO $$
DECLARE
    protected text;
BEGIN
    FOREACH protected IN ARRAY ARRAY[
        'session_states', 'turns', 'memories', 'memory_sources', 'memory_facts', 'memory_changes',
        'memory_terms', 'records', 'record_sources', 'record_revisions', 'audit'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', protected);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', protected);
        EXECUTE format(
            'CREATE POLICY of_relationship ON %I USING (relationship_id = foremind_relationship())',
            protected
        );
    END LOOP;
END
$$;

-- Topics of users who agreed to it may be counted, by a transaction that declares it.
CREATE POLICY counted ON records FOR SELECT
    USING (counted AND current_setting('foremind.counting', true) = 'on');

-- When a user is erased, what they did in the memories of others keeps its place in the audit trail
-- under a pseudonym: a transaction that names both sees those entries.
CREATE POLICY by_actor ON audit
    USING (
        actor = current_setting('foremind.actor', true)
        OR actor = current_setting('foremind.pseudonym', true)
    );
