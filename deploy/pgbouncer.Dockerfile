# Debian's PgBouncer, with the settings that the tests use (packages/ledger/store/pooler.test.ts, test/chaos/hostile).
FROM debian:bookworm-slim@sha256:abd67ffcfa541b485a3dff59865ab629aa048a6c613e639d36e7456b0b229241
RUN apt-get update \
    && apt-get install --yes --no-install-recommends pgbouncer \
    && rm -rf /var/lib/apt/lists/*
COPY deploy/pgbouncer.ini /usr/local/etc/pgbouncer.ini
USER nobody
CMD ["sh", "-c", "umask 077 && printf '\"tollkeeper\" \"%s\"\\n' \"$POSTGRES_PASSWORD\" > /etc/pgbouncer/userlist.txt && exec pgbouncer /usr/local/etc/pgbouncer.ini"]
