// Made by `npm run generate` from the OpenAPI document of the gateway.
import type { NetworkName } from '../../protocol/networks.ts'

/** The body of a webhook's message: `type` says which. */
export type WebhookMessage =
  | PaymentSettledEvent
  | PaymentRevertedEvent
  | TabClosedEvent
  | TabSettledEvent
  | TabRevertedEvent
  | BatchConfirmedEvent
  | SettlementFailingEvent
  | SettlementFailedEvent
  | RefundSettledEvent
  | RefundRevertedEvent
  | RefundFailingEvent
  | RefundFailedEvent
  | WebhookTestEvent

/** Answer of `GET /providers/{id}/hook`: The hook. */
export type AcceptHook = {
  url: string
  headers: string[]
  /** How payments are treated if the hook gives no decision. `refuse`: the buyer gets 503 and isn’t charged. */
  onFailure: 'refuse' | 'accept'
  secretSince: string
  /** Time until which requests are also signed with the previous secret. */
  previousSecretExpiresAt: string | null
}

/** Answer of `POST /providers/{id}/hook/test`: The hook’s decision. */
export type AcceptHookTest = {
  /** null: the answer contains no decision. */
  decision: 'accept' | 'refuse' | 'free' | 'price' | null
  durationMs: number
  /** Why there is no decision. */
  error?: string
}

/** Answer of `PUT /providers/{id}/hook`: The hook, with its secret if it is the first one. */
export type AcceptHookWithSecret = AcceptHook & {
  /** Shown only when it is new, and only once. Works with any Standard Webhooks library. */
  secret?: string
}

/** Answer of `GET /account`: The provider. */
export type Account = Provider & {
  /** `read`: it can only read, with `GET`. */
  scope: 'full' | 'read'
}

/** Part of ApiKeysListAnswer. */
export type ApiKey = {
  keyId: string
  label: string
  /** `read`: it can only read, with `GET`. */
  scope: 'full' | 'read'
  createdAt: string
  revokedAt: string | null
}

/** Answer of `GET /providers/{id}/attention`: Everything that needs attention. */
export type Attention = {
  /** When the operator suspended the provider, which stops its sales. */
  suspendedAt: string | null
  /** When the provider disabled itself, which stops its sales. */
  disabledAt: string | null
  /** Payments accepted in the last 7 days that failed and are not retried. */
  failed: {
    /** Number of payments, at most 100. */
    payments: number
    /** Whether there are more than `payments` says. */
    isMore: boolean
    /** The provider's part of the counted payments. */
    net_usdc: string
  }
  /** Payments that failed to settle and are retried. */
  retrying: {
    /** Number of payments, at most 100. */
    payments: number
    /** Whether there are more than `payments` says. */
    isMore: boolean
    /** The provider's part of the counted payments. */
    net_usdc: string
  }
  /** Webhooks that are disabled or failing, or whose previous secret is about to expire. */
  webhooks: Array<{
    webhookId: string
    url: string
    /** When it was disabled because its receiver answered 410. */
    disabledAt: string | null
    undelivered: number
    /** Number of the webhook’s newest messages among which `undelivered` was counted. */
    ofLast: number
    /** Why the newest failed attempt failed. */
    failure: string | null
    previousSecretExpiresAt: string | null
  }>
  /** Time until which requests to your server also carry the previous secret. */
  upstreamSecretExpiresAt: string | null
  /** Endpoints on sale and listed whose URL did not ask for a payment to their wallet when last checked; at most 20. */
  endpoints: Array<{
    endpointId: string
    method: string
    url: string
    /** Whether the endpoint still counts as proven. It keeps counting for up to three days while its server is down. */
    isProven: boolean
    /** Same values as `proof.code` of an endpoint. */
    code: string | null
    finding: string
    /** How to fix it. */
    advice: string | null
    checkedAt: string | null
  }>
  /** Wallets that USDC has blacklisted, and the money withheld from them. */
  withheld: Array<{
    walletId: string
    wallet: string
    network: NetworkName
    /** USDC, always 6 decimals. */
    waiting_usdc: string
  }>
  /** What is left of the operator’s gas allowance for today’s refunds (UTC). */
  gas: Array<{
    money: 'real' | 'test'
    /** USDC, always 6 decimals. */
    limit_usd: string
    /** USDC, always 6 decimals. */
    left_usd: string
    /** Whether the allowance is shared with all providers that have no separate grant. */
    isShared: boolean
  }>
}

/** A batch reached its network's confirmation depth. */
export type BatchConfirmedEvent = {
  type: 'batch.confirmed'
  /** When it happened. */
  timestamp: string
  data: {
    paymentId: null
    txHash: string
    network: NetworkName
    /** Number of the batch on its network. */
    batchId: number
    /** Number of the provider's payments; each request on a tab counts as one. */
    payments: number
    /** USDC base units: 1000000 = 1 USDC. */
    providerUsdc: string
    /** Time of the block. */
    createdAt: string
    confirmedAt: string
  }
}

/** Answer of `GET /providers/{id}/bookkeeping`: The lines and their totals. */
export type Bookkeeping = {
  month: string
  /** `final`: the month has ended, and its lines and numbers no longer change. */
  state: 'preliminary' | 'final'
  from: string
  to: string
  lines: BookkeepingLine[]
  totals: BookkeepingTotal[]
}

/** Part of Bookkeeping. */
export type BookkeepingLine = {
  /** Numbered without gaps within the month. */
  document: string
  /** UTC day of the block in which the money moved. */
  booking_date: string
  booked_at: string
  /** `fee`: the platform's part that arrived without the provider's, in a separate transaction. */
  kind: 'sale' | 'fee' | 'refund'
  payment_id: string
  /** For a refund: its number among the payment's refunds. */
  refund: number | null
  tab_id: string | null
  /** Sequence number of this sale among the sales on the tab; null: not sold on a tab. */
  sale: number | null
  requests: number
  accepted_at: string
  endpoint_id: string | null
  endpoint: string
  wallet: string
  payer: string
  network: NetworkName
  /** Paid in test money, which has no value. */
  testnet: boolean
  asset: string | null
  /** Null: there is none, because a credit from an earlier tab paid for the sale. */
  transaction: string | null
  gross: string
  fee: string
  net: string
  currency: 'USDC'
  fee_document: string | null
  fiat_gross: string | null
  fiat_fee: string | null
  fiat_net: string | null
  fiat_currency: string | null
  fiat_rate: string | null
  fiat_rate_date: string | null
  fiat_source: string | null
}

/** Part of Bookkeeping. */
export type BookkeepingTotal = {
  network: NetworkName
  /** Paid in test money, which has no value. */
  testnet: boolean
  documents: number
  requests: number
  gross: string
  fee: string
  net: string
  /** The part of `gross` and `net` that was refunded. */
  refunds: string
  /** Null: at least one line has no fiat value. */
  fiat_gross: string | null
  fiat_fee: string | null
  fiat_net: string | null
  fiat_currency: string | null
}

/** Body of `POST /tabs/{tabId}/requests/{sequence}/charge`. */
export type ChargeRequest = {
  /** Decimal USDC, at most the price. */
  amount: string
}

/** Answer of `POST /tabs/{tabId}/requests/{sequence}/charge`: The new charge. */
export type Charged = {
  /** USDC, always 6 decimals. */
  charged: string
  /** Receipt for the amount charged now, `voided` if that is 0; absent if the endpoint no longer exists. */
  receipt?: string
}

/** Body of `POST /providers/{id}/contact/confirmation`. */
export type ContactConfirmation = {
  code: string
}

/** Part of DiscoveryMerchantAnswer. */
export type DiscoveryResource = {
  resource: string
  type: 'http' | 'mcp'
  /** For a tool: URL of its MCP server, if the provider registered one. */
  serverUrl?: string
  x402Version: 1
  accepts: Array<{
    scheme: 'exact' | 'tab'
    network: string
    asset: string
    /** USDC base units: 1000000 = 1 USDC. */
    amount?: string
    /** Only for resources of x402 v1. */
    maxAmountRequired?: string
    payTo: string
    maxTimeoutSeconds: number
    extra: {
      name: string
      version: string
      /** If `payTo` is a splitter: the seller that it pays. */
      seller?: string
    }
  }>
  lastUpdated: string
  description: string
  mimeType: string
  serviceName?: string
  tags?: string[]
  iconUrl?: string
  extensions: {
    bazaar: Record<string, unknown>
  }
  /** Settled and final payments of the last 30 days. */
  quality: {
    /** Number of payments that settled in 30 days. */
    l30DaysTotalCalls: number
    /**
     * Number of wallets that paid for this listing. If it is sold only through the facilitator, number of wallets that paid
     * its seller through the facilitator.
     */
    l30DaysUniquePayers: number
    /** Hour of the newest settled payment. */
    lastCalledAt: string | null
    /** Number of payments that failed to settle in 30 days. */
    l30DaysFailedCalls: number
    /** The platform's part of settled payments in base units; the list is ranked by it. */
    l30DaysFees: string
    /** Whether the URL itself asks for payments to the seller's wallet. */
    proven: boolean
    /** Why it is not proven; null if it is, or has not been checked yet. */
    finding: string | null
  }
}

/** Part of EndedPasses. */
export type EndedPass = {
  paymentId: string
  reason: 'refunded' | 'voided' | 'unpaid'
}

/** Answer of `GET /providers/{id}/passes/ended`: Their payments. */
export type EndedPasses = {
  ended: EndedPass[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
}

/** Answer of `GET /providers/{id}/endpoints/{endpointId}`: The endpoint. */
export type Endpoint = {
  endpointId: string
  providerId: string
  walletId: string
  network: NetworkName
  /** All wallets that it may be paid on, the default first. */
  networks: Array<{
    network: NetworkName
    walletId: string
  }>
  /** Paid in test money, which has no value. */
  testnet: boolean
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | '*'
  url: string
  path: string
  pricing: {
    /** USDC, always 6 decimals. */
    usdcPerUnit: string
  }
  description: string
  mimeType: string
  /** URL of the MCP server that has this tool; null: none registered, or not a tool. */
  serverUrl: string | null
  /** Whether buyers can find it. */
  listed: boolean
  /** JSON Schema of the query for GET and DELETE, otherwise of the JSON body; null: none. `$ref` is not allowed. */
  inputSchema?: Record<string, unknown> | null
  /** An example that conforms to the schema. */
  inputExample?: Record<string, unknown> | null
  /** JSON Schema of the answer. */
  outputSchema?: Record<string, unknown> | null
  /** An answer. */
  outputExample?: Record<string, unknown> | null
  /** Increases with each change; `ETag` and `If-Match` contain it. */
  version: number
  createdAt: string
  /** Since when it gets no new challenges; null: it is enabled. */
  disabledAt: string | null
  /**
   * Enabled endpoints of other hosts for the same paths. The middleware of each must set `publicUrl` or `endpointId`,
   * otherwise its requests are refused (`endpoint_ambiguous`). Only in answers about one endpoint, and only if there are any.
   */
  sharesPathWith?: Array<{
    endpointId: string
    url: string
  }>
  proof: ListingProof
  listing: ListingState
}

/** Answer of `GET /providers/{id}/endpoint-activity`: The endpoints, greatest revenue first. */
export type EndpointActivity = {
  /** Paid in test money, which has no value. */
  testnet: boolean
  from: string
  to: string
  activity: EndpointActivityRow[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Part of EndpointActivity. */
export type EndpointActivityRow = {
  /** Null: sold through the facilitator. */
  endpointId: string | null
  /** Number of accepted payments, excluding voided payments. */
  payments: number
  settledPayments: number
  outstandingPayments: number
  failedPayments: number
  voidedPayments: number
  /** USDC, always 6 decimals. */
  gross_usdc: string
  /** USDC, always 6 decimals. */
  fee_usdc: string
  /** gross - fee = settled + outstanding + failed. */
  net_usdc: string
  /** The part of net that has arrived on chain. */
  settled_usdc: string
  /** The part of settled that has reached the provider's wallet. The rest waits in splitters. */
  paid_out_usdc: string
  /** USDC, always 6 decimals. */
  outstanding_usdc: string
  /** USDC, always 6 decimals. */
  failed_usdc: string
  /** USDC, always 6 decimals. */
  settled_fee_usdc: string
  /** Gross divided by the number of payments, rounded down; 0 without payments. */
  average_usdc: string
  /** Sum of the refunds that were requested in the period and have arrived. */
  refunded_usdc: string
  /** Number of payers. */
  payers: number
  /** Number of these payers whose first payment to this provider was in the period, even if it was for another endpoint. */
  newPayers: number
  /** challenged + paid + all refused. */
  calls: number
  /** Number of calls without a payment, which got a challenge. */
  challenged: number
  paid: number
  refused: Record<string, number>
  previous: EndpointFigures
}

/** Body of `PATCH /providers/{id}/endpoints/{endpointId}`. */
export type EndpointChange = {
  /**
   * The path may contain `:name` for one segment and end in `*`. If several endpoints match a request, the most specific one
   * is charged. If you send a path without an origin, the gateway serves it from the provider's upstream. For an MCP tool,
   * send `mcp://tool/<name>`.
   */
  url?: string | undefined
  /** HTTP method. Default: any. */
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | '*' | undefined
  pricing?: Pricing | undefined
  /** Wallet to be paid on. Default: the provider's wallet on `network`. */
  walletId?: string | undefined
  network?: NetworkName | undefined
  /**
   * Instead of `walletId` and `network`: the wallets that it may be paid on, one per network, the default first. Test and
   * production networks are not mixed.
   */
  walletIds?: string[] | undefined
  description?: string | undefined
  mimeType?: string | undefined
  /** Only for `mcp://tool/…`: URL of the MCP server that has this tool (streamable HTTP). Shown in the catalog. */
  serverUrl?: string | null | undefined
  /** Whether buyers can find it; default: yes. */
  listed?: boolean | undefined
  /** JSON Schema of the query for GET and DELETE, otherwise of the JSON body; null: none. `$ref` is not allowed. */
  inputSchema?: Record<string, unknown> | null | undefined
  /** An example that conforms to the schema. */
  inputExample?: Record<string, unknown> | null | undefined
  /** JSON Schema of the answer. */
  outputSchema?: Record<string, unknown> | null | undefined
  /** An answer. */
  outputExample?: Record<string, unknown> | null | undefined
  /** Whether new challenges are refused. */
  disabled?: boolean | undefined
}

/** Answer of `POST /providers/{id}/endpoints/{endpointId}/check`: The endpoint, and the findings. */
export type EndpointCheck = {
  endpoint: Endpoint
  /** In the order in which they were found. */
  findings: SellerFinding[]
}

/** The same figures for the period of equal length before `from`; null: `from` was not given. */
export type EndpointFigures = {
  /** Number of accepted payments, excluding voided payments. */
  payments: number
  settledPayments: number
  outstandingPayments: number
  failedPayments: number
  voidedPayments: number
  /** USDC, always 6 decimals. */
  gross_usdc: string
  /** USDC, always 6 decimals. */
  fee_usdc: string
  /** gross - fee = settled + outstanding + failed. */
  net_usdc: string
  /** The part of net that has arrived on chain. */
  settled_usdc: string
  /** The part of settled that has reached the provider's wallet. The rest waits in splitters. */
  paid_out_usdc: string
  /** USDC, always 6 decimals. */
  outstanding_usdc: string
  /** USDC, always 6 decimals. */
  failed_usdc: string
  /** USDC, always 6 decimals. */
  settled_fee_usdc: string
  /** Gross divided by the number of payments, rounded down; 0 without payments. */
  average_usdc: string
  /** Sum of the refunds that were requested in the period and have arrived. */
  refunded_usdc: string
  /** Number of payers. */
  payers: number
  /** Number of these payers whose first payment to this provider was in the period, even if it was for another endpoint. */
  newPayers: number
  /** challenged + paid + all refused. */
  calls: number
  /** Number of calls without a payment, which got a challenge. */
  challenged: number
  paid: number
  refused: Record<string, number>
} | null

/** Part of FeeDocuments. */
export type FeeDocument = {
  number: string
  network: NetworkName
  /** Paid in test money, which has no value. */
  testnet: boolean
  asset: string | null
  /** Number of payments and requests on tabs that arrived. */
  payments: number
  /** USDC, always 6 decimals. */
  gross_usdc: string
  /** USDC, always 6 decimals. */
  fee_usdc: string
  /** USDC, always 6 decimals. */
  net_usdc: string
  /** Fee as a fraction of the gross amount, rounded down. */
  rate: string
  endpoints: Array<{
    /** Null: sold through the facilitator. */
    endpointId: string | null
    endpoint: string
    /** Number of payments and requests on tabs that arrived. */
    payments: number
    /** USDC, always 6 decimals. */
    gross_usdc: string
    /** USDC, always 6 decimals. */
    fee_usdc: string
    /** USDC, always 6 decimals. */
    net_usdc: string
    /** Fee as a fraction of the gross amount, rounded down. */
    rate: string
  }>
}

/** Answer of `GET /providers/{id}/fee-document`: The documents. */
export type FeeDocuments = {
  month: string
  /** `preliminary`: the amounts may still grow. */
  state: 'preliminary' | 'final'
  from: string
  to: string
  issuer: {
    name: string
    address: string | null
    taxId: string | null
    url: string
  }
  recipient: {
    providerId: string
    name: string
    contact: string | null
  }
  /** One for each network on which a fee was booked. */
  documents: FeeDocument[]
}

/** Answer of `POST /providers/{id}/keys`: The key. */
export type IssuedApiKey = {
  keyId: string
  label: string
  /** `read`: it can only read, with `GET`. */
  scope: 'full' | 'read'
  createdAt: string
  /** Shown only once, because it is stored hashed. */
  apiKey: string
}

/** Whether its URL itself asks for payments to the endpoint's wallet; null: not an http URL. */
export type ListingProof = {
  status: 'unasked' | 'unproven' | 'proven'
  /** The fault that the last check found; null: none. If a server is down, its URL stays proven for three days. */
  code: 'url_refused' | 'unresolved' | 'unreachable' | 'tls_failed' | 'timeout' | 'headers_too_large' | 'not_http' | 'answers_402' | 'serves_unpaid' | 'redirects' | 'asks_for_login' | 'blocked' | 'forbidden' | 'not_found' | 'method_not_allowed' | 'checks_input_first' | 'rate_limited' | 'server_error' | 'unexpected_status' | 'challenge_readable' | 'no_challenge' | 'header_unreadable' | 'no_header' | 'challenge_invalid' | 'body_cut' | 'offer_usable' | 'no_usable_offer' | 'unknown_network' | 'other_scheme' | 'not_usdc' | 'invalid_amount' | 'invalid_pay_to' | 'invalid_timeout' | 'wrong_domain' | 'pays_others' | 'price_differs' | 'resource_elsewhere' | 'resource_differs' | 'resource_invalid' | 'described' | 'not_described' | 'description_invalid' | 'no_description' | 'description_too_long' | 'service_fields_dropped' | 'no_output' | 'browsers_can_pay' | 'no_cors' | 'headers_not_exposed' | 'preflight_fails' | 'head_differs' | 'served_here' | 'tool' | 'unreadable' | null
  /** The finding as a sentence. */
  finding: string | null
  /** How to correct it. */
  advice: string | null
  /** The price in its own 402, which the catalog shows; null: unknown. */
  asked_usdc: string | null
  checkedAt: string | null
  /** Time of the next check; if the endpoint changes, the check comes earlier. */
  nextCheckAt: string
} | null

/** Whether the catalog lists it. */
export type ListingState = {
  status: 'listed' | 'not_listed'
  /** Why the endpoint is not listed, and what to do. */
  reasons: Array<{
    code: 'catalog_off' | 'provider_suspended' | 'provider_disabled' | 'provider_unlisted' | 'endpoint_disabled' | 'endpoint_unlisted' | 'not_yet' | 'no_room'
    message: string
    advice: string
  }>
}

/** Answer of `GET /networks`: The networks. */
export type NetworkList = {
  sales: Sales
  networks: Array<{
    network: NetworkName
    chainId: number
    /** Paid in test money, which has no value. */
    testnet: boolean
    /** Address of USDC; null: this gateway knows no USDC on this network. */
    asset: string | null
    /** The token's EIP-712 domain, for comparison: buyers should know it and not trust any server for it. */
    eip712: {
      name: string
      version: string
    }
    confirmations: number
    blockTimeMs: number
    explorerUrl: string | null
    /** `served`: payments are accepted and settled on it. `later`: it is announced, but can not be used for payments yet. */
    status: 'served' | 'later'
  }>
}

/** Body of `PUT /providers/{id}/hook`. */
export type NewAcceptHook = {
  /** Public https URL. Redirects are not followed. */
  url: string
  /**
   * Request headers that are passed to the hook, for endpoints that the gateway’s proxy sells. Default: unchanged, initially
   * none.
   */
  headers?: string[] | undefined
  /** How payments are treated if the hook gives no decision. `refuse`: the buyer gets 503 and isn’t charged. */
  onFailure?: 'refuse' | 'accept' | undefined
}

/** Body of `POST /providers/{id}/keys`. */
export type NewApiKey = {
  label?: string | undefined
  /** `read`: it can only read, with `GET`. */
  scope?: 'full' | 'read' | undefined
}

/** Body of `POST /providers/{id}/endpoints`. */
export type NewEndpoint = {
  /**
   * The path may contain `:name` for one segment and end in `*`. If several endpoints match a request, the most specific one
   * is charged. If you send a path without an origin, the gateway serves it from the provider's upstream. For an MCP tool,
   * send `mcp://tool/<name>`.
   */
  url: string
  /** HTTP method. Default: any. */
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | '*' | undefined
  pricing: Pricing
  /** Wallet to be paid on. Default: the provider's wallet on `network`. */
  walletId?: string | undefined
  network?: NetworkName | undefined
  /**
   * Instead of `walletId` and `network`: the wallets that it may be paid on, one per network, the default first. Test and
   * production networks are not mixed.
   */
  walletIds?: string[] | undefined
  description?: string | undefined
  mimeType?: string | undefined
  /** Only for `mcp://tool/…`: URL of the MCP server that has this tool (streamable HTTP). Shown in the catalog. */
  serverUrl?: string | null | undefined
  /** Whether buyers can find it; default: yes. */
  listed?: boolean | undefined
  /** JSON Schema of the query for GET and DELETE, otherwise of the JSON body; null: none. `$ref` is not allowed. */
  inputSchema?: Record<string, unknown> | null | undefined
  /** An example that conforms to the schema. */
  inputExample?: Record<string, unknown> | null | undefined
  /** JSON Schema of the answer. */
  outputSchema?: Record<string, unknown> | null | undefined
  /** An answer. */
  outputExample?: Record<string, unknown> | null | undefined
}

/** Body of `POST /providers`. */
export type NewProvider = {
  name: string
  contact?: string | undefined
  /** Whether /verify for this provider's endpoints requires its API key. */
  requiresKey?: boolean | undefined
  /**
   * Whether it verifies with its own middleware instead of ours. Its payments then count for triggers only once they are
   * TRIGGER_MIN_AGE_SECONDS old, so that it can void payments whose answer it did not receive.
   */
  ownMiddleware?: boolean | undefined
}

/** Body of `PUT /providers/{id}/upstream`. */
export type NewUpstream = {
  /** Public https URL; its path is prepended to that of a request. Redirects are not followed. */
  url: string
  /** Whether a 402 has a body that x402 v1 clients can pay. Default: unchanged, initially false. */
  acceptX402V1?: boolean | undefined
  /**
   * Whether callers log in to the server: `Authorization: Basic` is passed on (`Bearer` always is), `WWW-Authenticate` is
   * returned, and an answer of 401 or 403 voids the payment. Default: unchanged, initially false.
   */
  forwardAuthorization?: boolean | undefined
}

/** Body of `POST /providers/{id}/wallets`. */
export type NewWallet = {
  network: NetworkName
  address: string
}

/** Body of `POST /providers/{id}/webhooks`. */
export type NewWebhook = {
  /** A public https URL. */
  url: string
  /** Events to receive. Default: all. */
  events?: Array<'payment.settled' | 'payment.reverted' | 'tab.closed' | 'tab.settled' | 'tab.reverted' | 'batch.confirmed' | 'settlement.failing' | 'settlement.failed' | 'refund.settled' | 'refund.reverted' | 'refund.failing' | 'refund.failed'> | undefined
  description?: string | undefined
}

/** The pass that this payment bought; null: none. */
export type Pass = {
  paymentId: string
  endpointId: string
  payer: string
  boundTo: 'payer' | 'bearer'
  /** Only `valid` opens the endpoint. `ended`: ended early, see `endReason`. */
  pass_state: 'valid' | 'ended' | 'used_up' | 'expired'
  startsAt: string
  endsAt: string
  /** Number of requests bought; null: any number. */
  requests: number | null
  /** Number of requests used; 0 if they are not counted. */
  used: number
  /** Last use of a pass whose requests are counted. */
  lastUsedAt: string | null
  /**
   * refunded: at least the provider’s part is refunded. voided: its payment was voided. unpaid: its payment, or an attempt to
   * settle its payment, failed; once the payment settles, the pass is valid again.
   */
  endReason: 'refunded' | 'voided' | 'unpaid' | null
  endedAt: string | null
} | null

/** Answer of `GET /providers/{id}/passes`: The passes. */
export type Passes = {
  passes: Pass[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
}

/** Part of Payers. */
export type Payer = {
  payer: string
  network: NetworkName
  /** Number of accepted payments, excluding voided payments. */
  payments: number
  settledPayments: number
  outstandingPayments: number
  failedPayments: number
  voidedPayments: number
  /** USDC, always 6 decimals. */
  gross_usdc: string
  /** USDC, always 6 decimals. */
  fee_usdc: string
  /** gross - fee = settled + outstanding + failed. */
  net_usdc: string
  /** The part of net that has arrived on chain. */
  settled_usdc: string
  /** USDC, always 6 decimals. */
  outstanding_usdc: string
  /** USDC, always 6 decimals. */
  failed_usdc: string
  /** USDC, always 6 decimals. */
  settled_fee_usdc: string
  /** Number of outstanding payments that are retried after a failure. */
  retryingPayments: number
  /** Gross divided by the number of payments, rounded down; 0 without payments. */
  average_usdc: string
  /** Sum of the refunds that were requested in the period and have arrived. */
  refunded_usdc: string
  /**
   * The payer’s current debt to this provider, not only for the period: the part of net that did not arrive because of the
   * payer.
   */
  owed_usdc: string
  /** First payment ever, not only within the period. */
  firstPaymentAt: string
  /** Last payment within the period. */
  lastPaymentAt: string
  /** Whether the first payment ever was within the period; null: the list covers all time. */
  isNew: boolean | null
}

/** Answer of `GET /providers/{id}/payer-activity`: The counts, newest first; an interval without payments has no row. */
export type PayerActivity = {
  interval: 'day' | 'month' | 'total'
  /** Paid in test money, which has no value. */
  testnet: boolean
  from: string
  to: string
  activity: Array<{
    /** Start of the interval, UTC; null with `total`. */
    startsAt: string | null
    /** Number of payers within the interval. */
    payers: number
    /** Number of these payers that had never paid this provider before. */
    newPayers: number
    returningPayers: number
  }>
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Answer of `GET /providers/{id}/payers/{payer}`: The payer. */
export type PayerDetail = {
  payer: string
  /** Paid in test money, which has no value. */
  testnet: boolean
  /** Networks on which it paid in the period. */
  networks: NetworkName[]
  /** Null: all time. */
  from: string | null
  to: string | null
  /** Number of accepted payments, excluding voided payments. */
  payments: number
  settledPayments: number
  outstandingPayments: number
  failedPayments: number
  voidedPayments: number
  /** USDC, always 6 decimals. */
  gross_usdc: string
  /** USDC, always 6 decimals. */
  fee_usdc: string
  /** gross - fee = settled + outstanding + failed. */
  net_usdc: string
  /** The part of net that has arrived on chain. */
  settled_usdc: string
  /** USDC, always 6 decimals. */
  outstanding_usdc: string
  /** USDC, always 6 decimals. */
  failed_usdc: string
  /** USDC, always 6 decimals. */
  settled_fee_usdc: string
  /** Number of outstanding payments that are retried after a failure. */
  retryingPayments: number
  /** Gross divided by the number of payments, rounded down; 0 without payments. */
  average_usdc: string
  /** Sum of the refunds that were requested in the period and have arrived. */
  refunded_usdc: string
  /**
   * The payer’s current debt to this provider, not only for the period: the part of net that did not arrive because of the
   * payer.
   */
  owed_usdc: string
  /** First payment ever, not only within the period. */
  firstPaymentAt: string
  /** Last payment within the period; null: none. */
  lastPaymentAt: string | null
  /** Whether the first payment ever was within the period; null: the list covers all time. */
  isNew: boolean | null
  /** Purchases of the payer by endpoint, greatest first. */
  endpoints: Array<{
    /** Null: sold through the facilitator. */
    endpointId: string | null
    /** Number of accepted payments, excluding voided payments. */
    payments: number
    settledPayments: number
    outstandingPayments: number
    failedPayments: number
    voidedPayments: number
    /** USDC, always 6 decimals. */
    gross_usdc: string
    /** USDC, always 6 decimals. */
    fee_usdc: string
    /** gross - fee = settled + outstanding + failed. */
    net_usdc: string
    /** The part of net that has arrived on chain. */
    settled_usdc: string
    /** The part of settled that has reached the provider's wallet. The rest waits in splitters. */
    paid_out_usdc: string
    /** USDC, always 6 decimals. */
    outstanding_usdc: string
    /** USDC, always 6 decimals. */
    failed_usdc: string
    /** USDC, always 6 decimals. */
    settled_fee_usdc: string
    /** Gross divided by the number of payments, rounded down; 0 without payments. */
    average_usdc: string
  }>
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Answer of `GET /providers/{id}/payers`: The payers, greatest first. */
export type Payers = {
  /** Paid in test money, which has no value. */
  testnet: boolean
  /** Null: all time. */
  from: string | null
  to: string | null
  payers: Payer[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Answer of `GET /payments/{paymentId}`: The payment. */
export type Payment = {
  paymentId: string
  requestId: string | null
  payment_status: 'verified' | 'settling' | 'settled' | 'partially_settled' | 'retrying' | 'failed' | 'voided'
  source: 'gateway' | 'facilitator' | 'submission' | 'tab'
  tab: TabOfPayment
  providerId: string | null
  endpointId: string | null
  network: NetworkName
  /** Paid in test money, which has no value. */
  testnet: boolean
  asset: string
  payer: string
  resource: string
  /** USDC base units: 1000000 = 1 USDC. */
  totalUsdc: string
  /** USDC base units: 1000000 = 1 USDC. */
  providerUsdc: string
  /** USDC base units: 1000000 = 1 USDC. */
  platformUsdc: string
  tier: string
  effectiveRate: string
  acceptedAt: string
  validBefore: number
  provider: PaymentHalf
  platform: PaymentHalf | null
  splitter: string | null
  /** Transaction of the sweep in which `splitter` paid out both parts; null: not yet. */
  paidOut: {
    at: string
    transactionHash: string
    blockNumber: number
    /** False: the platform's wallet couldn't be paid, so its part waits in a separate splitter. */
    platformPaid: boolean
  } | null
  attempts: number
  nextAttemptAt: string | null
  /**
   * Why it waits for gas: gas is too expensive for all payments (gas_price), for the payment’s fee (gas_cost), for the
   * operator’s budget beyond fees (gas_budget), or for the allowance of payments without a fee (gas_allowance). Null: it does
   * not wait for gas.
   */
  held_by: 'gas_price' | 'gas_cost' | 'gas_budget' | 'gas_allowance' | null
  failureCode: string | null
  voidedAt: string | null
  refunds: Refund[]
  pass: Pass
  /** Where the request was traced; shown only with the provider's or the operator's key. */
  trace: {
    id: string
    url: string | null
  } | null
  /** Newest block that was read from the chain; null: none yet. */
  indexedBlock: number | null
}

/** Part of Payment. */
export type PaymentHalf = {
  state: 'open' | 'settled' | 'cancelled' | 'foreign_use'
  to: string
  /** USDC base units: 1000000 = 1 USDC. */
  value: string
  nonce: string
  transactionHash: string | null
  logIndex: number | null
  blockNumber: number | null
}

/** A reorg reverted a settled payment; it will be settled again. */
export type PaymentRevertedEvent = {
  type: 'payment.reverted'
  /** When it happened. */
  timestamp: string
  data: {
    paymentId: string
    txHash: string
    network: NetworkName
  }
}

/** A payment, including its fee, is settled on chain. */
export type PaymentSettledEvent = {
  type: 'payment.settled'
  /** When it happened. */
  timestamp: string
  data: {
    paymentId: string
    txHash: string
    network: NetworkName
    blockNumber: number
    /** Time of the block. */
    settledAt: string
    /** USDC base units: 1000000 = 1 USDC. */
    providerUsdc: string
    /** USDC base units: 1000000 = 1 USDC. */
    platformUsdc: string
    /** The transaction that settled the fee; null if the fee has no separate authorization. */
    platformTxHash: string | null
  }
}

/** Answer of `GET /providers/{id}/payments/{paymentId}/timeline`: The timeline. */
export type PaymentTimeline = {
  paymentId: string
  network: NetworkName
  challengedAt: string
  acceptedAt: string
  publishedAt: string | null
  voidedAt: string | null
  failedAt: string | null
  /** Each batch of this gateway that claimed the payment, oldest first. */
  batches: Array<{
    trigger: 'amount' | 'count' | 'time' | 'high_value' | 'expiry' | 'submission'
    claimedAt: string
    closedAt: string | null
    /** Why it was closed; null while it is open. */
    result: 'settled' | 'nothing_left' | 'released' | 'reverted' | 'lost' | null
    transactions: Array<{
      hash: string
      kind: 'settle' | 'replacement' | 'cancellation'
      signedAt: string
      broadcastAt: string | null
      blockNumber: number | null
    }>
  }>
  failures: Array<{
    attempt: number
    code: string
    detail: string
    failedAt: string
    nextAttemptAt: string | null
  }>
  /** The provider's half, as the recorded chain shows it now. */
  mined: {
    at: string
    transactionHash: string
    blockNumber: number
  } | null
  /** When its splitter paid it out; null: not yet, or it pays no splitter. */
  paidOut: {
    at: string
    transactionHash: string
    blockNumber: number
  } | null
  refunds: Refund[]
  confirmedAt: string | null
  /** Number of blocks on top of it so far, at most the number required. */
  confirmations: number
  confirmationsRequired: number
  /** Newest block that was read from the chain; null: none yet. */
  indexedBlock: number | null
}

/** Answer of `GET /providers/{id}/payments/totals`: The sums. */
export type PaymentTotals = {
  /** Test money and real money are summed separately; a kind without payments is left out. */
  totals: Array<{
    /** Paid in test money, which has no value. */
    testnet: boolean
    /** Number of payments, excluding voided payments. Each request on a tab counts as one. */
    payments: number
    voidedPayments: number
    /** Amount that buyers signed, without voided payments. */
    gross_usdc: string
    /** USDC, always 6 decimals. */
    fee_usdc: string
    /** The provider's part: gross = fee + net. */
    net_usdc: string
    /** The part of net that has arrived. */
    settled_usdc: string
    /** Refunds of these payments that have arrived. */
    refunded_usdc: string
  }>
  /**
   * Null: the sums contain all payments. Otherwise there are too many payments, and the sums contain only those accepted at
   * this time or later: choose a shorter period.
   */
  since: string | null
  /** False: `refunded_usdc` covers only the 1,000 refunds that were requested last. */
  isRefundedComplete: boolean
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Part of NewEndpoint. */
export type Pricing = {
  /** USDC, at most 6 decimals. */
  usdcPerUnit: string
}

/** Answer of `GET /providers/{id}`: The provider. */
export type Provider = {
  providerId: string
  name: string
  contact: string | null
  /** When the contact was confirmed; null: not yet, so no mail is sent to it. */
  contactConfirmedAt: string | null
  requiresKey: boolean
  /**
   * Whether it verifies with its own middleware instead of ours. Its payments then count for triggers only once they are
   * TRIGGER_MIN_AGE_SECONDS old, so that it can void payments whose answer it did not receive.
   */
  ownMiddleware: boolean
  /** Whether its endpoints are listed for buyers. */
  listed: boolean
  /** Name in catalogs. */
  serviceName: string | null
  tags: string[]
  iconUrl: string | null
  /** Signatures of its wallets, for x402scan. */
  ownershipProofs: Array<{
    origin: string
    address: string
    signature: string
  }>
  /** Increases with each change; `ETag` and `If-Match` contain it. */
  version: number
  createdAt: string
  /** Since when it gets no new challenges; null: it is enabled. */
  disabledAt: string | null
}

/** Part of ProviderBatches. */
export type ProviderBatch = SettlementBatch & {
  /** Number of payments to the provider, over all its wallets. */
  payment_count?: number
  /** Gas cost of the whole transaction, which the platform pays. */
  gas_cost_usdc?: string
  network: NetworkName
  /** Number of all payments in the batch. */
  batch_payment_count: number
  /** Gas of the whole transaction. */
  gas_used: string
}

/** Answer of `GET /providers/{id}/batches`: The batches. */
export type ProviderBatches = {
  batches: ProviderBatch[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Body of `PATCH /providers/{id}`. */
export type ProviderChange = {
  name?: string | undefined
  contact?: string | null | undefined
  requiresKey?: boolean | undefined
  /**
   * Whether it verifies with its own middleware instead of ours. Its payments then count for triggers only once they are
   * TRIGGER_MIN_AGE_SECONDS old, so that it can void payments whose answer it did not receive.
   */
  ownMiddleware?: boolean | undefined
  /** Whether its endpoints are listed for buyers. */
  listed?: boolean | undefined
  /** Name in catalogs. */
  serviceName?: string | null | undefined
  tags?: string[] | undefined
  iconUrl?: string | null | undefined
  /** Signatures of origins, such as `https://weather.example`, by wallets of the provider (EIP-191). */
  ownershipProofs?: Array<{
    origin: string
    signature: string
  }> | undefined
  /** Whether new challenges are refused. */
  disabled?: boolean | undefined
}

/** Part of SettlementFailure. */
export type ProviderPayment = {
  paymentId: string
  requestId: string | null
  payment_status: 'verified' | 'settling' | 'settled' | 'partially_settled' | 'retrying' | 'failed' | 'voided'
  source: 'gateway' | 'facilitator' | 'submission' | 'tab'
  /**
   * Sales on a tab: a row per endpoint and hour, with its requests and amounts. Its status is the status of the whole tab’s
   * payment.
   */
  tab: {
    tabId: string
    /** Sequence number of this sale among the sales on the tab. */
    sale: number
    requests: number
  } | null
  endpointId: string | null
  network: NetworkName
  /** Paid in test money, which has no value. */
  testnet: boolean
  payer: string
  payTo: string
  /** USDC base units: 1000000 = 1 USDC. */
  totalUsdc: string
  /** USDC base units: 1000000 = 1 USDC. */
  providerUsdc: string
  /** USDC base units: 1000000 = 1 USDC. */
  platformUsdc: string
  /** The part of `providerUsdc` that has arrived: less than all if an older state of a tab settled. */
  settledUsdc: string
  tier: string
  resource: string
  acceptedAt: string
  settledAt: string | null
  transactionHash: string | null
  platformTransactionHash: string | null
  /** Splitter that receives both parts by one authorization; null: each part has a separate authorization. */
  splitter: string | null
  /** When its splitter paid it out; null: not yet, or it pays no splitter. */
  paidOutAt: string | null
  payoutTransactionHash: string | null
  attempts: number
  nextAttemptAt: string | null
  failureCode: string | null
  failedAt: string | null
  voidedAt: string | null
  /** Total of its refunds that have arrived. */
  refundedUsdc: string
}

/** Answer of `GET /providers/{id}/payments`: The payments. */
export type ProviderPayments = {
  payments: ProviderPayment[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Answer of `GET /providers/{id}/queue`: The queues. */
export type ProviderQueue = {
  wallets: WalletQueue[]
  /** The gateway's clock, for countdowns. */
  asOf: string
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Part of ProviderTabs. */
export type ProviderTab = {
  tabId: string
  /** Id of the payment as which the tab settles. */
  paymentId: string
  network: NetworkName
  payer: string
  /**
   * `closing`: no more can be bought on it, and the ledger imports it within seconds. `closed`: its payment is queued or
   * final.
   */
  state: 'open' | 'closing' | 'closed'
  payment_status: 'verified' | 'settling' | 'settled' | 'partially_settled' | 'retrying' | 'failed' | 'voided'
  openedAt: string
  /** Time of the latest request to this provider. */
  lastRequestAt: string
  /** When the tab closes if there are no further purchases; for a closed tab, when it was closed. */
  closesAt: string
  /**
   * Why it closes then. `idle`: nothing was bought for a while. `old`: it reached the maximum age. `expiring`: its signature
   * expires (until its signature expires, a tab that is too small to settle stays open). `amount`, `count`, `credit`: a limit
   * is reached. `buyer`: its buyer closed it.
   */
  closeReason: string
  /** Number of charged requests to this provider's endpoints. */
  requests: number
  /** Sum of the charges for this provider's requests, fee included. */
  amount_usdc: string
  /** The provider's part of `amount_usdc`. */
  net_usdc: string
  /**
   * Amount that the newest state covers for this provider, fee included: at least `amount_usdc` minus what the buyer's credit
   * paid.
   */
  signed_usdc: string
  /** This provider's sales by endpoint. */
  lines: Array<{
    endpointId: string
    /** Number of charged requests. */
    requests: number
    /** USDC, always 6 decimals. */
    amount_usdc: string
    /** The provider's part of `amount_usdc`. */
    net_usdc: string
    lastRequestAt: string
  }>
}

/** Answer of `GET /providers/{id}/tabs`: The tabs. */
export type ProviderTabs = {
  tabs: ProviderTab[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Answer of `POST /providers`. */
export type ProviderWithKey = Provider & {
  keyId: string
  /** Shown only once, because it is stored hashed. */
  apiKey: string
}

/** Answer of `GET /receipts/{id}`: The receipt. */
export type Receipt = {
  paymentId: string
  receipt: string
}

/** Answer of `POST /providers/{id}/payments/{paymentId}/refunds`: The refund. */
export type Refund = {
  /** Number among the payment's refunds, starting at 1. */
  number: number
  refund_status: 'verified' | 'settling' | 'settled' | 'retrying' | 'failed'
  from: string
  to: string
  /** USDC base units: 1000000 = 1 USDC. */
  valueUsdc: string
  nonce: string
  validBefore: number
  acceptedAt: string
  settledAt: string | null
  transactionHash: string | null
  blockNumber: number | null
  attempts: number
  nextAttemptAt: string | null
  failureCode: string | null
}

/** A refund has failed and will not be retried. */
export type RefundFailedEvent = {
  type: 'refund.failed'
  /** When it happened. */
  timestamp: string
  data: {
    /** The payment that is refunded. */
    paymentId: string
    /** Number of the refund among the payment's refunds. */
    number: number
    /** Always null, because the event is not on chain. */
    txHash: null
    /** A stable error code. */
    code: string
    attempts: number
    /** Null: no further attempt. */
    nextAttemptAt: string | null
  }
}

/** The third attempt to settle a refund has failed. */
export type RefundFailingEvent = {
  type: 'refund.failing'
  /** When it happened. */
  timestamp: string
  data: {
    /** The payment that is refunded. */
    paymentId: string
    /** Number of the refund among the payment's refunds. */
    number: number
    /** Always null, because the event is not on chain. */
    txHash: null
    /** A stable error code. */
    code: string
    attempts: number
    /** Null: no further attempt. */
    nextAttemptAt: string | null
  }
}

/** A reorg reverted a settled refund; it will be settled again. */
export type RefundRevertedEvent = {
  type: 'refund.reverted'
  /** When it happened. */
  timestamp: string
  data: {
    /** The payment that is refunded. */
    paymentId: string
    /** Number of the refund among the payment's refunds. */
    number: number
    txHash: string
    network: NetworkName
  }
}

/** A refund is settled on chain. */
export type RefundSettledEvent = {
  type: 'refund.settled'
  /** When it happened. */
  timestamp: string
  data: {
    /** The payment that is refunded. */
    paymentId: string
    /** Number of the refund among the payment's refunds. */
    number: number
    txHash: string
    network: NetworkName
    blockNumber: number
    /** Time of the block. */
    settledAt: string
    /** USDC base units: 1000000 = 1 USDC. */
    valueUsdc: string
  }
}

/** Answer of `GET /providers/{id}/payments/{paymentId}/refunds`: The refunds. */
export type Refunds = {
  paymentId: string
  network: NetworkName
  asset: string
  /** The wallet that a refund pays. */
  payer: string
  /** USDC base units: 1000000 = 1 USDC. */
  paidUsdc: string
  /** The paid amount minus refunds that have moved or can still move. A failed refund counts until it has expired. */
  refundableUsdc: string
  /** Minimum amount of a partial refund; a refund of everything that was paid may be smaller. */
  minimumUsdc: string
  /** Nonce with which the next refund is signed; null after 3 refunds. */
  next: {
    number: number
    nonce: string
  } | null
  /** The operator’s remaining allowance today for the gas of refunds. A refund that needs more is refused. */
  gas: {
    /** Amount that the next refund would reserve now; null if the network's nodes don't answer. */
    neededUsdc: string | null
    /** USDC base units: 1000000 = 1 USDC. */
    leftUsdc: string
    /** Limit for all refunds of the provider on a UTC day. */
    limitUsdc: string
    /** True if the limit is the provider's own grant; false if it is the provider's share of the pool for refunds. */
    hasGrant: boolean
    resetsAt: string
  }
  refunds: Refund[]
  /** Newest block that was read from the chain; null: none yet. */
  indexedBlock: number | null
}

/** Answer of `POST /providers/{id}/endpoints`: The endpoint. */
export type RegisteredEndpoint = Endpoint & {
  /** What to do if the price's fee doesn't pay for the gas of a payment that settles alone. */
  advice: string | null
}

/** Part of ProviderChangesAnswer. */
export type RegistryChange = {
  changedAt: string
  /** An API key's id, or `operator`. */
  by: string
  /** Id of the provider, wallet, endpoint or key. */
  subject: string
  /** Previous values of the changed fields; null: the subject is new. */
  before: Record<string, unknown> | null
  after: Record<string, unknown>
}

/** Answer of `PATCH /providers/{id}/wallets/{walletId}`: The wallet that replaces it. */
export type ReplacedWallet = Wallet & {
  replaces: string
  /** The endpoints that are paid to it from now on. */
  endpoints: string[]
}

/** Body of `POST /providers/{id}/payments/requeue`. */
export type RequeueMany = {
  paymentIds?: string[] | undefined
  /** Selects failed payments with the filters of `payments`, newest first. `{}` selects all. */
  filter?: {
    endpointId?: string | undefined
    network?: NetworkName | undefined
    payer?: string | undefined
    from?: string | undefined
    to?: string | undefined
    min_usdc?: string | undefined
    max_usdc?: string | undefined
    testnet?: boolean | undefined
  } | undefined
  limit?: number | undefined
  cursor?: string | undefined
}

/** Answer of `POST /providers/{id}/payments/requeue`: The result for each payment. */
export type RequeuedMany = {
  results: Array<{
    paymentId: string
    requeued: boolean
    /** Why the payment was not queued again; null: it was queued again. */
    code: string | null
    detail: string | null
  }>
  /** Cursor for the next payments of the same filter; null: there are none. */
  cursor: string | null
}

/** Answer of `GET /providers/{id}/revenue`: The sums, newest first. */
export type Revenue = {
  interval: 'hour' | 'day' | 'month' | 'total'
  /** Paid in test money, which has no value. */
  testnet: boolean
  from: string
  to: string
  revenue: RevenueRow[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Part of Revenue. */
export type RevenueRow = {
  /** Start of the interval, UTC; null with `total`. */
  startsAt: string | null
  endpointId?: string
  network?: NetworkName
  wallet?: string
  /** Number of accepted payments, excluding voided payments. */
  payments: number
  settledPayments: number
  outstandingPayments: number
  failedPayments: number
  voidedPayments: number
  /** USDC, always 6 decimals. */
  gross_usdc: string
  /** USDC, always 6 decimals. */
  fee_usdc: string
  /** gross - fee = settled + outstanding + failed. */
  net_usdc: string
  /** The part of net that has arrived on chain. */
  settled_usdc: string
  /** The part of settled that has reached the provider's wallet. The rest waits in splitters. */
  paid_out_usdc: string
  /** USDC, always 6 decimals. */
  outstanding_usdc: string
  /** USDC, always 6 decimals. */
  failed_usdc: string
  /** USDC, always 6 decimals. */
  settled_fee_usdc: string
}

/** Answer of `GET /discovery/providers/{id}`: The documents. */
export type Sales = {
  /** Whether new payments are refused (503 `sales_stopped`). Accepted payments still settle. */
  stopped: boolean
  reason: string | null
  stoppedAt: string | null
}

/** Part of SellerValidation. */
export type SellerFinding = {
  code: 'url_refused' | 'unresolved' | 'unreachable' | 'tls_failed' | 'timeout' | 'headers_too_large' | 'not_http' | 'answers_402' | 'serves_unpaid' | 'redirects' | 'asks_for_login' | 'blocked' | 'forbidden' | 'not_found' | 'method_not_allowed' | 'checks_input_first' | 'rate_limited' | 'server_error' | 'unexpected_status' | 'challenge_readable' | 'no_challenge' | 'header_unreadable' | 'no_header' | 'challenge_invalid' | 'body_cut' | 'offer_usable' | 'no_usable_offer' | 'unknown_network' | 'other_scheme' | 'not_usdc' | 'invalid_amount' | 'invalid_pay_to' | 'invalid_timeout' | 'wrong_domain' | 'pays_others' | 'price_differs' | 'resource_elsewhere' | 'resource_differs' | 'resource_invalid' | 'described' | 'not_described' | 'description_invalid' | 'no_description' | 'description_too_long' | 'service_fields_dropped' | 'no_output' | 'browsers_can_pay' | 'no_cors' | 'headers_not_exposed' | 'preflight_fails' | 'head_differs' | 'served_here' | 'tool' | 'unreadable'
  /** `error`: not listed, or listed last; `warning`: listed, but some clients cannot find or buy it. */
  severity: 'error' | 'warning' | 'ok'
  message: string
  /** How to correct it. */
  advice: string | null
}

/** Body of `POST /discovery/validate`. */
export type SellerQuestion = {
  url: string
  /** Method of the endpoint. Default: GET. */
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | undefined
}

/** Answer of `POST /discovery/validate`: The findings. */
export type SellerValidation = {
  url: string
  method: string
  /** The method that we sent. */
  sent: 'GET' | 'POST'
  /** Null if there was no answer. */
  httpStatus: number | null
  /** Whether none of the findings is an `error`. */
  isListable: boolean
  /** Whether it is listable and also declares the extension `bazaar`, which x402 catalogs require. */
  isListableByX402: boolean
  findings: SellerFinding[]
  offers: Array<{
    network: NetworkName
    scheme: 'exact' | 'tab'
    /** Source of the terms: our body, the header of x402 v2, or the body of x402 v1. */
    form: 'tollkeeper' | 'x402-v2' | 'x402-v1'
    /** USDC, always 6 decimals. */
    price_usdc: string
    payTo: string
    /** The wallet that finally receives the money. */
    seller: string
  }>
  /** The listings of the URL in this gateway's catalog. */
  listings: Array<{
    /** Whether the resource was registered here, or a payment through the facilitator declared it. */
    kind: 'endpoint' | 'declared'
    endpointId: string | null
    resource: string
    /** Whether the endpoint belongs to the caller. Without the owner's key, endpoints that are not listed are not shown. */
    isOwn: boolean
    status: 'listed' | 'not_listed'
    /** Why the endpoint is not listed, and what to do. */
    reasons: Array<{
      code: 'catalog_off' | 'provider_suspended' | 'provider_disabled' | 'provider_unlisted' | 'endpoint_disabled' | 'endpoint_unlisted' | 'not_yet' | 'no_room'
      message: string
      advice: string
    }>
    /** USDC, always 6 decimals. */
    price_usdc: string | null
    proof: ListingProof
    /** Number of payments that settled in 30 days. */
    l30DaysTotalCalls: number
    /** Hour of the newest settled payment. */
    lastCalledAt: string | null
  }>
}

/** Part of SettlementBatches. */
export type SettlementBatch = {
  batch_id: number
  payment_count: number
  /** USDC, always 6 decimals. */
  total_usdc: string
  /** USDC, always 6 decimals. */
  gas_cost_usdc: string
  tx_hash: string
  trigger_type: string
  created_at: string
  confirmed_at: string | null
}

/** Answer of `GET /settlements/batches`: The batches. */
export type SettlementBatches = {
  batches: SettlementBatch[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
  network: NetworkName
  indexedBlock: number
}

/** A payment has failed and will not be retried. */
export type SettlementFailedEvent = {
  type: 'settlement.failed'
  /** When it happened. */
  timestamp: string
  data: {
    paymentId: string
    /** Always null, because the event is not on chain. */
    txHash: null
    /** A stable error code. */
    code: string
    attempts: number
    /** Null: no further attempt. */
    nextAttemptAt: string | null
    tabId?: string
    closeReason?: string
    requests?: number
    /** USDC base units: 1000000 = 1 USDC. */
    providerUsdc?: string
    /** USDC base units: 1000000 = 1 USDC. */
    platformUsdc?: string
    /** The part of the provider's amount that has arrived. */
    settledUsdc?: string
    lines?: TabEventLine[]
  }
}

/** The third attempt to settle a payment has failed. */
export type SettlementFailingEvent = {
  type: 'settlement.failing'
  /** When it happened. */
  timestamp: string
  data: {
    paymentId: string
    /** Always null, because the event is not on chain. */
    txHash: null
    /** A stable error code. */
    code: string
    attempts: number
    /** Null: no further attempt. */
    nextAttemptAt: string | null
    tabId?: string
    closeReason?: string
    requests?: number
    /** USDC base units: 1000000 = 1 USDC. */
    providerUsdc?: string
    /** USDC base units: 1000000 = 1 USDC. */
    platformUsdc?: string
    /** The part of the provider's amount that has arrived. */
    settledUsdc?: string
    lines?: TabEventLine[]
  }
}

/** Part of SettlementFailures. */
export type SettlementFailure = ProviderPayment & {
  failures: Array<{
    attempt: number
    code: string
    detail: string
    failedAt: string
    nextAttemptAt: string | null
  }>
}

/** Answer of `GET /providers/{id}/failures`: The failures, newest first. */
export type SettlementFailures = {
  failures: SettlementFailure[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Answer of `GET /settlements/status`: The queue. */
export type SettlementStatus = {
  wallet_address: string
  /** USDC, always 6 decimals. */
  accumulated_usdc: string
  payment_count: number
  first_payment_at: string | null
  age_seconds: number
  estimated_settlement: string | null
  /**
   * Why the oldest payment waits beyond the estimate: gas is too expensive for all payments (gas_price), for the payment’s fee
   * (gas_cost), for the operator’s budget beyond fees (gas_budget), or for the allowance of payments without a fee
   * (gas_allowance). Null: it does not wait for gas.
   */
  held_by: 'gas_price' | 'gas_cost' | 'gas_budget' | 'gas_allowance' | null
  network: NetworkName
  /** Newest block that was read from the chain; null: none yet. */
  indexedBlock: number | null
}

/** Part of SplitterBalances. */
export type SplitterBalance = {
  splitter: string
  network: NetworkName
  /** Wallet that receives the provider’s part. */
  wallet: string
  /** Number of the provider's payments that wait in the splitter. */
  payments: number
  /** The provider's part of these payments. */
  waiting_usdc: string
  /** Whether more than 1,000 payments wait. If so, only the newest 1,000 are counted. */
  isAtLeast: boolean
  /** When the oldest of these payments arrived. */
  since: string | null
  /**
   * Time from which the next batch pays the splitter out even if it holds few payments; null if it holds none, or if the next
   * batch pays it out anyway.
   */
  paidOutAfter: string | null
  /** Number of payouts that failed in a row, which delays the next attempt. */
  failedSweeps: number
  lastPayout: {
    at: string
    transactionHash: string
  } | null
}

/** Answer of `GET /providers/{id}/splitters`: The splitters. */
export type SplitterBalances = {
  splitters: SplitterBalance[]
  sweep: {
    /** A splitter is paid out by the next batch once it holds this many payments. */
    payments: number
    /** A splitter is also paid out once its oldest payment has waited this many seconds. */
    seconds: number
  }
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Answer of `GET /providers/{id}/statement`: The statement. */
export type Statement = {
  month: string
  from: string
  to: string
  /** One row per network; networks are not added up. */
  networks: StatementRow[]
  /** Newest block that was read from the chain, for each network of the provider's wallets. */
  indexedBlocks: Record<string, number | null>
}

/** Part of Statement. */
export type StatementRow = {
  network: NetworkName
  /** Paid in test money, which has no value. */
  testnet: boolean
  asset: string | null
  /** Number of accepted payments, excluding voided payments. */
  payments: number
  settledPayments: number
  outstandingPayments: number
  failedPayments: number
  voidedPayments: number
  /** USDC, always 6 decimals. */
  gross_usdc: string
  /** USDC, always 6 decimals. */
  fee_usdc: string
  /** gross - fee = settled + outstanding + failed. */
  net_usdc: string
  /** The part of net that has arrived on chain. */
  settled_usdc: string
  /** The part of settled that has reached the provider's wallet. The rest waits in splitters. */
  paid_out_usdc: string
  /** USDC, always 6 decimals. */
  outstanding_usdc: string
  /** USDC, always 6 decimals. */
  failed_usdc: string
  /** USDC, always 6 decimals. */
  settled_fee_usdc: string
  /** Number of `payments` that were requests on tabs. */
  tabPayments: number
  /** Number of refunds requested in this month, without those that failed. */
  refunds: number
  /** The part of these refunds that has arrived at the payers. */
  refunded_usdc: string
  /** USDC, always 6 decimals. */
  refunds_outstanding_usdc: string
  /** Gas of the batches mined in this month, by who paid it. The provider pays none. */
  gas: {
    platform: {
      batches: number
      /** This provider's share, by the number of payments. */
      gas_usdc: string
    }
    others: {
      batches: number
      /** This provider's share, by the number of payments. */
      gas_usdc: string
    }
  }
}

/** Answer of `GET /tabs/{tabId}`: The tab. */
export type Tab = {
  tabId: string
  network: NetworkName
  /** Paid in test money, which has no value. */
  testnet: boolean
  asset: string
  payer: string
  /** TabSettlement: only this contract can execute what is signed. */
  contract: string
  platform: string
  /** Share of the platform's part, in basis points, that the settling keeper receives. */
  rewardShare: number
  nonce: string
  /** Id of the payment as which the tab settles: GET /payments/{paymentId} answers from the first request on. */
  paymentId: string
  /** Sequence number of the newest state. */
  sequence: number
  requests: number
  /** USDC, always 6 decimals. */
  signedUsdc: string
  /** USDC, always 6 decimals. */
  chargedUsdc: string
  lines: Array<{
    split: string
    provider: string
    /** USDC, always 6 decimals. */
    signedUsdc: string
    /** USDC, always 6 decimals. */
    chargedUsdc: string
    /** The platform's part of the charged amount. */
    platformUsdc: string
    /** Credit for overcharges on earlier tabs, which is used up first. */
    creditUsdc: string
  }>
  openedAt: string
  usedAt: string
  expiresAt: string
  closedAt: string | null
  closeReason: string | null
  /** Whether the ledger has imported the tab as a payment. */
  isTaken: boolean
}

/** A tab is closed, and its payment waits to be settled. */
export type TabClosedEvent = {
  type: 'tab.closed'
  /** When it happened. */
  timestamp: string
  data: {
    paymentId: string
    /** Always null, because the event is not on chain. */
    txHash: null
    network: NetworkName | null
    closedAt: string
    tabId: string
    closeReason: string
    requests: number
    /** USDC base units: 1000000 = 1 USDC. */
    providerUsdc: string
    /** USDC base units: 1000000 = 1 USDC. */
    platformUsdc: string
    /** The part of the provider's amount that has arrived. */
    settledUsdc: string
    lines: TabEventLine[]
  }
}

/** Part of TabSettledEvent. */
export type TabEventLine = {
  endpointId: string | null
  payTo: string
  requests: number
  /** USDC base units: 1000000 = 1 USDC. */
  providerUsdc: string
  /** USDC base units: 1000000 = 1 USDC. */
  platformUsdc: string
  /** The part of the provider's amount that has arrived. */
  settledUsdc: string
}

/** The tab that this payment is, from the tab’s first request on; null: an ordinary payment. */
export type TabOfPayment = {
  tabId: string
  /** False: it is closed, so no more can be bought on it. */
  isOpen: boolean
  /** Sequence number of the state that settles. */
  sequence: number
  /** Number of all requests on this tab. */
  requests: number
  /** Share of the platform's part, in basis points, that the settling keeper receives. */
  rewardShare: number
  /** Why it was closed; null: it is open. */
  closeReason: string | null
  openedAt: string
  closedAt: string | null
  /** Lines on which the key's provider sold something; null: there are none, or the tab ended unpaid. */
  lines: Array<{
    payTo: string
    /** Amount that the buyer signed for this line, fee included, in the state of the tab that settles. */
    signedUsdc: string
    /** The part of `signedUsdc` that has moved so far. If another state of the tab settled, only what that state covers. */
    movedUsdc: string
    requests: number
    sales: Array<{
      sale: number
      endpointId: string
      requests: number
      /** USDC base units: 1000000 = 1 USDC. */
      providerUsdc: string
      /** USDC base units: 1000000 = 1 USDC. */
      platformUsdc: string
      /** The part of `providerUsdc` that has arrived. */
      settledUsdc: string
      lastRequestAt: string
    }>
  }> | null
  /** Amount that the platform owes the key's provider because the tab defaulted; null: none. */
  covered: {
    /** USDC base units: 1000000 = 1 USDC. */
    usdc: string
    /** Transaction in which it was paid; null: not yet. */
    transactionHash: string | null
  } | null
} | null

/** Answer of `GET /tabs/{tabId}/requests/{sequence}`: The request. */
export type TabRequest = {
  tabId: string
  sequence: number
  /** USDC, always 6 decimals. */
  priceUsdc: string
  /** 0 if it was voided. */
  chargedUsdc: string
  /** `voided`, or the tab’s status: `verified` until that settles, then `settled` if the moved amount covers this request. */
  payment_status: 'verified' | 'settling' | 'settled' | 'partially_settled' | 'retrying' | 'failed' | 'voided'
  acceptedAt: string
  /** Receipt for the amount charged now, `voided` if that is 0; absent if the endpoint no longer exists. */
  receipt?: string
}

/** A reorg reverted a tab's settled payment; it will be settled again. */
export type TabRevertedEvent = {
  type: 'tab.reverted'
  /** When it happened. */
  timestamp: string
  data: {
    paymentId: string
    txHash: string
    network: NetworkName
    tabId: string
  }
}

/** A tab's payment is settled on chain. */
export type TabSettledEvent = {
  type: 'tab.settled'
  /** When it happened. */
  timestamp: string
  data: {
    paymentId: string
    txHash: string
    network: NetworkName
    blockNumber: number
    /** Time of the block. */
    settledAt: string
    tabId: string
    closeReason: string
    requests: number
    /** USDC base units: 1000000 = 1 USDC. */
    providerUsdc: string
    /** USDC base units: 1000000 = 1 USDC. */
    platformUsdc: string
    /** The part of the provider's amount that has arrived. */
    settledUsdc: string
    lines: TabEventLine[]
  }
}

/** Answer of `GET /providers/{id}/upstream`: The upstream. */
export type Upstream = {
  url: string
  acceptX402V1: boolean
  /** Whether callers log in to the server. */
  forwardAuthorization: boolean
  secretSince: string
  /** Time until which requests also carry the previous secret. */
  previousSecretExpiresAt: string | null
}

/** Answer of `PUT /providers/{id}/upstream`: The upstream, with its secret if it is the first one. */
export type UpstreamWithSecret = Upstream & {
  /** Shown only when it is new, and only once. Requests carry it in `Service-Upstream-Secret`. */
  secret?: string
}

/** Answer of `GET /providers/{id}/usage`: The calls, newest first. */
export type Usage = {
  interval: 'hour' | 'day' | 'month' | 'total'
  from: string
  to: string
  usage: Array<{
    startsAt: string | null
    endpointId: string
    /** challenged + paid + all refused. */
    calls: number
    /** Number of calls without a payment, which got a challenge. */
    challenged: number
    paid: number
    refused: Record<string, number>
  }>
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
}

/** Answer of `POST /providers/{id}/wallets`: The wallet. */
export type Wallet = {
  walletId: string
  providerId: string
  network: NetworkName
  /** Paid in test money, which has no value. */
  testnet: boolean
  address: string
  createdAt: string
  /** Since when no endpoint may use it; payments signed for it still settle to it. */
  retiredAt: string | null
}

/** Part of ProviderQueue. */
export type WalletQueue = {
  walletId: string
  wallet: string
  network: NetworkName
  /** Number of waiting payments, without those that failed before. Each request on a closed tab counts as one. */
  payments: number
  /** Number of closed tabs among the waiting payments. */
  tabs: number
  /** Amount that the wallet will receive from the waiting payments. */
  accumulated_usdc: string
  /** Number of payments in a transaction that is not final yet. */
  settlingPayments: number
  /** USDC, always 6 decimals. */
  settling_usdc: string
  /** Number of payments that failed before and wait for their next attempt. */
  retryingPayments: number
  /** The trigger that has fired: the keeper settles the payments within moments. */
  fired: 'amount' | 'count' | 'time' | 'high_value' | 'expiry' | 'submission' | null
  /** Latest time of the next settlement if nothing else is queued; null: no payment counts for a trigger. */
  settlesAt: string | null
  triggers: {
    amount: {
      /**
       * Sum of the waiting payments that count for this trigger. A payment doesn’t count if it settles alone, a caller waits
       * for it, or it is already in a batch. Tabs don’t count either, because they wait together with other providers’ tabs.
       */
      counted_usdc: string
      /** USDC, always 6 decimals. */
      threshold_usdc: string
      /** USDC, always 6 decimals. */
      raised_threshold_usdc: string
    }
    count: {
      counted: number
      threshold: number
      raisedThreshold: number
    }
    time: {
      since: string | null
      at: string | null
      seconds: number
    }
    high_value: {
      /** USDC, always 6 decimals. */
      largest_usdc: string
      /** USDC, always 6 decimals. */
      threshold_usdc: string
    }
    expiry: {
      validBefore: string | null
      at: string | null
    }
  }
  /**
   * Money that settled for the wallet but cannot be paid out to it. It is paid once USDC takes the wallet off its blacklist.
   * null: USDC pays the wallet, or the network's node does not answer.
   */
  withheld: {
    /** USDC has blacklisted the wallet. */
    reason: 'payee_blacklisted'
    /** The wallet's part of the money in the splitters. */
    waiting_usdc: string
    splitters: Array<{
      splitter: string
      /** USDC, always 6 decimals. */
      waiting_usdc: string
    }>
  } | null
}

/** Body of `PATCH /providers/{id}/wallets/{walletId}`. */
export type WalletReplacement = {
  address: string
}

/** Answer of `GET /providers/{id}/webhooks/{webhookId}`: The webhook. */
export type Webhook = {
  webhookId: string
  providerId: string
  url: string
  description: string
  events: Array<'payment.settled' | 'payment.reverted' | 'tab.closed' | 'tab.settled' | 'tab.reverted' | 'batch.confirmed' | 'settlement.failing' | 'settlement.failed' | 'refund.settled' | 'refund.reverted' | 'refund.failing' | 'refund.failed'>
  createdAt: string
  /** When it was disabled because the receiver answered 410; rotating its secret enables it again. */
  disabledAt: string | null
  previousSecretExpiresAt: string | null
}

/** Part of WebhookDelivery. */
export type WebhookAttempt = {
  attempt: number
  startedAt: string
  /** Null: in progress or interrupted, so the receiver may have the message. */
  endedAt: string | null
  httpStatus: number | null
  failure: string | null
  detail: string | null
  /** First part of the response body. */
  response: string | null
}

/** Answer of `GET /providers/{id}/webhooks/{webhookId}/deliveries`: The deliveries. */
export type WebhookDeliveries = {
  deliveries: WebhookDelivery[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
}

/** Part of WebhookDeliveries. */
export type WebhookDelivery = {
  deliveryId: string
  /** The `webhook-id` header: the same for every sending. */
  messageId: string
  event: 'payment.settled' | 'payment.reverted' | 'tab.closed' | 'tab.settled' | 'tab.reverted' | 'batch.confirmed' | 'settlement.failing' | 'settlement.failed' | 'refund.settled' | 'refund.reverted' | 'refund.failing' | 'refund.failed'
  paymentId: string | null
  txHash: string | null
  status: 'pending' | 'delivered' | 'failed'
  createdAt: string
  deliveredAt: string | null
  nextAttemptAt: string | null
  attempts: WebhookAttempt[]
}

/** A test event that the provider requested. */
export type WebhookTestEvent = {
  type: 'webhook.test'
  /** When it happened. */
  timestamp: string
  data: {
    paymentId: null
    txHash: null
    webhookId: string
  }
}

/** Answer of `POST /providers/{id}/webhooks/{webhookId}/test`: The URL’s answer. */
export type WebhookTestResult = {
  /** Whether the URL answered with a 2xx. */
  delivered: boolean
  /** HTTP status of the answer; null if there was none. */
  status: number | null
  durationMs: number
  /** Why the test event doesn't count as received. */
  error?: string
}

/** Answer of `POST /providers/{id}/webhooks`: The webhook, and the secret that its messages are signed with. */
export type WebhookWithSecret = Webhook & {
  /** Shown only once; works with any Standard Webhooks library. */
  secret: string
}

/** Answer of `GET /providers/{id}/webhooks`: The webhooks, oldest first. */
export type Webhooks = {
  webhooks: Webhook[]
}

/** Answer of `GET /providers/{id}/keys`: The keys, oldest first. */
export type ApiKeysListAnswer = {
  keys: ApiKey[]
}

/** Query of `DELETE /providers/{id}/keys/{keyId}`. */
export type ApiKeysRevokeQuery = {
  force?: boolean | undefined
}

/** Query of `GET /providers/{id}/batches`. */
export type BatchesListQuery = {
  network?: NetworkName | undefined
  limit?: number | undefined
}

/** Query of `GET /providers/{id}/bookkeeping`. */
export type BooksBookkeepingCsvQuery = {
  /** UTC. */
  month: string
  /** Currency of the fiat values. Default: the operator's choice. */
  currency?: string | undefined
}

/** Query of `GET /providers/{id}/bookkeeping`. */
export type BooksBookkeepingQuery = {
  /** UTC. */
  month: string
  /** Currency of the fiat values. Default: the operator's choice. */
  currency?: string | undefined
}

/** Query of `GET /providers/{id}/fee-document`. */
export type BooksFeeDocumentHtmlQuery = {
  /** UTC. */
  month: string
  network?: NetworkName | undefined
}

/** Query of `GET /providers/{id}/fee-document`. */
export type BooksFeeDocumentQuery = {
  /** UTC. */
  month: string
  network?: NetworkName | undefined
}

/** Query of `GET /providers/{id}/statement`. */
export type BooksStatementCsvQuery = {
  /** UTC. */
  month: string
}

/** Query of `GET /providers/{id}/statement`. */
export type BooksStatementQuery = {
  /** UTC. */
  month: string
}

/** Query of `GET /discovery/providers/{id}`. */
export type DiscoveryDocumentsQuery = {
  /** Default: the origin where it sells the most endpoints. */
  origin?: string | undefined
}

/** Answer of `GET /discovery/merchant`: A page of the list. */
export type DiscoveryMerchantAnswer = {
  payTo: string
  resources: DiscoveryResource[]
  pagination: {
    limit: number
    offset: number
    total: number
  }
}

/** Query of `GET /discovery/merchant`. */
export type DiscoveryMerchantQuery = {
  type?: 'http' | 'mcp' | undefined
  payTo: string
  scheme?: string | undefined
  /** CAIP-2 identifier or name of the network. */
  network?: string | undefined
  /** A key of `extensions`. */
  extensions?: string | undefined
  limit?: number | undefined
}

/** Answer of `GET /discovery/resources`: A page of the list. */
export type DiscoveryResourcesAnswer = {
  x402Version: 2
  items: DiscoveryResource[]
  pagination: {
    limit: number
    offset: number
    total: number
  }
}

/** Query of `GET /discovery/resources`. */
export type DiscoveryResourcesQuery = {
  type?: 'http' | 'mcp' | undefined
  /** A seller's wallet, or the splitter that payments to the seller go to. */
  payTo?: string | undefined
  scheme?: string | undefined
  /** CAIP-2 identifier or name of the network. */
  network?: string | undefined
  /** A key of `extensions`. */
  extensions?: string | undefined
  limit?: number | undefined
}

/** Answer of `GET /discovery/search`: The matching listings. */
export type DiscoverySearchAnswer = {
  x402Version: 2
  resources: DiscoveryResource[]
  partialResults: boolean
  pagination: {
    limit: number
    /** Cursor of the next page; null on the last page. */
    cursor: string | null
  }
}

/** Query of `GET /discovery/search`. */
export type DiscoverySearchQuery = {
  type?: 'http' | 'mcp' | undefined
  /** A seller's wallet, or the splitter that payments to the seller go to. */
  payTo?: string | undefined
  scheme?: string | undefined
  /** CAIP-2 identifier or name of the network. */
  network?: string | undefined
  /** A key of `extensions`. */
  extensions?: string | undefined
  limit?: number | undefined
  query: string
}

/** Query of `GET /providers/{id}/endpoint-activity`. */
export type EndpointsActivityQuery = {
  network?: NetworkName | undefined
  /** Test money or real money; default: real money, unless every wallet is on a test network. */
  testnet?: boolean | undefined
  from?: string | Date | undefined
  to?: string | Date | undefined
  endpointId?: string | undefined
  limit?: number | undefined
}

/** Answer of `GET /providers/{id}/endpoints`: The endpoints, oldest first. */
export type EndpointsListAnswer = {
  endpoints: Endpoint[]
}

/** Query of `GET /providers/{id}/usage`. */
export type EndpointsUsageQuery = {
  interval?: 'hour' | 'day' | 'month' | 'total' | undefined
  from?: string | Date | undefined
  to?: string | Date | undefined
  endpointId?: string | undefined
  limit?: number | undefined
}

/** Query of `GET /providers/{id}/passes/ended`. */
export type PassesEndedQuery = {
  limit?: number | undefined
}

/** Query of `GET /providers/{id}/passes`. */
export type PassesListQuery = {
  endpointId?: string | undefined
  payer?: string | undefined
  state?: 'valid' | 'ended' | 'used_up' | 'expired' | undefined
  limit?: number | undefined
}

/** Query of `GET /providers/{id}/payer-activity`. */
export type PayersActivityQuery = {
  network?: NetworkName | undefined
  /** Test money or real money; default: real money, unless every wallet is on a test network. */
  testnet?: boolean | undefined
  from?: string | Date | undefined
  to?: string | Date | undefined
  endpointId?: string | undefined
  interval?: 'day' | 'month' | 'total' | undefined
  limit?: number | undefined
}

/** Query of `GET /providers/{id}/payers/{payer}`. */
export type PayersGetQuery = {
  network?: NetworkName | undefined
  /** Test money or real money; default: real money, unless every wallet is on a test network. */
  testnet?: boolean | undefined
  from?: string | Date | undefined
  to?: string | Date | undefined
}

/** Query of `GET /providers/{id}/payers`. */
export type PayersListQuery = {
  network?: NetworkName | undefined
  /** Test money or real money; default: real money, unless every wallet is on a test network. */
  testnet?: boolean | undefined
  from?: string | Date | undefined
  to?: string | Date | undefined
  endpointId?: string | undefined
  /**
   * `new`, `returning`: whether the first payment ever was in the period or before it; both need `from` or `to`. `owing`: owes
   * the provider something now. `failing`: has payments that failed or are retried after a failure.
   */
  state?: 'new' | 'returning' | 'owing' | 'failing' | undefined
  sort?: 'gross' | 'payments' | 'lastPayment' | undefined
  limit?: number | undefined
}

/** Query of `GET /providers/{id}/payments`. */
export type PaymentsCsvQuery = {
  endpointId?: string | undefined
  payer?: string | undefined
  network?: NetworkName | undefined
  from?: string | Date | undefined
  to?: string | Date | undefined
  cursor?: string | undefined
  /** Price that the buyer paid, fee included. */
  min_usdc?: string | undefined
  max_usdc?: string | undefined
  status?: 'verified' | 'settling' | 'settled' | 'partially_settled' | 'retrying' | 'failed' | 'voided' | undefined
  /** Transaction of the batch that settled them. */
  tx_hash?: string | undefined
  /** Only test money, or only real money; default: both. */
  testnet?: boolean | undefined
}

/** Query of `GET /providers/{id}/failures`. */
export type PaymentsFailuresQuery = {
  endpointId?: string | undefined
  payer?: string | undefined
  network?: NetworkName | undefined
  from?: string | Date | undefined
  to?: string | Date | undefined
  limit?: number | undefined
  status?: 'retrying' | 'failed' | undefined
}

/** Query of `GET /providers/{id}/payments`. */
export type PaymentsListQuery = {
  endpointId?: string | undefined
  payer?: string | undefined
  network?: NetworkName | undefined
  from?: string | Date | undefined
  to?: string | Date | undefined
  limit?: number | undefined
  /** Price that the buyer paid, fee included. */
  min_usdc?: string | undefined
  max_usdc?: string | undefined
  status?: 'verified' | 'settling' | 'settled' | 'partially_settled' | 'retrying' | 'failed' | 'voided' | undefined
  /** Transaction of the batch that settled them. */
  tx_hash?: string | undefined
  /** Only test money, or only real money; default: both. */
  testnet?: boolean | undefined
}

/** Answer of `POST /payments/{paymentId}/requeue`: The payment is in the queue. */
export type PaymentsRequeueAnswer = {
  paymentId: string
}

/** Query of `GET /providers/{id}/payments/totals`. */
export type PaymentsTotalsQuery = {
  endpointId?: string | undefined
  payer?: string | undefined
  network?: NetworkName | undefined
  from?: string | Date | undefined
  to?: string | Date | undefined
  /** Price that the buyer paid, fee included. */
  min_usdc?: string | undefined
  max_usdc?: string | undefined
  status?: 'verified' | 'settling' | 'settled' | 'partially_settled' | 'retrying' | 'failed' | 'voided' | undefined
  /** Transaction of the batch that settled them. */
  tx_hash?: string | undefined
  /** Only test money, or only real money; default: both. */
  testnet?: boolean | undefined
}

/** Answer of `GET /providers/{id}/changes`: The changes, newest first. */
export type ProviderChangesAnswer = {
  changes: RegistryChange[]
  /** Cursor of the next page; null on the last page. */
  cursor: string | null
}

/** Query of `GET /providers/{id}/changes`. */
export type ProviderChangesQuery = {
  limit?: number | undefined
}

/** A receipt or a signed tab line, and the cursor of the next line. */
export type ReceiptLine = {
  paymentId: string
  /** A JWS, signed again with the current status. */
  receipt?: string
  /** A JWS that replaces `receipt` if the call asked for `tabLines`. */
  tabLine?: string
  /** `cursor` of a later call that continues after this line. */
  cursor: string
}

/** Query of `GET /providers/{id}/receipts`. */
export type ReceiptsListQuery = {
  endpointId?: string | undefined
  payer?: string | undefined
  network?: NetworkName | undefined
  from?: string | Date | undefined
  to?: string | Date | undefined
  cursor?: string | undefined
  status?: 'verified' | 'settling' | 'settled' | 'partially_settled' | 'retrying' | 'failed' | 'voided' | undefined
  /** `true`: also return a signed sum for each line of a tab, as `tabLine` instead of `receipt`. */
  tabLines?: boolean | undefined
}

/** Body of `POST /providers/{id}/payments/{paymentId}/refunds`. */
export type RefundsCreateBody = {
  /** from,to,value,validAfter,validBefore,nonce,signature. */
  payload: string
}

/** Query of `GET /providers/{id}/revenue`. */
export type RevenueListQuery = {
  interval?: 'hour' | 'day' | 'month' | 'total' | undefined
  groupBy?: 'none' | 'endpoint' | 'wallet' | 'network' | undefined
  from?: string | Date | undefined
  to?: string | Date | undefined
  endpointId?: string | undefined
  wallet?: string | undefined
  /** Only sales to this payer; possible by day, month or in total, but not by wallet. */
  payer?: string | undefined
  network?: NetworkName | undefined
  /** Test money or real money; default: real money, unless every wallet is on a test network. */
  testnet?: boolean | undefined
  limit?: number | undefined
}

/** Query of `GET /settlements/batches`. */
export type SettlementsBatchesQuery = {
  wallet?: string | undefined
  tx_hash?: string | undefined
  limit?: number | undefined
  /** Default: the first served network. */
  network?: NetworkName | undefined
}

/** Query of `GET /settlements/export`. */
export type SettlementsExportQuery = {
  wallet: string
  start: string
  end: string
  /** Default: the first served network. */
  network?: NetworkName | undefined
}

/** Query of `GET /settlements/status`. */
export type SettlementsStatusQuery = {
  wallet: string
  /** Default: the first served network. */
  network?: NetworkName | undefined
}

/** Query of `GET /providers/{id}/splitters`. */
export type SplittersListQuery = {
  network?: NetworkName | undefined
  limit?: number | undefined
}

/** Query of `GET /providers/{id}/tabs`. */
export type TabsListQuery = {
  /** `open`: tabs that the ledger has not imported yet, including closing tabs. */
  state?: 'open' | 'closed' | 'all' | undefined
  network?: NetworkName | undefined
  payer?: string | undefined
  /** Only the tab that becomes this payment. */
  paymentId?: string | undefined
  limit?: number | undefined
}

/** Answer of `GET /providers/{id}/wallets`: The wallets, oldest first. */
export type WalletsListAnswer = {
  wallets: Wallet[]
}

/** Query of `GET /providers/{id}/webhooks/{webhookId}/deliveries`. */
export type WebhooksDeliveriesQuery = {
  limit?: number | undefined
}
