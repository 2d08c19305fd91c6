-- name: revoke_access
-- Revokes a token of a user, or all that were issued until a time.
INSERT INTO revocations (subject, token_id, until) VALUES ($1, $2, $3);

-- name: access_revoked
-- Returns whether a token is revoked, by its id or by its time of issue.
SELECT EXISTS (
    SELECT FROM revocations
    WHERE subject = ANY ($1::text[])
        AND CASE WHEN token_id IS NULL THEN until >= $3 ELSE token_id = $2 END
);

-- name: revocations_since
-- Lists the revocations since a time.
SELECT subject, token_id, until FROM revocations WHERE until >= $1;
