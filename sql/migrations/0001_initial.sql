-- The whole schema. Everything that was said in a relationship, or derived from it, belongs to that
-- relationship: the keys of those tables begin with it, and so do their foreign keys, so that a
-- sharded PostgreSQL can distribute them by relationship. The tables of users, companions and the
-- operator are small and can be replicated. `storage/sharding` lists which are which.

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
    -- The `data` of the character card that it was made of.
    card jsonb,
    version integer NOT NULL DEFAULT 1,
    -- Incremented by every change to its documents.
    documents_version bigint NOT NULL DEFAULT 0,
    -- Since when it accepts no new sessions; what was said to it stays with its users.
    retired_at timestamptz
);

CREATE TABLE users (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    external_id text NOT NULL UNIQUE,
    name text NOT NULL,
    -- IANA name of the player's time zone; "yesterday" is resolved in it.
    time_zone text NOT NULL DEFAULT 'UTC',
    -- The player's language by the first subtag of its BCP 47 tag, if a client has stated it.
    language text,
    -- The region of that tag, in upper case: it decides which day "03/04/2026" is.
    region text
);
-- The accounts of worlds, to find those of one timeline.
CREATE INDEX users_of_worlds ON users (external_id text_pattern_ops)
    WHERE starts_with(external_id, E'\n');

-- One user with one companion: the unit of memory.
CREATE TABLE relationships (
    -- Made of the two others, so that the key alone keeps them unique: a sharded database can
    -- enforce no uniqueness but within a key that begins with the column it distributes by.
    id bigint PRIMARY KEY,
    user_id bigint NOT NULL REFERENCES users,
    companion_id bigint NOT NULL REFERENCES companions,
    -- Incremented by every change to its memories, records or past respectively. A reply or a
    -- background step that began before an erasure is refused when it is about to be written.
    memory_version bigint NOT NULL DEFAULT 0,
    layers_version bigint NOT NULL DEFAULT 0,
    erasures bigint NOT NULL DEFAULT 0,
    -- Likewise by every transaction that removes anything, also because it has expired; and by every
    -- change of its settings or of the user's consent.
    removals bigint NOT NULL DEFAULT 0,
    settings_version bigint NOT NULL DEFAULT 0,
    -- Collection statistics of BM25; words taken from neighbouring turns count by their weight.
    memory_count bigint NOT NULL DEFAULT 0,
    term_count double precision NOT NULL DEFAULT 0,
    -- The user's own settings, and the operator's, which rank between the companion's and the user's.
    settings jsonb NOT NULL DEFAULT '{}',
    operator_settings jsonb NOT NULL DEFAULT '{}',
    -- When the user agreed to be remembered, where the companion asks for it.
    consented_at timestamptz,
    -- When background work has to look at the relationship next; NULL: nothing happened.
    due_at timestamptz,
    -- How many exchanges wait for that together, and since when the first has.
    gathered integer NOT NULL DEFAULT 0,
    gathered_since timestamptz,
    -- Cursors: the last turn that each kind of background work has processed.
    stated_turn_id bigint NOT NULL DEFAULT 0,
    noted_turn_id bigint NOT NULL DEFAULT 0,
    summarised_turn_id bigint NOT NULL DEFAULT 0,
    narrated_turn_id bigint NOT NULL DEFAULT 0,
    habits_at timestamptz,
    -- Of a mind in a world: the last event that it has perceived.
    perceived_seq bigint NOT NULL DEFAULT 0,
    -- When retention was last applied.
    woken_at timestamptz NOT NULL DEFAULT now(),
    -- Turns to process again because a record lost some of its sources: a list of {layer, turns}.
    remade jsonb NOT NULL DEFAULT '[]',
    -- Salted digests of what the user removed and no background work may recreate.
    dismissed text[] NOT NULL DEFAULT '{}',
    salt uuid NOT NULL DEFAULT gen_random_uuid(),
    CHECK (companion_id < 4194304 AND id = user_id * 4194304 + companion_id)
);
CREATE INDEX relationships_by_user ON relationships (user_id);
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
    version bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (relationship_id, session_id),
    FOREIGN KEY (relationship_id, session_id) REFERENCES sessions ON DELETE CASCADE
);

CREATE TABLE turns (
    relationship_id bigint NOT NULL REFERENCES relationships,
    id bigint GENERATED ALWAYS AS IDENTITY,
    session_id uuid,
    user_id bigint NOT NULL REFERENCES users,
    -- Of an event 'companion', unless somebody else said it.
    speaker text NOT NULL CHECK (speaker IN ('user', 'companion')),
    message_id text,
    reply_to bigint,
    -- Of what happened, which a game reported, or what a mind witnessed in a world: the game's id, and
    -- the type of its memory. It belongs to no session, so that nothing that reads a session takes it
    -- for something said to the companion alone.
    event_id text,
    event_type text
        CHECK (event_type IN ('conversation', 'observation', 'event', 'relationship')),
    -- Where it was witnessed, in a world.
    place text NOT NULL DEFAULT '',
    -- Of a reply: its place among those that were made to the same message.
    position integer NOT NULL DEFAULT 0,
    status text NOT NULL CHECK (status IN ('completed', 'cancelled', 'failed')),
    content text NOT NULL,
    created_at timestamptz NOT NULL,
    -- The vector of the exact text, once computed; neighbouring memories are embedded with it.
    embedding halfvec,
    other_embedding halfvec,
    -- When the user removed it: its text and vector are gone.
    removed_at timestamptz,
    -- The user corrected it, so that it no longer says what was sent.
    corrected boolean NOT NULL DEFAULT false,
    -- False: its text is erased when the session ends, and nothing is remembered of it.
    kept boolean NOT NULL DEFAULT true,
    -- Which process is answering a user's turn, and until when at the latest.
    answering_by bigint,
    answering_until timestamptz,
    -- The client's id of the last request for another reply to a user's turn.
    regenerated_by text,
    PRIMARY KEY (relationship_id, id),
    -- Of the replies to a turn, one stands.
    UNIQUE (relationship_id, reply_to),
    FOREIGN KEY (relationship_id, session_id) REFERENCES sessions,
    FOREIGN KEY (relationship_id, reply_to) REFERENCES turns,
    -- A user's turn has the client's message id; a companion's the turn it answers, if any.
    CHECK ((speaker = 'user' AND event_id IS NULL) = (message_id IS NOT NULL)),
    CHECK (speaker = 'companion' OR reply_to IS NULL),
    CHECK (num_nulls(event_id, event_type) = CASE WHEN session_id IS NULL THEN 0 ELSE 2 END),
    CHECK (event_id IS NULL OR reply_to IS NULL),
    -- Others than the companion speak only in worlds.
    CHECK (speaker = 'companion' OR event_type IS NULL OR event_type = 'conversation')
);
-- An event is stored once.
CREATE UNIQUE INDEX turns_by_event ON turns (relationship_id, event_id) WHERE event_id IS NOT NULL;
CREATE INDEX turns_by_session ON turns (relationship_id, session_id, id);
CREATE INDEX turns_unkept ON turns (relationship_id, session_id) WHERE NOT kept;
-- Idempotency: a message id is stored once. It is the user's, also across companions; a sharded
-- database can enforce it only within a relationship, and is given such an index instead.
CREATE UNIQUE INDEX turns_by_message ON turns (user_id, message_id);

-- Replies to the last message of a session that do not stand: the player had another one made, or
-- chose another. Nothing is derived from them. They are deleted when a later message is answered,
-- when the session is closed, and by every erasure.
CREATE TABLE alternative_replies (
    relationship_id bigint NOT NULL,
    turn_id bigint NOT NULL,
    position integer NOT NULL,
    status text NOT NULL CHECK (status IN ('completed', 'cancelled', 'failed')),
    content text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (relationship_id, turn_id, position),
    FOREIGN KEY (relationship_id, turn_id) REFERENCES turns ON DELETE CASCADE
);

-- What the language model was given for the latest replies of a relationship, as JSON: whoever asks
-- how a line came about is told. Plain text, so that an operator can see that nothing erased is in it;
-- every erasure deletes what may hold it.
CREATE TABLE reply_prompts (
    relationship_id bigint NOT NULL,
    -- The turn of the message that was answered; in a world, the number of the event that was said.
    number bigint NOT NULL,
    -- Of the replies to the same message, which.
    position integer NOT NULL,
    -- The turn that the reply was first stored as; NULL in a world. No later turn is in the prompt.
    reply_id bigint,
    prompt text NOT NULL,
    PRIMARY KEY (relationship_id, number, position)
);

-- -------------------------------------------------------------------------------------------------
-- What is remembered
-- -------------------------------------------------------------------------------------------------

-- The one embedding model whose vectors this store searches. They are in one of two columns, which take
-- turns: `foremind db reembed` fills the other one with vectors of another model, and then swaps them.
-- What changes or removes a vector removes the other one.
CREATE TABLE embedding_model (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    name text NOT NULL,
    fingerprint text NOT NULL,
    dimension integer NOT NULL,
    -- Whether its vectors are in the columns `other_embedding`.
    swapped boolean NOT NULL DEFAULT false,
    -- The model whose vectors the other columns have, or are being given; NULL: they are empty.
    other_fingerprint text,
    -- The names of the models that were replaced.
    earlier text[] NOT NULL DEFAULT '{}'
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
    -- Where it was witnessed, in a world.
    place text NOT NULL DEFAULT '',
    -- When a reply last used it; NULL: never.
    last_used_at timestamptz,
    -- The newer memory that contradicts it, if any.
    superseded_by bigint,
    -- A unit vector of the dimension in embedding_model. One of the two is never NULL.
    embedding halfvec,
    other_embedding halfvec,
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
-- page of its own. An index entry holds at most 2,704 bytes, hence at most 1,280 dimensions. The other
-- column has such an index while it is used.
CREATE INDEX memories_by_embedding ON memories
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
    other_embedding halfvec,
    made_by text NOT NULL CHECK (made_by IN ('model', 'rules', 'user', 'developer')),
    session_id uuid,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- When the newest of what it was made of was said; NULL: it is no older than its last change.
    last_source_at timestamptz,
    revision integer NOT NULL DEFAULT 1,
    -- In how many prompts of stored replies it stood, and when last.
    used integer NOT NULL DEFAULT 0,
    used_at timestamptz,
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
-- It has no primary key, as either source may be NULL; a shard is moved by logical replication, which
-- needs something to tell rows apart.
ALTER TABLE record_sources REPLICA IDENTITY FULL;
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

CREATE TABLE background_steps (
    relationship_id bigint NOT NULL REFERENCES relationships ON DELETE CASCADE,
    step text NOT NULL,
    -- Ingest and rating take turns one by one: a row for each that waits, deleted by the transaction
    -- that processes it. 0: the step reads whatever follows its cursor. Not a foreign key, which each
    -- message would pay for; what is left of a deleted turn is dropped when it is due. Whoever ingests
    -- a turn makes it due again a little later, in case that fails to happen.
    turn_id bigint NOT NULL DEFAULT 0,
    -- Of a relationship's lanes, each is run by one worker at a time, and side by side.
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
    PRIMARY KEY (relationship_id, step, turn_id)
);
-- Ingest is claimed by itself, however many other steps wait for a model.
CREATE INDEX background_steps_to_ingest ON background_steps (due_at) WHERE lane = 'ingest';
CREATE INDEX background_steps_by_due ON background_steps (due_at)
WHERE lane <> 'ingest' AND due_at IS NOT NULL;
CREATE INDEX background_steps_failing ON background_steps (attempts) WHERE attempts > 0;
CREATE INDEX background_steps_held ON background_steps (held_at) WHERE held_at IS NOT NULL;

-- Which worker has a lane of a relationship, and until when unless it renews its lease.
CREATE TABLE background_claims (
    relationship_id bigint NOT NULL REFERENCES relationships ON DELETE CASCADE,
    lane text NOT NULL,
    place text NOT NULL,
    holder uuid NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (relationship_id, lane)
);
CREATE INDEX background_claims_by_holder ON background_claims (holder);
CREATE INDEX background_claims_by_place ON background_claims (place);

-- -------------------------------------------------------------------------------------------------
-- The reference library: documents of a companion, independent of what any user said
-- -------------------------------------------------------------------------------------------------

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
    embedding halfvec,
    other_embedding halfvec
);
CREATE INDEX document_chunks_by_companion ON document_chunks (companion_id, id);
CREATE INDEX document_chunks_by_document ON document_chunks (document_id, position);

-- -------------------------------------------------------------------------------------------------
-- Worlds. A mind of a world is a relationship of an account: of the world, for a character with one
-- mind for all, or of one player in it. Accounts are users whose ids no client can name. What is
-- saved, rolled back and branched is a timeline; every one has accounts, and so minds, of its own.
-- -------------------------------------------------------------------------------------------------

CREATE TABLE timelines (
    -- The account of the minds that all players share.
    id bigint PRIMARY KEY REFERENCES users,
    world text NOT NULL,
    -- The timelines whose events came before those of this one, the oldest first. None of them
    -- changes any more.
    ancestors bigint[] NOT NULL,
    -- The number of its first event: all of its ancestors' are lower.
    begun_seq bigint NOT NULL
);
CREATE INDEX timelines_by_world ON timelines (world);
CREATE INDEX timelines_by_ancestor ON timelines USING gin (ancestors);

CREATE TABLE worlds (
    name text PRIMARY KEY,
    -- The timeline that is going on.
    timeline_id bigint NOT NULL REFERENCES timelines,
    -- The number of its next event.
    next_seq bigint NOT NULL DEFAULT 1,
    -- Incremented by every change of its clock, scenes, rules and timeline.
    version bigint NOT NULL DEFAULT 1,
    -- Incremented whenever something that happened is forgotten.
    erasures bigint NOT NULL DEFAULT 0,
    -- The time of the world at a real time, and how fast it passes.
    clock_time timestamptz NOT NULL,
    clock_set_at timestamptz NOT NULL,
    clock_factor double precision NOT NULL,
    -- How far speech reaches, who answers, what characters may do, and when they speak first.
    rules jsonb NOT NULL DEFAULT '{}'
);

-- A named moment: the timeline that ended with it, and the time of the world.
CREATE TABLE saves (
    world text NOT NULL REFERENCES worlds ON DELETE CASCADE,
    name text NOT NULL,
    timeline_id bigint NOT NULL REFERENCES timelines,
    clock_time timestamptz NOT NULL,
    clock_factor double precision NOT NULL,
    saved_at timestamptz NOT NULL,
    PRIMARY KEY (world, name)
);

-- Who is where.
CREATE TABLE scenes (
    timeline_id bigint NOT NULL REFERENCES timelines ON DELETE CASCADE,
    name text NOT NULL,
    place text NOT NULL DEFAULT '',
    players text[] NOT NULL,
    minds text[] NOT NULL,
    -- [x, y] by player or mind.
    positions jsonb NOT NULL DEFAULT '{}',
    -- Who answers what is said there.
    turn_order jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (timeline_id, name)
);

-- What happened, once, with the relationships that witnessed it: a row is visible to them alone, and
-- to a transaction of the world's host. A player's own relationship has no companion: number 0.
CREATE TABLE world_events (
    timeline_id bigint NOT NULL REFERENCES timelines,
    seq bigint NOT NULL,
    id text NOT NULL,
    type text NOT NULL,
    memory_type text NOT NULL
        CHECK (memory_type IN ('conversation', 'observation', 'event', 'relationship')),
    -- A player's id, a mind's slug, or a name of the host's; '' for nobody.
    actor text NOT NULL DEFAULT '',
    -- The relationship of an actor that is a mind.
    actor_id bigint,
    addressed text[] NOT NULL DEFAULT '{}',
    volume text NOT NULL DEFAULT 'say' CHECK (volume IN ('whisper', 'say', 'shout')),
    -- Of what is passed on: from whom its actor has it, the nearest first.
    chain text[] NOT NULL DEFAULT '{}',
    content text NOT NULL,
    fields jsonb NOT NULL DEFAULT '{}',
    scene text NOT NULL DEFAULT '',
    place text NOT NULL DEFAULT '',
    happened_at timestamptz NOT NULL,
    witnesses bigint[] NOT NULL,
    -- The vector of the content, made when somebody first asks, and the model that made it.
    vector halfvec,
    vector_of text,
    -- Since when it is forgotten: nothing says what happened. Its witnesses are those that may still
    -- remember it, and nobody once none does.
    forgotten_at timestamptz,
    PRIMARY KEY (timeline_id, seq),
    UNIQUE (timeline_id, id)
);

CREATE INDEX world_events_actions ON world_events (timeline_id) WHERE type = 'action.requested';

-- When the triggers of worlds fired last, and how often on that day.
CREATE TABLE fired_triggers (
    world text NOT NULL REFERENCES worlds ON DELETE CASCADE,
    name text NOT NULL,
    fired_at timestamptz NOT NULL,
    today integer NOT NULL,
    PRIMARY KEY (world, name)
);

-- Which events pass on others, or were made of them: forgetting goes along.
CREATE TABLE event_sources (
    source_timeline_id bigint NOT NULL,
    source_seq bigint NOT NULL,
    timeline_id bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (source_timeline_id, source_seq, timeline_id, seq)
);

-- Forgotten events that minds may still remember: whoever finds one finishes that.
CREATE TABLE events_to_forget (
    timeline_id bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (timeline_id, seq)
);

-- What a mind or player witnessed, and how.
CREATE TABLE witnesses (
    relationship_id bigint NOT NULL,
    timeline_id bigint NOT NULL,
    seq bigint NOT NULL,
    how text NOT NULL CHECK (how IN ('seen', 'heard', 'overheard', 'told', 'own')),
    PRIMARY KEY (relationship_id, seq)
);

-- -------------------------------------------------------------------------------------------------
-- Access
-- -------------------------------------------------------------------------------------------------

-- Revoked tokens: all of a user's that were issued up to a moment, or the one with an id.
CREATE TABLE revocations (
    subject text NOT NULL,
    token_id text,
    until timestamptz NOT NULL
);
-- It has no primary key, by which logical replication, and so Citus on a new node, knows its rows.
ALTER TABLE revocations REPLICA IDENTITY FULL;
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
    -- Whose data is being erased; NULL once nothing is left. Whoever finds one finishes it.
    user_id bigint UNIQUE REFERENCES users,
    -- By which id worlds know the player, and the last event of each timeline until then.
    external_id text,
    timelines jsonb NOT NULL DEFAULT '{}',
    erased_at timestamptz NOT NULL,
    by_operator boolean NOT NULL,
    -- How much was erased so far, by kind.
    receipt jsonb NOT NULL DEFAULT '{}'
);

-- The tokens of language models that a user spent with a companion on the latest day, in UTC; only
-- where there is a limit.
CREATE TABLE spent_tokens (
    user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE,
    companion_id bigint NOT NULL REFERENCES companions,
    day date NOT NULL,
    tokens bigint NOT NULL,
    PRIMARY KEY (user_id, companion_id)
);

-- -------------------------------------------------------------------------------------------------
-- Several gateways on one database
-- -------------------------------------------------------------------------------------------------

-- The gateways that clients can be told to go to. One is alive while its process holds an advisory
-- lock of the number `presence`.
CREATE TABLE gateways (
    name text PRIMARY KEY,
    url text NOT NULL,
    presence bigint NOT NULL,
    draining boolean NOT NULL DEFAULT false
);

-- When `foremind db backup` last wrote a file.
CREATE TABLE last_backup (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    finished_at timestamptz NOT NULL
);

-- -------------------------------------------------------------------------------------------------
-- Row-level security: a transaction sees the rows of the one relationship that it sets as
-- foremind.relationship until it ends, or none. Forced, so that it applies to the tables' owner too.
-- -------------------------------------------------------------------------------------------------

CREATE FUNCTION foremind_relationship() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(current_setting('foremind.relationship', true), '')::bigint;

-- The relationship that a transaction copies the visible one to.
CREATE FUNCTION foremind_copy() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(current_setting('foremind.copy', true), '')::bigint;

-- The relationships that the same mind had in earlier timelines.
CREATE FUNCTION foremind_past() RETURNS bigint[] LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(nullif(current_setting('foremind.past', true), ''), '{}')::bigint[];

-- The timelines whose host a transaction acts for.
CREATE FUNCTION foremind_timelines() RETURNS bigint[] LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(nullif(current_setting('foremind.timelines', true), ''), '{}')::bigint[];

DO $$
DECLARE
    protected text;
BEGIN
    FOREACH protected IN ARRAY ARRAY[
        'session_states', 'turns', 'alternative_replies', 'memories', 'memory_sources',
        'memory_facts', 'memory_changes', 'memory_terms', 'records', 'record_sources',
        'record_revisions', 'audit', 'reply_prompts'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', protected);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', protected);
        EXECUTE format(
            'CREATE POLICY of_relationship ON %I USING (relationship_id = foremind_relationship()) '
            'WITH CHECK (relationship_id = coalesce(foremind_copy(), foremind_relationship()))',
            protected
        );
    END LOOP;
END
$$;

ALTER TABLE witnesses ENABLE ROW LEVEL SECURITY;
ALTER TABLE witnesses FORCE ROW LEVEL SECURITY;
CREATE POLICY of_relationship ON witnesses
    USING (
        relationship_id = foremind_relationship() OR relationship_id = ANY (foremind_past())
        OR timeline_id = ANY (foremind_timelines())
    )
    WITH CHECK (timeline_id = ANY (foremind_timelines()));
ALTER TABLE world_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE world_events FORCE ROW LEVEL SECURITY;
CREATE POLICY of_witness ON world_events
    USING (
        foremind_relationship() = ANY (witnesses) OR witnesses && foremind_past()
        OR timeline_id = ANY (foremind_timelines())
    );

-- Copies what a relationship remembers to one that has nothing, with the same ids.
CREATE FUNCTION copy_relationship(source bigint, target bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    copied text;
    names text;
BEGIN
    FOREACH copied IN ARRAY ARRAY[
        'sessions', 'turns', 'memories', 'memory_sources', 'memory_facts', 'memory_changes',
        'memory_terms', 'records', 'record_sources', 'record_revisions'
    ] LOOP
        SELECT string_agg(quote_ident(attname), ', ') INTO names FROM pg_attribute
        WHERE attrelid = copied::regclass AND attnum > 0 AND NOT attisdropped
            AND attname <> 'relationship_id';
        EXECUTE format(
            'INSERT INTO %1$I (relationship_id, %2$s) OVERRIDING SYSTEM VALUE '
            'SELECT $1, %2$s FROM %1$I WHERE relationship_id = $2', copied, names
        ) USING target, source;
    END LOOP;
END
$$;

-- When a user is erased, what they did in the memories of others keeps its place in the audit trail
-- under a pseudonym: a transaction that names both sees those entries.
CREATE POLICY by_actor ON audit
    USING (
        actor = current_setting('foremind.actor', true)
        OR actor = current_setting('foremind.pseudonym', true)
    );
