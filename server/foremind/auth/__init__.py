"""Authentication and authorization: signing keys, access tokens, scopes, allowed origins."""
