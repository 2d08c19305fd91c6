-- name: revoke_access
-- Notes that a user's tokens, or one of them, no longer count.
INSERT INTO revocations (subject, token_id, until) VALUES ($1, $2, $3);

-- name: access_revoked
-- Tells whether a token of a user is revoked: by its id, or by when it was issued.
SELECT EXISTS (
    SELECT FROM revocations
    WHERE subject = ANY ($1::text[])
        AND CASE WHEN token_id IS NULL THEN until >= $3 ELSE token_id = $2 END
);

-- name: revocations_since
-- Lists what was revoked since a moment.
SELECT subject, token_id, until FROM revocations WHERE until >= $1;
