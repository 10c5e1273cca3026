import { defaultNetworks, type NetworkName, networkNames } from '@tollkeeper/sdk/protocol/networks'
import { ownCommand } from './ownCommand.ts'
import {
  address,
  choice,
  databaseUrl,
  flag,
  integer,
  list,
  macaroonSecrets,
  mailAddress,
  matching,
  networkPrice,
  networkUrls,
  type Parser,
  port,
  privateKey,
  publicUrl,
  ratio,
  secret,
  sha256Hex,
  smtpUrl,
  tabHours,
  text,
  time,
  token,
  traceUrl,
  url,
  usdc,
} from './parsers.ts'

/** Who reads a variable. `independent` is a keeper without a database; `buy` and `mcp` are buyers' commands. */
export type Reader = 'api' | 'keeper' | 'independent' | 'indexer' | 'start' | 'deploy' | 'buy' | 'mcp'

/** One environment variable; docs/configuration.md and, for the servers, `.env.example` are made from these. */
export type Variable = {
  parser: Parser<unknown>
  readers: readonly Reader[]
  about: string
  /** Its value if it is unset. */
  default?: string
  /** The filled-in value in `.env.example`, for variables without a default that most installations need. */
  example?: string
}

const servers = ['api', 'keeper', 'indexer'] as const
const everyone = [...servers, 'independent'] as const
const keepers = ['keeper', 'independent'] as const

type Upper<Name extends string> = Name extends `${infer Head}-${infer Tail}`
  ? `${Uppercase<Head>}_${Upper<Tail>}`
  : Uppercase<Name>

/** Name of a network's own variable: `RPC_URL_BASE_SEPOLIA` for `RPC_URL` and `base-sepolia`. */
export function networkVariable<Prefix extends string>(prefix: Prefix, network: NetworkName) {
  return `${prefix}_${network.toUpperCase().replaceAll('-', '_')}` as `${Prefix}_${Upper<NetworkName>}`
}

function ofEachNetwork<Prefix extends string, V extends Variable>(
  prefix: Prefix,
  variable: (network: NetworkName) => V,
) {
  return Object.fromEntries(
    networkNames.map((name) => [networkVariable(prefix, name), variable(name)]),
  ) as Record<`${Prefix}_${Upper<NetworkName>}`, V>
}

/** A section of variables with the same readers, unless one names its own. */
function readBy<Section extends Record<string, Omit<Variable, 'readers'> & Partial<Variable>>>(
  readers: readonly Reader[],
  section: Section,
) {
  const variables = Object.entries(section).map(([name, variable]) => [name, { readers, ...variable }])
  return Object.fromEntries(variables) as {
    [Name in keyof Section]: { readers: readonly Reader[] } & Section[Name]
  }
}

/** Two payments of the least price, since batching can't be switched off (conformance 8.1-9). */
const leastBatchAmount = 10_000n

const shared = {
  DATABASE_URL: {
    parser: databaseUrl,
    readers: [...servers, 'start'],
    about:
      'Postgres 17 or later; api, keeper and indexer share it. `npm start` begins one of its own without it.',
    example: 'postgres://tollkeeper:password@127.0.0.1:5432/tollkeeper',
  },
  DATABASE_DIRECT_URL: {
    parser: databaseUrl,
    readers: [...servers, 'start'],
    about:
      'Postgres itself, for migrations, the indexer and `tollkeeper`, where DATABASE_URL is a pooler such as PgBouncer.',
  },
  TABS_DATABASE_URL: {
    parser: databaseUrl,
    readers: ['api', 'keeper'],
    about: 'A database of its own for the tab store: Postgres 15 or later, or Citus. Default: DATABASE_URL.',
  },
  NETWORKS: {
    parser: list(choice(...networkNames), `names among ${networkNames.join(', ')}, with commas between`),
    readers: everyone,
    about: `Networks served, with commas between: ${networkNames.join(', ')}. Default: of ${defaultNetworks.join(' and ')} those that have an RPC URL.`,
  },
  ...ofEachNetwork('RPC_URL', (network) => ({
    parser: list(url),
    readers: [...everyone, 'deploy'] as const,
    about:
      network === 'base'
        ? 'JSON-RPC of base, several with commas between: the first in good standing is used, each gets every transaction.'
        : `The same of ${network}.`,
    ...(network === 'base' && { example: 'https://mainnet.base.org' }),
  })),
  PLATFORM_WALLET: {
    parser: address,
    readers: servers,
    about: "Who receives the platform's fees.",
    example: '0x0000000000000000000000000000000000000000',
  },
  PLATFORM_WALLETS: {
    parser: list(address),
    readers: ['keeper', 'indexer'],
    about: 'Former fee recipients, with commas between.',
  },
  DEPLOYMENTS_FILE: {
    parser: text,
    readers: everyone,
    about:
      'Where BatchSettlement stands on each network; deploy writes it. Default: sdk/src/protocol/deployments.json of a checkout, else ./deployments.json, else what comes with this version.',
  },
  LOG_LEVEL: {
    parser: choice('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'),
    readers: everyone,
    about: 'fatal, error, warn, info, debug, trace or silent.',
    default: 'info',
  },
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    parser: url,
    readers: ['api', 'keeper'],
    about:
      'OpenTelemetry collector, by OTLP over HTTP, such as http://127.0.0.1:4318. Default: nothing is traced.',
  },
  OTEL_EXPORTER_OTLP_HEADERS: {
    parser: {
      ...matching('name=value, or several with commas between', /^[^=,\s]+=[^,]*(,[^=,\s]+=[^,]*)*$/),
      isSecret: true,
    },
    readers: ['api', 'keeper'],
    about: 'Headers for it, such as its credential.',
  },
  OTEL_TRACES_SAMPLER: {
    parser: choice(
      'parentbased_always_on',
      'parentbased_always_off',
      'parentbased_traceidratio',
      'always_on',
      'always_off',
      'traceidratio',
    ),
    readers: ['api', 'keeper'],
    about:
      'Which requests are traced: by default those whose `traceparent` says so, and those that have none.',
    default: 'parentbased_always_on',
  },
  OTEL_TRACES_SAMPLER_ARG: {
    parser: ratio,
    readers: ['api', 'keeper'],
    about: 'Share of the requests that the samplers `traceidratio` trace.',
    default: '1',
  },
  ETH_USD: {
    parser: usdc(),
    readers: ['api', ...keepers],
    about: 'USD of one ETH (POL on Polygon), where a network has no price feed or the feed is stale.',
    default: '3000',
  },
  PRIORITY_FEE_WEI: {
    parser: integer(0),
    readers: ['api', ...keepers],
    about: 'Tip for a gas unit. Default: what the node suggests.',
  },
  TRUSTED_PROXIES: {
    parser: integer(0, 10),
    readers: ['api', 'keeper'],
    about: 'Number of reverse proxies in front: so many last entries of X-Forwarded-For are theirs.',
    default: '0',
  },
  METRICS_TOKEN: {
    parser: secret,
    readers: ['api', ...keepers],
    about: 'Bearer token that /metrics asks for. Default: /metrics is open.',
  },
} satisfies Record<string, Variable>

const triggers = readBy(['api', 'keeper'], {
  TRIGGER_AMOUNT_USDC: {
    parser: usdc(leastBatchAmount),
    about:
      "A batch is due when a wallet's share reaches this amount (twice as much while it would cost more than 0.02 USD to settle),",
    default: '1',
  },
  TRIGGER_COUNT: {
    parser: integer(2),
    about: 'or this number of payments (half as many again meanwhile),',
    default: '100',
  },
  TRIGGER_TIME_SECONDS: {
    parser: integer(1, 3_600),
    readers: ['api', 'keeper', 'start'],
    about: 'or early enough that the oldest is sent before it has waited this long (`npm start`: 60),',
    default: '3600',
  },
  TRIGGER_HIGH_VALUE_USDC: {
    // The queue's index of high-value payments starts here (packages/ledger/migrations).
    parser: usdc(1_000_000n),
    about: "or at once for a payment of this value. What is about to run out doesn't wait for any of these.",
    default: '10',
  },
  TRIGGER_MIN_AGE_SECONDS: {
    parser: integer(0, 600),
    about:
      'How old a payment is before amount, count or time makes it due, if its seller has a middleware of its own (`npm start`: 0): one that never heard of it has voided it by then.',
    default: '150',
  },
})

const api = readBy(['api'], {
  API_HOST: { parser: text, about: 'Address that the api listens on.', default: '127.0.0.1' },
  API_PORT: { parser: port, readers: ['api', 'start'], about: 'Port of the api.', default: '4020' },
  PUBLIC_URL: {
    parser: publicUrl,
    about:
      "The gateway's address as buyers and providers see it; it is signed into challenges and receipts. Default: host and port.",
  },
  MACAROON_SECRETS: {
    parser: macaroonSecrets,
    about: `kid:hex with at least 32 random bytes, several with commas between; the first mints, all verify. \`${ownCommand} keys rotate macaroon\` makes one.`,
    example: '',
  },
  MACAROON_NOT_BEFORE: {
    parser: time,
    about: 'ISO 8601: macaroons minted earlier are refused, after a database was restored.',
  },
  RECEIPT_KEY_FILE: {
    parser: text,
    about: 'Private keys that sign receipts. Made at the first start unless NODE_ENV is production.',
    default: '.tollkeeper/receipt-keys.json',
  },
  NODE_ENV: { parser: text, about: 'production: no key file is made.' },
  FEE_SCHEDULE: {
    parser: choice('tiered', 'flat'),
    readers: ['api', 'keeper'],
    about: 'tiered (docs/conformance.md 2.9), or flat: 2 %.',
    default: 'tiered',
  },
  DISCOVERY: {
    parser: flag,
    readers: ['api', 'keeper'],
    about:
      'off: nothing is listed for buyers to find, challenges say nothing for catalogues, and no seller’s origin is asked.',
    default: 'on',
  },
  MINIMUM_PRICES_USDC: {
    parser: list(networkPrice),
    readers: ['api', 'keeper'],
    about:
      'The lowest price of a request, where it is above 0.005 USDC: `ethereum:0.5`, several with commas between.',
  },
  PAYER_UNSETTLED_CAP_USDC: {
    parser: usdc(),
    about: 'The most that may be unsettled of a payer. Default: no limit.',
  },
  NEW_PAYER_UNSETTLED_CAP_USDC: {
    parser: usdc(),
    about: 'The most that may be unsettled of a payer that never settled anything. Default: no limit.',
  },
  TABS: {
    parser: tabHours,
    readers: ['api', 'keeper'],
    about:
      'on: prices below 1 USDC may be put on tabs, which settle by one signature (docs/tabs.md). 2 to 24: tabs may stay open for this many hours while their payers have earned the credit, instead of one. off: no tabs.',
    default: 'on',
  },
  TAB_CREDIT_USDC: {
    parser: usdc(),
    about:
      'What a payer may owe on tabs beyond a tenth of what ever settled of it, or beyond the fees kept of that if they are less. 0: only payers who have earned credit, or whom you gave some, buy on tabs.',
    default: '1',
  },
  TAB_BUDGET_USDC: {
    parser: usdc(),
    about:
      'What all payers together may owe of what they were lent on a UTC day, beyond what they have earned. Test networks have a budget of their own of the same amount.',
    default: '100',
  },
  PROVIDER_UNSETTLED_CAP_USDC: {
    parser: usdc(),
    about: 'The most that may be unsettled for a provider. Default: no limit.',
  },
  SETTLE_BEFORE_SERVE_USDC: {
    parser: usdc(),
    about:
      'From this price on, /verify answers only once the payment is mined; not below TRIGGER_HIGH_VALUE_USDC. Default: never.',
  },
  SETTLE_BEFORE_SERVE_TIMEOUT_MS: {
    parser: integer(500, 60_000),
    about: 'How long it waits at most; then 503, and the same payment may be presented again.',
    default: '4000',
  },
  API_DATABASE_POOL: { parser: integer(3, 1_000), about: 'Connections to the database.', default: '10' },
  RETENTION_DAYS: {
    parser: integer(1, 36_500),
    about:
      'Days for which what is over is kept: signatures, messages, bytes of transactions (docs/operations.md, Disk).',
    default: '30',
  },
  RATE_LIMITS: {
    parser: flag,
    about: 'on or off, all of them; those that follow are requests a minute.',
    default: 'on',
  },
  RATE_LIMIT_ADDRESS: {
    parser: integer(1, 1_000_000),
    about:
      'Requests of an address: this many challenges, as many verifications, and as many of everything else. An API key has ten times as many.',
    default: '6000',
  },
  REGISTRATION: {
    parser: choice('open', 'token', 'closed'),
    about:
      'Who may register as a provider: anyone (open), who has REGISTRATION_TOKEN (token), or nobody (closed).',
    default: 'open',
  },
  REGISTRATION_TOKEN: {
    parser: token,
    about: 'What the header `Registration-Token` must hold, where REGISTRATION is token.',
  },
  OPERATOR_KEY_HASHES: {
    parser: list(sha256Hex),
    about: `SHA-256 of each operator's key, with commas between; \`${ownCommand} keys rotate operator\` makes one. Default: nobody may.`,
  },
  WEBHOOK_ALLOW_PRIVATE: {
    parser: flag,
    about: 'true: webhooks may go to private addresses. For development.',
    default: 'false',
  },
  SMTP_URL: {
    parser: smtpUrl,
    about: 'Mail server by which providers are told of failures. Default: no mail.',
  },
  MAIL_FROM: { parser: mailAddress, about: 'Address that this mail comes from.' },
  UPSTREAM_ALLOW_PRIVATE: {
    parser: flag,
    about: "true: providers' upstreams may have private addresses. Only where REGISTRATION isn't open.",
    default: 'false',
  },
  PUBLIC_QUEUE: {
    parser: flag,
    about: "false: due batches, with their signed authorizations, aren't published for anybody to settle.",
    default: 'true',
  },
  TRACE_URL_TEMPLATE: {
    parser: traceUrl,
    about: 'Where the dashboard links the trace of a payment: a URL with {traceId} in it.',
  },
})

const keeper = readBy(keepers, {
  KEEPER_HOST: { parser: text, about: 'Address that the keeper listens on.', default: '127.0.0.1' },
  KEEPER_PORT: {
    parser: port,
    readers: [...keepers, 'start'],
    about:
      'Port of the keeper. Without a database it serves health and metrics alone, and nothing unless this is set.',
    default: '4021',
  },
  KEEPER_PRIVATE_KEYS: {
    parser: list(privateKey),
    about: 'Keys of the wallets that pay the gas, with commas between. Several settle side by side.',
    example: '',
  },
  KEEPER_KEY_FILE: { parser: text, about: 'A file with these keys, one a line, instead.' },
  KEEPER_SIGNER_URL: {
    parser: networkUrls,
    about:
      'Signers of further wallets, by `eth_signTransaction` (web3signer), one a chain: base=https://…,polygon=https://….',
  },
  KEEPER_SIGNER_ADDRESSES: {
    parser: list(address),
    about: 'Addresses of these wallets, with commas between. Each settles on every network.',
  },
  KEEPER_SIGNER_CA_FILE: {
    parser: text,
    about:
      "PEM file of the authority, or the certificate itself, of the signer's TLS. Default: the system's.",
  },
  KEEPER_SIGNER_CERT_FILE: { parser: text, about: 'PEM file of the certificate that the signer is shown,' },
  KEEPER_SIGNER_KEY_FILE: { parser: text, about: 'and of its key.' },
  KEEPER_POLL_MS: {
    parser: integer(10),
    about: 'Pause between two looks at the queue. Default: 250; 2000 without a database.',
  },
  KEEPER_LEASE_MS: {
    parser: integer(1_000),
    readers: ['keeper'],
    about: "How long a keeper holds a wallet that it doesn't renew; then another keeper may take it.",
    default: '15000',
  },
  REPLACE_AFTER_MS: {
    parser: integer(500),
    about:
      'Time in ms after which an unmined transaction is replaced by one that offers more for gas. The same bytes are sent again after a fifth of it.',
    default: '30000',
  },
  MAX_FEE_GWEI: {
    parser: integer(1),
    about:
      'The most that a transaction may offer for a gas unit. Unset: 2 on base, 2000 on polygon, 100 elsewhere.',
  },
  MAX_GAS_PER_FEE: {
    parser: integer(0),
    readers: ['api', ...keepers],
    about:
      'A payment waits for cheaper gas, until it is about to expire, while its share of the gas costs more than this many times its fee. 0: no limit. Unset: 10, on test networks 0.',
  },
  KEEPER_GATEWAY_URL: {
    parser: url,
    readers: ['independent'],
    about: 'Makes it a keeper without a database, which settles what this gateway publishes as due.',
  },
  KEEPER_DAILY_BUDGET_USD: {
    parser: usdc(),
    about:
      'USD a UTC day and network that are added to fees that are smaller than their gas. 0: no limit. Unset: 100, on test networks 0. Without a database: all that gas may cost, on all networks together, unset 5.',
  },
  GAS_ALLOWANCE_USD: {
    parser: usdc(),
    readers: ['keeper', 'api'],
    about:
      'USD a UTC day, on all networks together (test networks: as much again), for the gas of payments through the facilitator, submissions and refunds of all who have no grant.',
    default: '1',
  },
  FACILITATOR_OPEN: {
    parser: flag,
    readers: ['keeper'],
    about: "on: x402's /verify and /settle also take requests without an API key.",
    default: 'off',
  },
})

const indexer = readBy(['indexer'], {
  INDEXER_HOST: {
    parser: text,
    about: "Address that the indexer's GraphQL listens on.",
    default: '127.0.0.1',
  },
  INDEXER_PORT: {
    parser: port,
    readers: ['indexer', 'start'],
    about: 'Port of the indexer.',
    default: '42069',
  },
  INDEXER_RPC_LANES: {
    parser: integer(1, 32),
    about:
      'How often each RPC URL is handed to Ponder, which begins with 20 requests a second for each. ' +
      'Default: 16 for a node on this machine, 1 for others.',
  },
})

const deploy = readBy(['deploy'], {
  DEPLOYER_PRIVATE_KEY: { parser: privateKey, about: 'Pays for the deployment.' },
})

const start = readBy(['start'], {
  CHAIN_PORT: { parser: port, about: 'Port of the local chain.', default: '8545' },
  PROVIDER_PORT: { parser: port, about: 'Port of the sample API.', default: '4030' },
})

const buyer = readBy(['mcp'], {
  WALLET_PRIVATE_KEY: { parser: privateKey, readers: ['buy', 'mcp'], about: 'The wallet that pays.' },
  GATEWAY_URL: {
    parser: url,
    readers: ['buy', 'mcp'],
    about: 'The gateway whose sellers are paid.',
    default: 'http://127.0.0.1:4020',
  },
  NETWORK: {
    parser: choice(...networkNames),
    readers: ['buy', 'mcp'],
    about: 'Where the wallet pays. `tollkeeper start` plays base-sepolia.',
    default: 'base-sepolia',
  },
  USDC_ADDRESS: { parser: address, readers: ['buy', 'mcp'], about: 'USDC, on localhost.' },
  RECEIPT_FILE: {
    parser: text,
    readers: ['buy'],
    about: 'Where `tollkeeper buy` keeps the receipt. Unset: nowhere.',
  },
  WALLET_FOLDER: {
    parser: text,
    about:
      'Where spendings, receipts and open tabs are kept, a folder for each wallet and network. Default: .tollkeeper in the home folder.',
  },
  ASK_ABOVE_USDC: {
    parser: usdc(),
    about:
      'Above this price the user is asked, by the agent’s host; where the host can’t ask, it isn’t paid.',
    default: '0.10',
  },
  MAX_PAYMENT_USDC: {
    parser: usdc(),
    about: 'The most that one request may cost, whatever the user says.',
    default: '1',
  },
  MAX_DAILY_USDC: {
    parser: usdc(),
    about: 'The most within any 24 hours, of all that run with this wallet and WALLET_FOLDER.',
    default: '2',
  },
  MAX_DAILY_USDC_PER_HOST: { parser: usdc(), about: 'The same at one host. Unset: MAX_DAILY_USDC alone.' },
  DISCOVERY_URL: {
    parser: publicUrl,
    about: 'A gateway or facilitator whose /discovery/search tells what is sold. Default: GATEWAY_URL.',
  },
  MCP_TOKEN: {
    parser: token,
    about:
      'Bearer token that clients of `tollkeeper mcp --http` present; needed where it listens beyond loopback.',
  },
})

export const variables = {
  ...shared,
  ...triggers,
  ...api,
  ...keeper,
  ...indexer,
  ...deploy,
  ...start,
  ...buyer,
}

export type Variables = typeof variables

type Section = { title: string; variables: Record<string, Variable> }

/** Variables of the servers, in the order of `.env.example`. */
export const serverSections: readonly Section[] = [
  { title: 'Several processes', variables: shared },
  { title: 'Triggers: the keeper settles by them, the api estimates by them', variables: triggers },
  { title: 'api', variables: api },
  { title: 'keeper', variables: keeper },
  { title: 'indexer', variables: indexer },
]

/** Variables of commands that a person runs by hand; they are documented, and not in `.env.example`. */
export const commandSections: readonly Section[] = [
  { title: 'tollkeeper buy, tollkeeper mcp', variables: buyer },
  { title: 'npm run deploy', variables: deploy },
  {
    title: 'npm start; INDEXER_PORT, KEEPER_PORT and API_PORT hold here, too, and 0 takes a free one',
    variables: start,
  },
]

/** Variables that earlier builds read, each with what holds now. A process that finds one set logs a warning. */
export const removedVariables: Readonly<Record<string, string>> = {
  BALANCE_CHECK: 'the API always checks the balance',
  DATABASE_SCHEMA: 'the indexer names its schema after what it indexes',
  FACILITATOR_FEE: 'the facilitator charges no fee',
  FACILITATOR_MAX_OPEN: 'the limit is 1,000 open payments',
  INDEX_MAX_LAG_BLOCKS: 'the limit is 20 blocks',
  OFFER_TIMEOUT_SECONDS: 'an offer is valid for 3,600 seconds',
  RATE_LIMIT_PAYER: 'the limit is 1,200 verifications a minute',
  REBROADCAST_AFTER_MS: 'it is a fifth of REPLACE_AFTER_MS',
  REGISTRATION_LIMIT_ADDRESS: 'the limit is 5 registrations an hour',
  SIGNATURE_THREADS: 'the number of threads follows from the CPUs that the process may use',
  SUBMIT_RATE_LIMIT: 'the limit is 60 submissions a minute',
  TAB_REWARD_PERCENT: 'the reward is 10% of the fee',
  TRIGGER_RAISED_AMOUNT_USDC: 'it is twice TRIGGER_AMOUNT_USDC',
  TRIGGER_RAISED_COUNT: 'it is one and a half times TRIGGER_COUNT',
}
