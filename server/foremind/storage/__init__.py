"""PostgreSQL: embedded server, pool, migrations, stores, durable jobs, notifications."""
