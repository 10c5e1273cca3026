-- Returns the key of an authorization on its token: 32 bytes. An index on the four columns was five times as large.
create or replace function authorization_key(chain_id integer, token text, authorizer text, nonce text) returns bytea
language sql immutable as $$
  select sha256(int4send(chain_id) || decode(substr(token, 3) || substr(authorizer, 3) || substr(nonce, 3), 'hex'))
$$;
