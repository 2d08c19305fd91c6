-- name: list_companions
-- Lists the companions that are not retired, by slug; of their cards only the nickname.
SELECT id, slug, name, greeting, persona, settings, version, false AS retired,
    CASE WHEN card IS NOT NULL
        THEN jsonb_build_object('nickname', card -> 'nickname') END AS card
FROM companions WHERE retired_at IS NULL ORDER BY slug;

-- name: companion_names
-- Lists what companions that are not retired are called, by slug.
SELECT slug, name FROM companions WHERE retired_at IS NULL ORDER BY slug;

-- name: find_companion
-- Finds a companion by slug.
SELECT id, slug, name, greeting, persona, settings, card, version,
    retired_at IS NOT NULL AS retired
FROM companions WHERE slug = $1;

-- name: companions_named
-- Finds companions by slug, without their cards.
SELECT id, slug, name, greeting, persona, settings, version, retired_at IS NOT NULL AS retired
FROM companions WHERE slug = ANY ($1::text[]);

-- name: get_companion
-- Reads a companion by id.
SELECT id, slug, name, greeting, persona, settings, card, version,
    retired_at IS NOT NULL AS retired
FROM companions WHERE id = $1;

-- name: put_companion
-- Creates or replaces a companion; its version rises only if anything changed.
-- A retired companion becomes available again; with $7, one that exists keeps its settings.
INSERT INTO companions AS old (slug, name, greeting, persona, settings, card)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (slug) DO UPDATE SET
    name = excluded.name,
    greeting = excluded.greeting,
    persona = excluded.persona,
    settings = CASE WHEN $7 THEN old.settings ELSE excluded.settings END,
    card = excluded.card,
    retired_at = NULL,
    version = old.version + CASE
        WHEN (old.name, old.greeting, old.persona, old.card) IS DISTINCT FROM
                (excluded.name, excluded.greeting, excluded.persona, excluded.card)
            OR NOT $7 AND old.settings <> excluded.settings
        THEN 1 ELSE 0 END
RETURNING id, slug, name, greeting, persona, settings, card, version, false AS retired;

-- name: retire_companion
-- Retires a companion, which then accepts no sessions.
UPDATE companions SET retired_at = $2 WHERE slug = $1 AND retired_at IS NULL RETURNING id, version;
