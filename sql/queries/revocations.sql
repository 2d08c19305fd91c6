-- name: revoke_access
-- Notes that a user's tokens, or one of them, no longer count.
INSERT INTO revocations (subject, token_id, until) VALUES ($1, $2, $3);

-- name: access_revoked
-- Tells whether a token of a user, by its id and when it was issued, is revoked.
SELECT EXISTS (
    SELECT FROM revocations
    WHERE subject = $1 AND (token_id IS NULL OR token_id = $2) AND until >= $3
);

-- name: revocations_since
-- Lists what was revoked since a moment.
SELECT subject, token_id, until FROM revocations WHERE until >= $1;
