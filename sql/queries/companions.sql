-- name: list_companions
-- Lists every companion by slug.
SELECT id, slug, name, greeting, persona, settings, version FROM companions ORDER BY slug;

-- name: find_companion
-- Finds the companion with a slug.
SELECT id, slug, name, greeting, persona, settings, version FROM companions WHERE slug = $1;

-- name: put_companion
-- Creates or replaces a companion, raising its version only where something changed.
INSERT INTO companions AS old (slug, name, greeting, persona, settings)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (slug) DO UPDATE SET
    name = excluded.name,
    greeting = excluded.greeting,
    persona = excluded.persona,
    settings = excluded.settings,
    version = old.version + CASE
        WHEN (old.name, old.greeting, old.persona, old.settings)
            IS DISTINCT FROM (excluded.name, excluded.greeting, excluded.persona, excluded.settings)
        THEN 1 ELSE 0 END
RETURNING id, slug, name, greeting, persona, settings, version;
