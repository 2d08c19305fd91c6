"""PostgreSQL: the embedded server, the pool, migrations, named queries, durable jobs."""
