import {
  defaultNetworks,
  type NetworkName,
  networkNames,
  type ShippedNetworkName,
} from '@tollkeeper/sdk/protocol/networks'
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
  networkName,
  networkNameList,
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

/** Processes that read a variable. `independent` is a keeper without a database; `buy` and `mcp` are buyers' commands. */
export type Reader = 'api' | 'keeper' | 'independent' | 'indexer' | 'start' | 'deploy' | 'buy' | 'mcp'

/** One environment variable. `npm run generate` makes docs/configuration.md and, for the servers, `.env.example` from these. */
export type Variable = {
  parser: Parser<unknown>
  readers: readonly Reader[]
  about: string
  /** Value if the variable is unset. */
  default?: string
  /** Value in `.env.example`, for variables without a default that most installations need. */
  example?: string
  /** Omitted from `.env.example`, because another variable in that file shows the naming rule. */
  isLeftOut?: true
}

const servers = ['api', 'keeper', 'indexer'] as const
const everyone = [...servers, 'independent'] as const
const keepers = ['keeper', 'independent'] as const

type Upper<Name extends string> = Name extends `${infer Head}-${infer Tail}`
  ? `${Uppercase<Head>}_${Upper<Tail>}`
  : Uppercase<Name>

/** Returns the name of a network's variable: `RPC_URL_BASE_SEPOLIA` for `RPC_URL` and `base-sepolia`. */
export function networkVariable<Prefix extends string>(prefix: Prefix, network: NetworkName) {
  return `${prefix}_${network.toUpperCase().replaceAll('-', '_')}` as const
}

/**
 * Parser of each network's `RPC_URL_<NETWORK>`. It also applies to networks of `NETWORKS_FILE`, which aren't in the table below.
 */
export const rpcUrls = list(url)

/** Networks of `NETWORKS_FILE` aren't in this list, because they are read later. */
const shippedNames = [...networkNames] as ShippedNetworkName[]

const exampleNetworks: readonly ShippedNetworkName[] = defaultNetworks

function ofEachNetwork<Prefix extends string, V extends Variable>(
  prefix: Prefix,
  variable: (network: ShippedNetworkName) => V,
) {
  return Object.fromEntries(
    shippedNames.map((name) => [networkVariable(prefix, name), variable(name)]),
  ) as Record<`${Prefix}_${Upper<ShippedNetworkName>}`, V>
}

/** Sets the readers of a section's variables. A variable with its own `readers` keeps them. */
function readBy<Section extends Record<string, Omit<Variable, 'readers'> & Partial<Variable>>>(
  readers: readonly Reader[],
  section: Section,
) {
  const variables = Object.entries(section).map(([name, variable]) => [name, { readers, ...variable }])
  return Object.fromEntries(variables) as {
    [Name in keyof Section]: { readers: readonly Reader[] } & Section[Name]
  }
}

/** Twice the minimum price, so that a batch has at least two payments: batching can't be switched off (conformance 8.1-9). */
const leastBatchAmount = 10_000n

const shared = {
  DATABASE_URL: {
    parser: databaseUrl,
    readers: [...servers, 'start'],
    about:
      'Postgres 17 or later, shared by all processes (docs/postgres.md). Without it, `npm start` starts a temporary server.',
    example: 'postgres://tollkeeper:password@127.0.0.1:5432/tollkeeper',
  },
  DATABASE_DIRECT_URL: {
    parser: databaseUrl,
    readers: [...servers, 'start'],
    about: 'Direct connection for migrations, the indexer and commands, if DATABASE_URL is a pooler.',
  },
  TABS_DATABASE_URL: {
    parser: databaseUrl,
    readers: ['api', 'keeper'],
    about: 'Database of the tab store: Postgres 15 or later, or Citus. Default: DATABASE_URL.',
  },
  NETWORKS: {
    parser: networkNameList,
    readers: everyone,
    about: `Comma-separated networks to serve: localhost, or names in docs/networks.md or NETWORKS_FILE. Default: ${defaultNetworks.join(' and ')}, if they have an RPC URL.`,
  },
  NETWORKS_FILE: {
    parser: text,
    readers: [...everyone, 'deploy', 'buy', 'mcp'],
    about:
      'JSON file that describes more networks (docs/networks.md). Their RPC variables: RPC_URL_MY_CHAIN for my-chain.',
  },
  ...ofEachNetwork('RPC_URL', (network) => ({
    parser: rpcUrls,
    readers: [...everyone, 'deploy'] as const,
    about:
      network === 'base'
        ? 'Comma-separated JSON-RPC URLs for base. Each network has such a variable.'
        : `JSON-RPC URLs for ${network}.`,
    ...(!exampleNetworks.includes(network) && { isLeftOut: true as const }),
    ...(network === 'base' && { example: 'https://mainnet.base.org' }),
  })),
  PLATFORM_WALLET: {
    parser: address,
    readers: servers,
    about: "Address that receives the platform's fees.",
    example: '0x0000000000000000000000000000000000000000',
  },
  PLATFORM_WALLETS: {
    parser: list(address),
    readers: ['keeper', 'indexer'],
    about: 'Comma-separated former fee recipients.',
  },
  DEPLOYMENTS_FILE: {
    parser: text,
    readers: everyone,
    about:
      "File with the contracts' addresses, written by `deploy`. Default: a checkout's sdk/src/protocol/deployments.json, else ./deployments.json, else the addresses of this version.",
  },
  LOG_LEVEL: {
    parser: choice('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'),
    readers: everyone,
    about: 'Lowest level to log: fatal, error, warn, info, debug, trace or silent.',
    default: 'info',
  },
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    parser: url,
    readers: ['api', 'keeper'],
    about: 'OpenTelemetry collector (OTLP over HTTP), such as http://127.0.0.1:4318. Default: no traces.',
  },
  OTEL_EXPORTER_OTLP_HEADERS: {
    parser: {
      ...matching('name=value, or several, comma-separated', /^[^=,\s]+=[^,]*(,[^=,\s]+=[^,]*)*$/),
      isSecret: true,
    },
    readers: ['api', 'keeper'],
    about: 'Headers for the collector: comma-separated name=value.',
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
    about: 'Which requests are traced. Default: all, unless their `traceparent` excludes them.',
    default: 'parentbased_always_on',
  },
  OTEL_TRACES_SAMPLER_ARG: {
    parser: ratio,
    readers: ['api', 'keeper'],
    about: 'Share of requests that the `traceidratio` samplers trace.',
    default: '1',
  },
  ETH_USD: {
    parser: usdc(),
    readers: ['api', ...keepers],
    about: 'USD per gas token, for a network without a price feed, or if its price is stale.',
    default: '3000',
  },
  PRIORITY_FEE_WEI: {
    parser: integer(0),
    readers: ['api', ...keepers],
    about: "Priority fee per gas in wei. Default: the node's suggestion.",
  },
  TRUSTED_PROXIES: {
    parser: integer(0, 10),
    readers: ['api', 'keeper'],
    about: 'Number of trusted reverse proxies, that is, of trailing X-Forwarded-For entries to trust.',
    default: '0',
  },
  METRICS_TOKEN: {
    parser: secret,
    readers: ['api', ...keepers],
    about: 'Bearer token for /metrics. Default: /metrics is open.',
  },
} satisfies Record<string, Variable>

const triggers = readBy(['api', 'keeper'], {
  TRIGGER_AMOUNT_USDC: {
    parser: usdc(leastBatchAmount),
    about:
      'Sum of the payments to one wallet, without fees, that makes a batch due. Doubled while settling costs more than 0.02 USD.',
    default: '1',
  },
  TRIGGER_COUNT: {
    parser: integer(2),
    about:
      'Number of payments to one wallet that makes a batch due. Multiplied by 1.5 while settling costs more than 0.02 USD.',
    default: '100',
  },
  TRIGGER_TIME_SECONDS: {
    parser: integer(1, 3_600),
    readers: ['api', 'keeper', 'start'],
    about: 'Maximum time in seconds that a payment waits for its batch (`npm start`: 60).',
    default: '3600',
  },
  TRIGGER_HIGH_VALUE_USDC: {
    // The queue's index of high-value payments starts at this amount (packages/ledger/migrations).
    parser: usdc(1_000_000n),
    about: 'A payment of at least this amount is due at once.',
    default: '10',
  },
  TRIGGER_MIN_AGE_SECONDS: {
    parser: integer(0, 600),
    about:
      'Age in seconds that a payment must reach before the trigger amount, count or time can make it due. Only for providers that registered `ownMiddleware` (`npm start`: 0).',
    default: '150',
  },
})

const api = readBy(['api'], {
  API_HOST: { parser: text, about: 'Address to bind to.', default: '127.0.0.1' },
  API_PORT: { parser: port, readers: ['api', 'start'], about: 'Port of the api.', default: '4020' },
  PUBLIC_URL: {
    parser: publicUrl,
    about: "The gateway's URL as buyers and providers see it. Default: from host and port.",
  },
  MACAROON_SECRETS: {
    parser: macaroonSecrets,
    about: `Comma-separated secrets for challenges: kid:hex with at least 32 random bytes. The first secret signs new challenges, and all secrets are accepted. To rotate them: \`${ownCommand} keys rotate macaroon\`.`,
    example: '',
  },
  MACAROON_NOT_BEFORE: {
    parser: time,
    about: 'Time (ISO 8601) of a database restore: challenges created earlier are refused.',
  },
  RECEIPT_KEY_FILE: {
    parser: text,
    about: 'File with the private keys that sign receipts.',
    default: '.tollkeeper/receipt-keys.json',
  },
  OPERATOR_NAME: {
    parser: text,
    about: 'Your name as issuer of fee documents (docs/bookkeeping.md). Default: the public URL.',
  },
  OPERATOR_ADDRESS: { parser: text, about: 'Your postal address on fee documents, on one line.' },
  OPERATOR_TAX_ID: { parser: text, about: 'Your tax number on fee documents.' },
  FIAT_RATES_FILE: {
    parser: text,
    about:
      "CSV file for providers' bookkeeping: UTC date, currency, rate (the price of 1 USDC) and source. Read again when it changes.",
  },
  FIAT_CURRENCY: {
    parser: matching('a currency code like EUR', /^[A-Z]{3}$/),
    about: 'Default currency of fiat values.',
    default: 'EUR',
  },
  NODE_ENV: { parser: text, about: 'production: the api creates no RECEIPT_KEY_FILE.' },
  FEE_SCHEDULE: {
    parser: choice('tiered', 'flat'),
    readers: ['api', 'keeper'],
    about: 'tiered (docs/conformance.md 2.9), or flat: 2% of every price.',
    default: 'tiered',
  },
  DISCOVERY: {
    parser: flag,
    readers: ['api', 'keeper'],
    about: 'off: no listings, no catalog data in challenges, no requests to sellers’ origins.',
    default: 'on',
  },
  MINIMUM_PRICES_USDC: {
    parser: list(networkPrice),
    readers: ['api', 'keeper'],
    about: 'Minimum prices above 0.005 USDC, by network, comma-separated: `ethereum:0.5`.',
  },
  PAYER_UNSETTLED_CAP_USDC: {
    parser: usdc(),
    about: 'Maximum unsettled amount per payer. Default: no limit.',
  },
  NEW_PAYER_UNSETTLED_CAP_USDC: {
    parser: usdc(),
    about: 'Maximum unsettled amount of a payer that never settled. Default: no limit.',
  },
  TABS: {
    parser: tabHours,
    readers: ['api', 'keeper'],
    about:
      'on: requests below 1 USDC can be bought on tabs (docs/tabs.md). 2 to 24: tabs of payers with earned credit may stay open for this many hours instead of one hour. off: no tabs.',
    default: 'on',
  },
  TAB_CREDIT_USDC: {
    parser: usdc(),
    about: 'Credit on tabs per payer beyond its earned credit. 0: only earned or granted credit.',
    default: '1',
  },
  TAB_BUDGET_USDC: {
    parser: usdc(),
    about:
      'Maximum that all payers together may borrow on tabs in a UTC day. Repaid loans no longer count. Test networks have a separate, equal budget.',
    default: '100',
  },
  PROVIDER_UNSETTLED_CAP_USDC: {
    parser: usdc(),
    about: 'Maximum unsettled amount per provider. Default: no limit.',
  },
  SETTLE_BEFORE_SERVE_USDC: {
    parser: usdc(),
    about:
      'From this price (at least TRIGGER_HIGH_VALUE_USDC), /verify answers only once the payment is mined. Default: never.',
  },
  SETTLE_BEFORE_SERVE_TIMEOUT_MS: {
    parser: integer(500, 60_000),
    about:
      'Maximum time in ms that /verify waits because of SETTLE_BEFORE_SERVE_USDC. Afterwards, it answers 503.',
    default: '4000',
  },
  API_DATABASE_POOL: {
    parser: integer(3, 1_000),
    about: 'Maximum database connections per process.',
    default: '10',
  },
  RETENTION_DAYS: {
    parser: integer(1, 36_500),
    about:
      'Days to keep signatures, messages and transaction bytes of finished payments (docs/postgres.md, Disk).',
    default: '30',
  },
  RATE_LIMITS: {
    parser: flag,
    about: 'off: no rate limits.',
    default: 'on',
  },
  RATE_LIMIT_ADDRESS: {
    parser: integer(1, 1_000_000),
    about:
      'Maximum requests per minute and address, separately for challenges, verifications and others. Ten times as many per API key.',
    default: '6000',
  },
  REGISTRATION: {
    parser: choice('open', 'token', 'closed'),
    about:
      'Who may register providers: open (anyone), token (holders of REGISTRATION_TOKEN), or closed (no one).',
    default: 'open',
  },
  REGISTRATION_TOKEN: {
    parser: token,
    about: 'Value of the header `Registration-Token` that REGISTRATION=token requires.',
  },
  OPERATOR_KEY_HASHES: {
    parser: list(sha256Hex),
    about: `Comma-separated SHA-256 hashes of operators' keys (\`${ownCommand} keys rotate operator\`).`,
  },
  WEBHOOK_ALLOW_PRIVATE: {
    parser: flag,
    readers: ['api', 'keeper'],
    about: 'true: webhooks and hooks may have private addresses. For development.',
    default: 'false',
  },
  SMTP_URL: {
    parser: smtpUrl,
    about: 'Mail server for notifications of failures to providers. Default: no mail.',
  },
  MAIL_FROM: { parser: mailAddress, about: 'Sender address of this mail.' },
  UPSTREAM_ALLOW_PRIVATE: {
    parser: flag,
    about: "true: providers' upstreams may have private addresses. Requires REGISTRATION other than open.",
    default: 'false',
  },
  PUBLIC_QUEUE: {
    parser: flag,
    about: "false: due batches aren't published, so no one else can settle them.",
    default: 'true',
  },
  TRACE_URL_TEMPLATE: {
    parser: traceUrl,
    about: 'URL of a trace, with {traceId}, for links in the dashboard.',
  },
})

const keeper = readBy(keepers, {
  KEEPER_HOST: { parser: text, about: 'Address to bind to.', default: '127.0.0.1' },
  KEEPER_PORT: {
    parser: port,
    readers: [...keepers, 'start'],
    about:
      'Port of the keeper. A keeper without a database listens only if this is set, and serves only its health, its metrics and a report on its wallets at `/`.',
    default: '4021',
  },
  KEEPER_PRIVATE_KEYS: {
    parser: list(privateKey),
    about: 'Comma-separated private keys of the wallets that pay gas.',
    example: '',
  },
  KEEPER_KEY_FILE: {
    parser: text,
    about: 'File with the private keys, one per line. Replaces KEEPER_PRIVATE_KEYS.',
  },
  KEEPER_SIGNER_URL: {
    parser: networkUrls,
    about:
      'Remote signers (web3signer, by `eth_signTransaction`), one per chain: base=https://…,polygon=https://….',
  },
  KEEPER_SIGNER_ADDRESSES: {
    parser: list(address),
    about: 'Comma-separated wallets at KEEPER_SIGNER_URL.',
  },
  KEEPER_SIGNER_CA_FILE: {
    parser: text,
    about: "PEM file with the signer's TLS authority, or its certificate. Default: the system's authorities.",
  },
  KEEPER_SIGNER_CERT_FILE: {
    parser: text,
    about: 'PEM file with the client certificate for the signer.',
  },
  KEEPER_SIGNER_KEY_FILE: { parser: text, about: "PEM file with the client certificate's key." },
  KEEPER_POLL_MS: {
    parser: integer(10),
    about: 'Interval in ms between reads of the queue. Default: 250; 2000 without a database.',
  },
  KEEPER_LEASE_MS: {
    parser: integer(1_000),
    readers: ['keeper'],
    about:
      'Lease of a wallet in ms. If the keeper doesn’t renew it in time, another keeper may use the wallet.',
    default: '15000',
  },
  REPLACE_AFTER_MS: {
    parser: integer(500),
    about:
      'Time in ms until an unmined transaction is replaced with a higher fee. It is rebroadcast after a fifth of that time.',
    default: '30000',
  },
  MAX_FEE_GWEI: {
    parser: integer(1),
    about: 'Maximum fee per gas in gwei. Default: 2 on base, 2000 on polygon, 100 elsewhere.',
  },
  MAX_GAS_PER_FEE: {
    parser: integer(0),
    readers: ['api', ...keepers],
    about:
      "Maximum gas cost as a multiple of a payment's fee. Above it, the payment waits until it is about to expire. 0: no limit. Default: 10; 0 on test networks.",
  },
  KEEPER_GATEWAY_URL: {
    parser: url,
    readers: ['independent'],
    about: 'Gateway from which a keeper without a database reads the payments to settle.',
  },
  KEEPER_DAILY_BUDGET_USD: {
    parser: usdc(),
    about:
      'Maximum USD per UTC day and network that you pay for gas that fees don’t cover. 0: no limit. Default: 100; 0 on test networks. Without a database: maximum gas cost on all networks together, default 5.',
  },
  GAS_ALLOWANCE_USD: {
    parser: usdc(),
    readers: ['keeper', 'api'],
    about:
      'Maximum USD per UTC day, on all networks together, for the gas of payments without a fee or grant. Refunds and test networks have separate, equal budgets.',
    default: '1',
  },
  FACILITATOR_OPEN: {
    parser: flag,
    readers: ['keeper'],
    about: "on: x402's /verify and /settle also accept requests without an API key.",
    default: 'off',
  },
})

const indexer = readBy(['indexer'], {
  INDEXER_HOST: {
    parser: text,
    about: 'Address that GraphQL binds to.',
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
      'Number of times that each RPC URL is given to Ponder (20 requests per second each). Default: 16 for a node on this machine, 1 for others.',
  },
})

const deploy = readBy(['deploy'], {
  DEPLOYER_PRIVATE_KEY: {
    parser: privateKey,
    about: 'Private key of the wallet that deploys.',
  },
})

const start = readBy(['start'], {
  CHAIN_PORT: { parser: port, about: 'Port of the local chain.', default: '8545' },
  PROVIDER_PORT: { parser: port, about: 'Port of the sample API.', default: '4030' },
})

const buyer = readBy(['mcp'], {
  WALLET_PRIVATE_KEY: {
    parser: privateKey,
    readers: ['buy', 'mcp'],
    about: 'Private key of the wallet that pays.',
  },
  GATEWAY_URL: {
    parser: url,
    readers: ['buy', 'mcp'],
    about: 'Gateway whose sellers you pay.',
    default: 'http://127.0.0.1:4020',
  },
  NETWORK: {
    parser: networkName,
    readers: ['buy', 'mcp'],
    about: 'Network on which the wallet pays. `tollkeeper start` runs a local base-sepolia.',
    default: 'base-sepolia',
  },
  USDC_ADDRESS: { parser: address, readers: ['buy', 'mcp'], about: 'Address of USDC on localhost.' },
  RECEIPT_FILE: {
    parser: text,
    readers: ['buy'],
    about: 'File for the receipt. Default: not stored.',
  },
  STATE_FOLDER: {
    parser: text,
    readers: ['buy'],
    about: 'Folder for passes and unanswered payments. Default: not stored.',
  },
  WALLET_FOLDER: {
    parser: text,
    about: 'Folder for spending, receipts, passes and open tabs. Default: .tollkeeper in the home folder.',
  },
  ASK_ABOVE_USDC: {
    parser: usdc(),
    about: 'Payments above this amount need the user’s approval (MCP elicitation), or are refused.',
    default: '0.10',
  },
  MAX_PAYMENT_USDC: {
    parser: usdc(),
    about: 'Maximum price of one request, even with approval.',
    default: '1',
  },
  MAX_DAILY_USDC: {
    parser: usdc(),
    about: 'Maximum that the wallet may spend within 24 hours, as counted in WALLET_FOLDER.',
    default: '2',
  },
  MAX_DAILY_USDC_PER_HOST: {
    parser: usdc(),
    about: 'Maximum spending within 24 hours at one host. Default: MAX_DAILY_USDC.',
  },
  DISCOVERY_URL: {
    parser: publicUrl,
    about: 'Gateway or facilitator whose /discovery/search lists what is for sale. Default: GATEWAY_URL.',
  },
  MCP_TOKEN: {
    parser: token,
    about: 'Bearer token for clients of `tollkeeper mcp --http`. Required if it listens beyond loopback.',
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
  { title: 'Triggers', variables: triggers },
  { title: 'api', variables: api },
  { title: 'keeper', variables: keeper },
  { title: 'indexer', variables: indexer },
]

/** Variables of commands that a person runs. They are documented, but not in `.env.example`. */
export const commandSections: readonly Section[] = [
  { title: 'tollkeeper buy, tollkeeper mcp', variables: buyer },
  { title: 'npm run deploy', variables: deploy },
  {
    title: 'npm start (port 0: a free port)',
    variables: start,
  },
]

/** Variables that earlier builds read, and what replaces each one. A process logs a warning if one of them is set. */
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
