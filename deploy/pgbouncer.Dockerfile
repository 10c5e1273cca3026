# Debian's PgBouncer, with the settings that the tests run (ledger/pooler.test.ts, test/chaos/topology.test.ts).
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends pgbouncer \
    && rm -rf /var/lib/apt/lists/*
COPY deploy/pgbouncer.ini /usr/local/etc/pgbouncer.ini
USER nobody
CMD ["sh", "-c", "umask 077 && printf '\"tollkeeper\" \"%s\"\\n' \"$POSTGRES_PASSWORD\" > /etc/pgbouncer/userlist.txt && exec pgbouncer /usr/local/etc/pgbouncer.ini"]
