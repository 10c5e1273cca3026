-- Discovery (docs/discovery.md): what providers say of what they sell, and what other sellers declare with their payments.
alter table provider
  add column listed boolean not null default true,
  add column service_name text check (service_name ~ '^[ -~]{1,32}$'),
  add column tags text[] not null default '{}' check (cardinality(tags) <= 5),
  add column icon_url text check (length(icon_url) <= 512),
  -- [{origin, address, signature}]: that a wallet of the provider's sells at an origin, signed by it.
  add column ownership_proofs jsonb not null default '[]' check (octet_length(ownership_proofs::text) <= 4096);
alter table endpoint
  add column listed boolean not null default true,
  add column input_schema jsonb check (octet_length(input_schema::text) <= 8192),
  add column output_schema jsonb check (octet_length(output_schema::text) <= 8192),
  add column input_example jsonb check (octet_length(input_example::text) <= 8192),
  add column output_example jsonb check (octet_length(output_example::text) <= 8192),
  add column updated_at timestamptz not null default now();

-- What sellers who use x402's facilitator alone declare (extension `bazaar`), once a payment for it has settled: under the wallet
-- that was paid, whoever else declares the same resource.
create table declared_resource (
  id bigint generated always as identity primary key,
  resource text not null check (length(resource) between 1 and 2048),
  chain_id integer not null,
  pay_to address not null,
  provider_id text references provider, -- whose API key settled it; null: none came along
  x402_version smallint not null check (x402_version in (1, 2)),
  amount usdc_amount not null,
  max_timeout_seconds integer not null,
  description text not null check (length(description) <= 500),
  mime_type text not null check (length(mime_type) <= 200),
  service_name text,
  tags text[] not null,
  icon_url text,
  bazaar jsonb not null check (octet_length(bazaar::text) <= 16384),
  declared_at timestamptz not null default now(), -- the first time
  updated_at timestamptz not null default now(),  -- when it last changed
  settled_at timestamptz not null default now(),  -- when a payment for it last settled, to the minute
  -- What the resource itself was found to ask for: as in origin_proof. Its own word then replaces what the buyer repeated of it.
  proven_at timestamptz,
  checked_at timestamptz,
  next_check_at timestamptz not null default now(),
  failures smallint not null default 0,
  finding text
);
create index on declared_resource (next_check_at);
create unique index declared_resource_key on declared_resource (md5(resource), chain_id, pay_to);
create index on declared_resource (pay_to);
create index on declared_resource (settled_at);

-- Whether an endpoint's origin asks for payments to its wallet: what the api was answered there. Anybody can register anybody's URL.
create table origin_proof (
  origin text not null check (length(origin) <= 300),
  pay_to address not null,
  proven_at timestamptz,  -- when it last did; null: it never has, or asks for payments to others by now
  checked_at timestamptz, -- null: never
  next_check_at timestamptz not null,
  failures smallint not null default 0, -- in a row
  finding text,           -- why it isn't proven
  primary key (origin, pay_to)
);
create index on origin_proof (next_check_at);
