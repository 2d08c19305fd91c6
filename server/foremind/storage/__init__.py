"""PostgreSQL: embedded server, pool, migrations, stores, steps, notifications."""
