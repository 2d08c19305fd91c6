-- What was revoked lately is looked up by its time after a lost connection.
CREATE INDEX revocations_by_until ON revocations (until);
