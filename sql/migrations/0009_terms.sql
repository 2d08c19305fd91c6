-- On what terms somebody is remembered: what the user agreed to, what the operator sets, until when.

ALTER TABLE relationships
    -- When the user agreed to be remembered, where the companion asks for it.
    ADD COLUMN consented_at timestamptz,
    -- What the operator sets for one relationship: over its companion's, under its user's own.
    ADD COLUMN operator_settings jsonb NOT NULL DEFAULT '{}',
    -- When it was last woken to let go of what is past its days.
    ADD COLUMN woken_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX relationships_by_waking ON relationships (woken_at);

-- What was revoked lately is looked up by its time after a lost connection.
CREATE INDEX revocations_by_until ON revocations (until);
