-- What the operator sets for one relationship: over its companion's, under its user's own settings.

ALTER TABLE relationships ADD COLUMN operator_settings jsonb NOT NULL DEFAULT '{}';
