// Made by `npm run generate` from the OpenAPI document of the gateway.
import type { List } from '../list.ts'
import type { ChangeOptions, RequestOptions, Transport } from '../transport.ts'
import type {
  AcceptHook,
  AcceptHookTest,
  AcceptHookWithSecret,
  Account,
  ApiKey,
  ApiKeysListAnswer,
  ApiKeysRevokeQuery,
  Attention,
  BatchesListQuery,
  Bookkeeping,
  BooksBookkeepingCsvQuery,
  BooksBookkeepingQuery,
  BooksFeeDocumentHtmlQuery,
  BooksFeeDocumentQuery,
  BooksStatementCsvQuery,
  BooksStatementQuery,
  ChargeRequest,
  Charged,
  ContactConfirmation,
  DiscoveryDocumentsQuery,
  DiscoveryMerchantAnswer,
  DiscoveryMerchantQuery,
  DiscoveryResource,
  DiscoveryResourcesAnswer,
  DiscoveryResourcesQuery,
  DiscoverySearchAnswer,
  DiscoverySearchQuery,
  EndedPass,
  EndedPasses,
  Endpoint,
  EndpointActivity,
  EndpointActivityRow,
  EndpointChange,
  EndpointCheck,
  EndpointsActivityQuery,
  EndpointsListAnswer,
  EndpointsUsageQuery,
  FeeDocuments,
  IssuedApiKey,
  NetworkList,
  NewAcceptHook,
  NewApiKey,
  NewEndpoint,
  NewUpstream,
  NewWallet,
  NewWebhook,
  Pass,
  Passes,
  PassesEndedQuery,
  PassesListQuery,
  Payer,
  PayerActivity,
  PayerDetail,
  Payers,
  PayersActivityQuery,
  PayersGetQuery,
  PayersListQuery,
  Payment,
  PaymentTimeline,
  PaymentTotals,
  PaymentsCsvQuery,
  PaymentsFailuresQuery,
  PaymentsListQuery,
  PaymentsRequeueAnswer,
  PaymentsTotalsQuery,
  Provider,
  ProviderBatch,
  ProviderBatches,
  ProviderChange,
  ProviderChangesAnswer,
  ProviderChangesQuery,
  ProviderPayment,
  ProviderPayments,
  ProviderQueue,
  ProviderTab,
  ProviderTabs,
  Receipt,
  ReceiptLine,
  ReceiptsListQuery,
  Refund,
  Refunds,
  RefundsCreateBody,
  RegisteredEndpoint,
  RegistryChange,
  ReplacedWallet,
  RequeueMany,
  RequeuedMany,
  Revenue,
  RevenueListQuery,
  RevenueRow,
  Sales,
  SellerQuestion,
  SellerValidation,
  SettlementBatch,
  SettlementBatches,
  SettlementFailure,
  SettlementFailures,
  SettlementStatus,
  SettlementsBatchesQuery,
  SettlementsExportQuery,
  SettlementsStatusQuery,
  SplitterBalance,
  SplitterBalances,
  SplittersListQuery,
  Statement,
  Tab,
  TabRequest,
  TabsListQuery,
  Upstream,
  UpstreamWithSecret,
  Usage,
  Wallet,
  WalletReplacement,
  WalletsListAnswer,
  Webhook,
  WebhookDeliveries,
  WebhookDelivery,
  WebhookTestResult,
  WebhookWithSecret,
  Webhooks,
  WebhooksDeliveriesQuery,
} from './types.ts'

/** The methods of a provider's client, by resource. */
export type ProviderResources = {
  readonly account: {
    /**
     * Show the API key’s provider and scope.
     *
     * `GET /account`
     */
    get(options?: RequestOptions): Promise<Account>
  }
  readonly provider: {
    /**
     * Read a provider.
     *
     * `GET /providers/{id}`
     */
    get(options?: RequestOptions): Promise<Provider>
    /**
     * Change a provider, disable it or enable it.
     *
     * `PATCH /providers/{id}`
     */
    update(body: ProviderChange, options: ChangeOptions): Promise<Provider>
    /**
     * History of registry changes: what changed, when and by whom.
     *
     * `GET /providers/{id}/changes`
     */
    changes(query?: ProviderChangesQuery, options?: RequestOptions): List<RegistryChange, ProviderChangesAnswer>
    /**
     * Mail a confirmation code to the contact.
     *
     * The gateway sends no other mail to the contact until it is confirmed with this code. Needs a gateway with `SMTP_URL`.
     *
     * `POST /providers/{id}/contact/code`
     */
    sendContactCode(options?: RequestOptions): Promise<void>
    /**
     * Confirm the contact with the code that was mailed to it.
     *
     * `POST /providers/{id}/contact/confirmation`
     */
    confirmContact(body: ContactConfirmation, options?: RequestOptions): Promise<Provider>
  }
  readonly apiKeys: {
    /**
     * Issue another API key.
     *
     * `POST /providers/{id}/keys`
     */
    create(body: NewApiKey, options?: RequestOptions): Promise<IssuedApiKey>
    /**
     * List API keys, without their secrets.
     *
     * `GET /providers/{id}/keys`
     */
    list(options?: RequestOptions): List<ApiKey, ApiKeysListAnswer>
    /**
     * Revoke an API key permanently.
     *
     * The last usable key can be revoked only with `force=true`, because after that only the operator can issue another.
     *
     * `DELETE /providers/{id}/keys/{keyId}`
     */
    revoke(keyId: string, query?: ApiKeysRevokeQuery, options?: RequestOptions): Promise<void>
  }
  readonly wallets: {
    /**
     * Register a wallet for receiving payments.
     *
     * `POST /providers/{id}/wallets`
     */
    create(body: NewWallet, options?: RequestOptions): Promise<Wallet>
    /**
     * List wallets.
     *
     * `GET /providers/{id}/wallets`
     */
    list(options?: RequestOptions): List<Wallet, WalletsListAnswer>
    /**
     * Read a wallet.
     *
     * `GET /providers/{id}/wallets/{walletId}`
     */
    get(walletId: string, options?: RequestOptions): Promise<Wallet>
    /**
     * Replace a wallet with another address, in all endpoints at once.
     *
     * The old wallet is retired. Payments whose challenge was issued before settle to the address that they were signed for.
     *
     * `PATCH /providers/{id}/wallets/{walletId}`
     */
    replace(walletId: string, body: WalletReplacement, options?: RequestOptions): Promise<ReplacedWallet>
    /**
     * Retire a wallet that no endpoint uses.
     *
     * `DELETE /providers/{id}/wallets/{walletId}`
     */
    retire(walletId: string, options?: RequestOptions): Promise<void>
  }
  readonly upstream: {
    /**
     * Register an upstream: the server that paid requests are passed on to.
     *
     * Buyers call `/p/{providerId}/…` on this gateway, which replaces a middleware.
     *
     * `PUT /providers/{id}/upstream`
     */
    set(body: NewUpstream, options?: RequestOptions): Promise<UpstreamWithSecret>
    /**
     * Read the upstream, without its secret.
     *
     * `GET /providers/{id}/upstream`
     */
    get(options?: RequestOptions): Promise<Upstream>
    /**
     * Remove the upstream: no more requests are passed on.
     *
     * `DELETE /providers/{id}/upstream`
     */
    remove(options?: RequestOptions): Promise<void>
    /**
     * Create a new secret; requests also carry the previous one for a day.
     *
     * `POST /providers/{id}/upstream/secret`
     */
    rotateSecret(options?: RequestOptions): Promise<UpstreamWithSecret>
  }
  readonly hook: {
    /**
     * Register a hook: a URL that decides whether payments are accepted.
     *
     * The gateway sends every payment of this provider to it for a decision, whether the payment comes through /verify, the
     * proxy or a tab: docs/before-accept.md.
     *
     * `PUT /providers/{id}/hook`
     */
    set(body: NewAcceptHook, options?: RequestOptions): Promise<AcceptHookWithSecret>
    /**
     * Read the hook, without its secret.
     *
     * `GET /providers/{id}/hook`
     */
    get(options?: RequestOptions): Promise<AcceptHook>
    /**
     * Remove the hook: payments are then accepted without a decision.
     *
     * `DELETE /providers/{id}/hook`
     */
    remove(options?: RequestOptions): Promise<void>
    /**
     * Create a new secret; the previous one also signs for 24 hours.
     *
     * `POST /providers/{id}/hook/secret`
     */
    rotateSecret(options?: RequestOptions): Promise<AcceptHookWithSecret>
    /**
     * Test the hook with a made-up payment, and return its decision.
     *
     * The test payment has the payer 0x0000000000000000000000000000000000000000.
     *
     * `POST /providers/{id}/hook/test`
     */
    test(options?: RequestOptions): Promise<AcceptHookTest>
  }
  readonly endpoints: {
    /**
     * Register an endpoint and its price.
     *
     * `POST /providers/{id}/endpoints`
     */
    create(body: NewEndpoint, options?: RequestOptions): Promise<RegisteredEndpoint>
    /**
     * List endpoints.
     *
     * `GET /providers/{id}/endpoints`
     */
    list(options?: RequestOptions): List<Endpoint, EndpointsListAnswer>
    /**
     * Read an endpoint.
     *
     * `GET /providers/{id}/endpoints/{endpointId}`
     */
    get(endpointId: string, options?: RequestOptions): Promise<Endpoint>
    /**
     * Change an endpoint, disable it or enable it.
     *
     * New challenges have the new terms within two seconds. Challenges issued before keep their price and wallet.
     *
     * `PATCH /providers/{id}/endpoints/{endpointId}`
     */
    update(endpointId: string, body: EndpointChange, options: ChangeOptions): Promise<RegisteredEndpoint>
    /**
     * Compare endpoints: revenue, calls, refusals and payers, with the previous period.
     *
     * Covers the UTC days that `from` and `to` touch; all time by default. A payment counts on the day on which it was
     * accepted. An endpoint has no row if neither period has payments, calls or refunds of it. The sums over all rows are
     * those of `revenue`. Over time: `revenue`, `usage` and `payer-activity` with `endpointId`.
     *
     * `GET /providers/{id}/endpoint-activity`
     */
    activity(query?: EndpointsActivityQuery, options?: RequestOptions): List<EndpointActivityRow, EndpointActivity>
    /**
     * Check an endpoint's URL now: request its payment terms, and return the findings.
     *
     * The next regular check is scheduled as if this had been a regular check. At most 10 checks per minute and provider.
     *
     * `POST /providers/{id}/endpoints/{endpointId}/check`
     */
    check(endpointId: string, options?: RequestOptions): Promise<EndpointCheck>
    /**
     * Calls by endpoint: challenged, paid, and refused by reason.
     *
     * Counts calls that reached the gateway. New calls are added every few seconds.
     *
     * `GET /providers/{id}/usage`
     */
    usage(query?: EndpointsUsageQuery, options?: RequestOptions): List<Usage['usage'][number], Usage>
  }
  readonly payments: {
    /**
     * Payments, newest first.
     *
     * A page may have fewer than `limit` payments and still not be the last: only a null cursor ends the list.
     *
     * `GET /providers/{id}/payments`
     */
    list(query?: PaymentsListQuery, options?: RequestOptions): List<ProviderPayment, ProviderPayments>
    /**
     * Payments, newest first. As CSV: the response's `body` is a stream.
     *
     * A page may have fewer than `limit` payments and still not be the last: only a null cursor ends the list.
     *
     * `GET /providers/{id}/payments`
     */
    csv(query?: PaymentsCsvQuery, options?: RequestOptions): Promise<Response>
    /**
     * Read a payment and its status.
     *
     * For a tab, a provider's key also shows the provider's own lines.
     *
     * `GET /payments/{paymentId}`
     */
    get(paymentId: string, options?: RequestOptions): Promise<Payment>
    /**
     * Sum the payments that match a filter.
     *
     * Takes the filters of `payments`; the sums equal those of its CSV. By endpoint, network and time, and for
     * `status=settled`, they are exact for any number of payments. By payer, amount, transaction or another status, only the
     * newest 500 candidates are summed.
     *
     * `GET /providers/{id}/payments/totals`
     */
    totals(query?: PaymentsTotalsQuery, options?: RequestOptions): Promise<PaymentTotals>
    /**
     * Timeline of a payment, from its challenge to its confirmation.
     *
     * `GET /providers/{id}/payments/{paymentId}/timeline`
     */
    timeline(paymentId: string, options?: RequestOptions): Promise<PaymentTimeline>
    /**
     * Void a payment for which no service was rendered.
     *
     * Refused with 409 once a batch has claimed the payment, once it was published, or once any of its money has moved.
     *
     * `POST /payments/{paymentId}/void`
     */
    void(paymentId: string, options?: RequestOptions): Promise<Payment>
    /**
     * Try to settle a failed payment again.
     *
     * The payment gets its full number of retries again. This works while its authorizations are valid.
     *
     * `POST /payments/{paymentId}/requeue`
     */
    requeue(paymentId: string, options?: RequestOptions): Promise<PaymentsRequeueAnswer>
    /**
     * Try to settle several failed payments again.
     *
     * Selects payments by id or by a filter, at most 100 per call, with the same rules as for one payment. Each is decided
     * separately, so some may be queued again while others are not. Sales on tabs are left out: a tab belongs to several
     * providers, so only the operator can queue it again.
     *
     * `POST /providers/{id}/payments/requeue`
     */
    requeueMany(body: RequeueMany, options?: RequestOptions): Promise<RequeuedMany>
    /**
     * Payments whose settlement is failing or has failed, with each attempt and the time of the next one.
     *
     * `GET /providers/{id}/failures`
     */
    failures(query?: PaymentsFailuresQuery, options?: RequestOptions): List<SettlementFailure, SettlementFailures>
  }
  readonly refunds: {
    /**
     * A payment's refunds, and the amount that can still be refunded.
     *
     * `GET /providers/{id}/payments/{paymentId}/refunds`
     */
    get(paymentId: string, options?: RequestOptions): Promise<Refunds>
    /**
     * Refund a settled payment, completely or in part.
     *
     * Takes a signed `transferWithAuthorization` (EIP-3009) from one of the provider's wallets to the payment's payer, with
     * the nonce of one refund of this payment. It is settled with the next batch; the platform pays the gas. Sending it again
     * changes nothing and returns its current state. A failed refund is then retried while it is valid.
     *
     * `POST /providers/{id}/payments/{paymentId}/refunds`
     */
    create(paymentId: string, body: RefundsCreateBody, options?: RequestOptions): Promise<Refund>
  }
  readonly passes: {
    /**
     * Passes that were sold, newest first.
     *
     * `GET /providers/{id}/passes`
     */
    list(query?: PassesListQuery, options?: RequestOptions): List<Pass, Passes>
    /**
     * Passes that middleware must refuse because they ended early, before their expiry.
     *
     * Middleware reads this list once a minute while passes are used. With `If-None-Match`, the answer is 304 if nothing
     * changed.
     *
     * `GET /providers/{id}/passes/ended`
     */
    ended(query?: PassesEndedQuery, options?: RequestOptions): List<EndedPass, EndedPasses>
  }
  readonly receipts: {
    /**
     * Export all receipts of a period as JSON Lines, oldest first.
     *
     * Each line is an object with `paymentId`, `receipt` (current state) and the `cursor` to continue after it. To resume
     * after a lost connection, or to fetch newer receipts, send the cursor of the last complete line. An answer that is cut
     * short ends without its last chunk. Payments that came through the facilitator have no receipt. Each request on a tab has
     * a receipt with the `paymentId` of the tab. These receipts are listed from the tab’s closing until its requests are
     * deleted. `tabLines=true` adds a line with `tabLine` after the requests of each tab: the gateway's signed sum of them, as
     * docs/protocol.md describes it. These lines are never deleted. A line is listed in each period in which one of its sales
     * was made, but never if `endpointId` is given.
     *
     * `GET /providers/{id}/receipts`
     */
    list(query?: ReceiptsListQuery, options?: RequestOptions): AsyncIterable<ReceiptLine>
    /**
     * Get a receipt in its current state.
     *
     * Signed again at each call. `transactionHash` and `blockHash` are those of the provider's half, once it has the network’s
     * confirmations; until then the hash is 32 zero bytes. For a tab, this is the receipt of the whole tab, from its first
     * request on: the tab’s id replaces provider and endpoint, because there may be many. Each request has a separate receipt.
     *
     * `GET /receipts/{id}`
     */
    get(id: string, options?: RequestOptions): Promise<Receipt>
  }
  readonly payers: {
    /**
     * Payers: their payments, debts and failures.
     *
     * Covers all time, or the UTC days that `from` and `to` touch. A payment counts on the day on which it was accepted. A
     * payer on two networks has two rows. The sums over all rows equal those of `revenue` for the same period. While payments
     * come in, a payer may move between pages.
     *
     * `GET /providers/{id}/payers`
     */
    list(query?: PayersListQuery, options?: RequestOptions): List<Payer, Payers>
    /**
     * Totals of one payer, and its purchases by endpoint.
     *
     * The payer’s sums over all networks. `revenue?payer=` returns these sums over time, and `payments?payer=` lists the
     * payer’s payments. `testnet` defaults to real money if the payer has paid any.
     *
     * `GET /providers/{id}/payers/{payer}`
     */
    get(payer: string, query?: PayersGetQuery, options?: RequestOptions): Promise<PayerDetail>
    /**
     * Number of new and returning payers by time.
     *
     * A payer is new in the interval of its first payment to this provider, even if that was for another endpoint. An address
     * on two networks counts twice. By day, a query covers at most 366 days.
     *
     * `GET /providers/{id}/payer-activity`
     */
    activity(query?: PayersActivityQuery, options?: RequestOptions): List<PayerActivity['activity'][number], PayerActivity>
  }
  readonly tabs: {
    /**
     * Open and closed tabs on which the provider sold something.
     *
     * Shows only the provider's own requests and amounts, not those of other providers on the same tab. Open tabs come first,
     * the latest opened first; then closed tabs, the latest closed first. If a tab closes while pages are read, it may appear
     * twice.
     *
     * `GET /providers/{id}/tabs`
     */
    list(query?: TabsListQuery, options?: RequestOptions): List<ProviderTab, ProviderTabs>
    /**
     * Read a tab: the purchases on it, and the signed amounts.
     *
     * Anyone who knows the tab’s id may read it: the buyer and the providers that the tab pays know the id.
     *
     * `GET /tabs/{tabId}`
     */
    get(tabId: string, options?: RequestOptions): Promise<Tab>
    /**
     * Read a request on a tab, and its charge.
     *
     * Requires the API key of the provider that sold the request, or, in `Tab-Signature`, the buyer’s signature of the state
     * that bought it. All other callers are refused, because the requests on a tab show what one buyer bought from all
     * providers. 404: the request is not on the tab.
     *
     * `GET /tabs/{tabId}/requests/{sequence}`
     */
    request(tabId: string, sequence: number, options?: RequestOptions): Promise<TabRequest>
    /**
     * Charge less than the price for a request on a tab.
     *
     * Send 0 for a request that was not served. The buyer keeps the rest of what was signed. The last call counts.
     *
     * `POST /tabs/{tabId}/requests/{sequence}/charge`
     */
    charge(tabId: string, sequence: number, body: ChargeRequest, options?: RequestOptions): Promise<Charged>
  }
  readonly revenue: {
    /**
     * Revenue by time, endpoint, wallet or network.
     *
     * A payment counts in the interval in which it was accepted. If a reorg reverts a settlement, the settled figures decrease
     * again. A query by hour covers at most 31 days, by day at most 366.
     *
     * `GET /providers/{id}/revenue`
     */
    list(query?: RevenueListQuery, options?: RequestOptions): List<RevenueRow, Revenue>
  }
  readonly books: {
    /**
     * A month's books, by network.
     *
     * Sums the payments accepted in the month, like `revenue`. Settled amounts can still change after the month: they count
     * what was read from the chain so far. `format=csv` lists the payments line by line, in decimals and with settlement
     * times: its columns add up to the sums.
     *
     * `GET /providers/{id}/statement`
     */
    statement(query: BooksStatementQuery, options?: RequestOptions): Promise<Statement>
    /**
     * A month's books, by network. As CSV: the response's `body` is a stream.
     *
     * Sums the payments accepted in the month, like `revenue`. Settled amounts can still change after the month: they count
     * what was read from the chain so far. `format=csv` lists the payments line by line, in decimals and with settlement
     * times: its columns add up to the sums.
     *
     * `GET /providers/{id}/statement`
     */
    statementCsv(query: BooksStatementCsvQuery, options?: RequestOptions): Promise<Response>
    /**
     * A month's bookkeeping, line by line.
     *
     * On a cash basis: money is booked at the time of the block in which it arrived, not when the request was bought. There is
     * one line for each payment, one for the requests on a tab by endpoint and hour, and one with negative amounts for each
     * refund. Document numbers have no gaps; those of a `final` month never change. Amounts are decimals. Totals by network
     * come last; in CSV their `kind` is `total`. The answer is streamed: an answer without totals was cut off.
     *
     * `GET /providers/{id}/bookkeeping`
     */
    bookkeeping(query: BooksBookkeepingQuery, options?: RequestOptions): Promise<Bookkeeping>
    /**
     * A month's bookkeeping, line by line. As CSV: the response's `body` is a stream.
     *
     * On a cash basis: money is booked at the time of the block in which it arrived, not when the request was bought. There is
     * one line for each payment, one for the requests on a tab by endpoint and hour, and one with negative amounts for each
     * refund. Document numbers have no gaps; those of a `final` month never change. Amounts are decimals. Totals by network
     * come last; in CSV their `kind` is `total`. The answer is streamed: an answer without totals was cut off.
     *
     * `GET /providers/{id}/bookkeeping`
     */
    bookkeepingCsv(query: BooksBookkeepingCsvQuery, options?: RequestOptions): Promise<Response>
    /**
     * A document for a month's fees, by network.
     *
     * The platform fees on everything booked in the month: the sums of `bookkeeping`. `format=html` returns a printable page
     * without scripts. The document is preliminary until the month has ended and its amounts can no longer change.
     *
     * `GET /providers/{id}/fee-document`
     */
    feeDocument(query: BooksFeeDocumentQuery, options?: RequestOptions): Promise<FeeDocuments>
    /**
     * A document for a month's fees, by network. As HTML: the response's `body` is a stream.
     *
     * The platform fees on everything booked in the month: the sums of `bookkeeping`. `format=html` returns a printable page
     * without scripts. The document is preliminary until the month has ended and its amounts can no longer change.
     *
     * `GET /providers/{id}/fee-document`
     */
    feeDocumentHtml(query: BooksFeeDocumentHtmlQuery, options?: RequestOptions): Promise<Response>
  }
  readonly attention: {
    /**
     * Problems that need the provider: failed payments, webhooks and endpoints, withheld money, and gas.
     *
     * Each list is limited in length. Empty lists mean that nothing needs attention.
     *
     * `GET /providers/{id}/attention`
     */
    get(options?: RequestOptions): Promise<Attention>
  }
  readonly queue: {
    /**
     * Payments waiting for each wallet, and how far each trigger is from firing.
     *
     * `GET /providers/{id}/queue`
     */
    get(options?: RequestOptions): Promise<ProviderQueue>
  }
  readonly splitters: {
    /**
     * Settled payments that wait in the splitters of the provider's wallets.
     *
     * A payment with one signature settles into a splitter, which divides it between provider and platform. A batch pays a
     * splitter out once enough payments wait in it, or one has waited long enough. Anyone may pay it out at any time.
     *
     * `GET /providers/{id}/splitters`
     */
    list(query?: SplittersListQuery, options?: RequestOptions): List<SplitterBalance, SplitterBalances>
  }
  readonly batches: {
    /**
     * Batches that paid any of the provider's wallets, newest first.
     *
     * `GET /providers/{id}/batches`
     */
    list(query?: BatchesListQuery, options?: RequestOptions): List<ProviderBatch, ProviderBatches>
  }
  readonly webhooks: {
    /**
     * Register a URL that receives events.
     *
     * `POST /providers/{id}/webhooks`
     */
    create(body: NewWebhook, options?: RequestOptions): Promise<WebhookWithSecret>
    /**
     * List webhooks, without their secrets.
     *
     * `GET /providers/{id}/webhooks`
     */
    list(options?: RequestOptions): List<Webhook, Webhooks>
    /**
     * Read a webhook.
     *
     * `GET /providers/{id}/webhooks/{webhookId}`
     */
    get(webhookId: string, options?: RequestOptions): Promise<Webhook>
    /**
     * Delete a webhook; its waiting messages are dropped.
     *
     * `DELETE /providers/{id}/webhooks/{webhookId}`
     */
    delete(webhookId: string, options?: RequestOptions): Promise<void>
    /**
     * Rotate the secret; for 24 hours messages are also signed with the previous one.
     *
     * `POST /providers/{id}/webhooks/{webhookId}/rotate`
     */
    rotateSecret(webhookId: string, options?: RequestOptions): Promise<WebhookWithSecret>
    /**
     * Send a signed test event now, and return the URL’s answer.
     *
     * The event's type is `webhook.test`. It doesn't appear in the log of deliveries, and a failed test neither pauses nor
     * disables the webhook. At most 10 tests per minute and provider.
     *
     * `POST /providers/{id}/webhooks/{webhookId}/test`
     */
    test(webhookId: string, options?: RequestOptions): Promise<WebhookTestResult>
    /**
     * List messages, newest first, with every attempt.
     *
     * `GET /providers/{id}/webhooks/{webhookId}/deliveries`
     */
    deliveries(webhookId: string, query?: WebhooksDeliveriesQuery, options?: RequestOptions): List<WebhookDelivery, WebhookDeliveries>
    /**
     * Send a message again, even if it was delivered.
     *
     * `POST /providers/{id}/webhooks/{webhookId}/deliveries/{deliveryId}/redeliver`
     */
    redeliver(webhookId: string, deliveryId: string, options?: RequestOptions): Promise<void>
  }
  readonly settlements: {
    /**
     * Payments that a wallet is waiting for.
     *
     * Each request on a tab counts as a payment, within ten seconds of its purchase. For up to ten seconds after a tab closes
     * it may count twice.
     *
     * `GET /settlements/status`
     */
    status(query: SettlementsStatusQuery, options?: RequestOptions): Promise<SettlementStatus>
    /**
     * Settled batches, newest first.
     *
     * With `wallet`, counts and sums are those of this wallet; with `tx_hash` alone, those of all provider wallets.
     *
     * `GET /settlements/batches`
     */
    batches(query?: SettlementsBatchesQuery, options?: RequestOptions): List<SettlementBatch, SettlementBatches>
    /**
     * A wallet's batches in a range of days as CSV, oldest first.
     *
     * `start` and `end` are UTC dates, both inclusive.
     *
     * `GET /settlements/export`
     */
    export(query: SettlementsExportQuery, options?: RequestOptions): Promise<Response>
  }
  readonly networks: {
    /**
     * Networks on which payments settle, and networks that are announced but can not be used yet.
     *
     * The first one is used if a request names none.
     *
     * `GET /networks`
     */
    get(options?: RequestOptions): Promise<NetworkList>
  }
  readonly discovery: {
    /**
     * List what can be bought.
     *
     * In the form of x402 (Bazaar), best first. The facilitator gives the same answer.
     *
     * `GET /discovery/resources`
     */
    resources(query?: DiscoveryResourcesQuery, options?: RequestOptions): List<DiscoveryResource, DiscoveryResourcesAnswer>
    /**
     * Search the catalog for words in the descriptions.
     *
     * In the form of x402 (Bazaar), best first. The facilitator gives the same answer. Listings that contain more of the words
     * come first.
     *
     * `GET /discovery/search`
     */
    search(query: DiscoverySearchQuery, options?: RequestOptions): List<DiscoveryResource, DiscoverySearchAnswer>
    /**
     * List resources whose payments go to a wallet.
     *
     * In the form of x402 (Bazaar), best first. The facilitator gives the same answer.
     *
     * `GET /discovery/merchant`
     */
    merchant(query: DiscoveryMerchantQuery, options?: RequestOptions): List<DiscoveryResource, DiscoveryMerchantAnswer>
    /**
     * Documents for a provider to publish at its own origin, so that clients find what it sells there.
     *
     * A provider's middleware serves these documents.
     *
     * `GET /discovery/providers/{id}`
     */
    documents(query?: DiscoveryDocumentsQuery, options?: RequestOptions): Promise<Sales>
    /**
     * Check any x402 seller: request its payment terms and show what catalogs would find.
     *
     * Nothing is paid or listed. The URL is requested with GET, or with POST and the body `{}`. If it answers 402, the request
     * is repeated as a web page would send it, OPTIONS is sent, and after GET also HEAD. Redirects are not followed. At most
     * 10 checks per minute for each client address. Each checked host also has a limit for all callers together.
     *
     * `POST /discovery/validate`
     */
    validate(body: SellerQuestion, options?: RequestOptions): Promise<SellerValidation>
  }
}

/** Binds the methods to a provider. */
export function createResources(transport: Transport, providerId: string): ProviderResources {
  const own = encodeURIComponent(providerId)
  return {
    account: {
      get: (options) => transport.json({ method: 'GET', path: '/account', options }),
    },
    provider: {
      get: (options) => transport.json({ method: 'GET', path: `/providers/${own}`, options }),
      update: (body, options) => transport.json({ method: 'PATCH', path: `/providers/${own}`, body, options }),
      changes: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/changes`, query, options }, { items: (page: ProviderChangesAnswer) => page.changes, next: ({ cursor }) => cursor, position: 'cursor' }),
      sendContactCode: (options) => transport.nothing({ method: 'POST', path: `/providers/${own}/contact/code`, options }),
      confirmContact: (body, options) => transport.json({ method: 'POST', path: `/providers/${own}/contact/confirmation`, body, options }),
    },
    apiKeys: {
      create: (body, options) => transport.json({ method: 'POST', path: `/providers/${own}/keys`, body, options }),
      list: (options) => transport.list({ method: 'GET', path: `/providers/${own}/keys`, options }, { items: (page: ApiKeysListAnswer) => page.keys, next: () => null, position: 'offset' }),
      revoke: (keyId, query, options) => transport.nothing({ method: 'DELETE', path: `/providers/${own}/keys/${encodeURIComponent(keyId)}`, query, options }),
    },
    wallets: {
      create: (body, options) => transport.json({ method: 'POST', path: `/providers/${own}/wallets`, body, options }),
      list: (options) => transport.list({ method: 'GET', path: `/providers/${own}/wallets`, options }, { items: (page: WalletsListAnswer) => page.wallets, next: () => null, position: 'offset' }),
      get: (walletId, options) => transport.json({ method: 'GET', path: `/providers/${own}/wallets/${encodeURIComponent(walletId)}`, options }),
      replace: (walletId, body, options) => transport.json({ method: 'PATCH', path: `/providers/${own}/wallets/${encodeURIComponent(walletId)}`, body, options }),
      retire: (walletId, options) => transport.nothing({ method: 'DELETE', path: `/providers/${own}/wallets/${encodeURIComponent(walletId)}`, options }),
    },
    upstream: {
      set: (body, options) => transport.json({ method: 'PUT', path: `/providers/${own}/upstream`, body, options }),
      get: (options) => transport.json({ method: 'GET', path: `/providers/${own}/upstream`, options }),
      remove: (options) => transport.nothing({ method: 'DELETE', path: `/providers/${own}/upstream`, options }),
      rotateSecret: (options) => transport.json({ method: 'POST', path: `/providers/${own}/upstream/secret`, options }),
    },
    hook: {
      set: (body, options) => transport.json({ method: 'PUT', path: `/providers/${own}/hook`, body, options }),
      get: (options) => transport.json({ method: 'GET', path: `/providers/${own}/hook`, options }),
      remove: (options) => transport.nothing({ method: 'DELETE', path: `/providers/${own}/hook`, options }),
      rotateSecret: (options) => transport.json({ method: 'POST', path: `/providers/${own}/hook/secret`, options }),
      test: (options) => transport.json({ method: 'POST', path: `/providers/${own}/hook/test`, options }),
    },
    endpoints: {
      create: (body, options) => transport.json({ method: 'POST', path: `/providers/${own}/endpoints`, body, options }),
      list: (options) => transport.list({ method: 'GET', path: `/providers/${own}/endpoints`, options }, { items: (page: EndpointsListAnswer) => page.endpoints, next: () => null, position: 'offset' }),
      get: (endpointId, options) => transport.json({ method: 'GET', path: `/providers/${own}/endpoints/${encodeURIComponent(endpointId)}`, options }),
      update: (endpointId, body, options) => transport.json({ method: 'PATCH', path: `/providers/${own}/endpoints/${encodeURIComponent(endpointId)}`, body, options }),
      activity: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/endpoint-activity`, query, options }, { items: (page: EndpointActivity) => page.activity, next: ({ cursor }) => cursor, position: 'cursor' }),
      check: (endpointId, options) => transport.json({ method: 'POST', path: `/providers/${own}/endpoints/${encodeURIComponent(endpointId)}/check`, options }),
      usage: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/usage`, query, options }, { items: (page: Usage) => page.usage, next: ({ cursor }) => cursor, position: 'cursor' }),
    },
    payments: {
      list: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/payments`, query, options }, { items: (page: ProviderPayments) => page.payments, next: ({ cursor }) => cursor, position: 'cursor' }),
      csv: (query, options) => transport.file({ method: 'GET', path: `/providers/${own}/payments`, query: { ...query, format: 'csv' }, options }),
      get: (paymentId, options) => transport.json({ method: 'GET', path: `/payments/${encodeURIComponent(paymentId)}`, options }),
      totals: (query, options) => transport.json({ method: 'GET', path: `/providers/${own}/payments/totals`, query, options }),
      timeline: (paymentId, options) => transport.json({ method: 'GET', path: `/providers/${own}/payments/${encodeURIComponent(paymentId)}/timeline`, options }),
      void: (paymentId, options) => transport.json({ method: 'POST', path: `/payments/${encodeURIComponent(paymentId)}/void`, options }),
      requeue: (paymentId, options) => transport.json({ method: 'POST', path: `/payments/${encodeURIComponent(paymentId)}/requeue`, options }),
      requeueMany: (body, options) => transport.json({ method: 'POST', path: `/providers/${own}/payments/requeue`, body, options }),
      failures: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/failures`, query, options }, { items: (page: SettlementFailures) => page.failures, next: ({ cursor }) => cursor, position: 'cursor' }),
    },
    refunds: {
      get: (paymentId, options) => transport.json({ method: 'GET', path: `/providers/${own}/payments/${encodeURIComponent(paymentId)}/refunds`, options }),
      create: (paymentId, body, options) => transport.json({ method: 'POST', path: `/providers/${own}/payments/${encodeURIComponent(paymentId)}/refunds`, body, isRepeatable: true, options }),
    },
    passes: {
      list: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/passes`, query, options }, { items: (page: Passes) => page.passes, next: ({ cursor }) => cursor, position: 'cursor' }),
      ended: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/passes/ended`, query, options }, { items: (page: EndedPasses) => page.ended, next: ({ cursor }) => cursor, position: 'cursor' }),
    },
    receipts: {
      list: (query, options) => transport.lines({ method: 'GET', path: `/providers/${own}/receipts`, query, options }),
      get: (id, options) => transport.json({ method: 'GET', path: `/receipts/${encodeURIComponent(id)}`, options }),
    },
    payers: {
      list: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/payers`, query, options }, { items: (page: Payers) => page.payers, next: ({ cursor }) => cursor, position: 'cursor' }),
      get: (payer, query, options) => transport.json({ method: 'GET', path: `/providers/${own}/payers/${encodeURIComponent(payer)}`, query, options }),
      activity: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/payer-activity`, query, options }, { items: (page: PayerActivity) => page.activity, next: ({ cursor }) => cursor, position: 'cursor' }),
    },
    tabs: {
      list: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/tabs`, query, options }, { items: (page: ProviderTabs) => page.tabs, next: ({ cursor }) => cursor, position: 'cursor' }),
      get: (tabId, options) => transport.json({ method: 'GET', path: `/tabs/${encodeURIComponent(tabId)}`, options }),
      request: (tabId, sequence, options) => transport.json({ method: 'GET', path: `/tabs/${encodeURIComponent(tabId)}/requests/${encodeURIComponent(sequence)}`, options }),
      charge: (tabId, sequence, body, options) => transport.json({ method: 'POST', path: `/tabs/${encodeURIComponent(tabId)}/requests/${encodeURIComponent(sequence)}/charge`, body, isRepeatable: true, options }),
    },
    revenue: {
      list: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/revenue`, query, options }, { items: (page: Revenue) => page.revenue, next: ({ cursor }) => cursor, position: 'cursor' }),
    },
    books: {
      statement: (query, options) => transport.json({ method: 'GET', path: `/providers/${own}/statement`, query, options }),
      statementCsv: (query, options) => transport.file({ method: 'GET', path: `/providers/${own}/statement`, query: { ...query, format: 'csv' }, options }),
      bookkeeping: (query, options) => transport.json({ method: 'GET', path: `/providers/${own}/bookkeeping`, query, options }),
      bookkeepingCsv: (query, options) => transport.file({ method: 'GET', path: `/providers/${own}/bookkeeping`, query: { ...query, format: 'csv' }, options }),
      feeDocument: (query, options) => transport.json({ method: 'GET', path: `/providers/${own}/fee-document`, query, options }),
      feeDocumentHtml: (query, options) => transport.file({ method: 'GET', path: `/providers/${own}/fee-document`, query: { ...query, format: 'html' }, options }),
    },
    attention: {
      get: (options) => transport.json({ method: 'GET', path: `/providers/${own}/attention`, options }),
    },
    queue: {
      get: (options) => transport.json({ method: 'GET', path: `/providers/${own}/queue`, options }),
    },
    splitters: {
      list: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/splitters`, query, options }, { items: (page: SplitterBalances) => page.splitters, next: ({ cursor }) => cursor, position: 'cursor' }),
    },
    batches: {
      list: (query, options) => transport.list({ method: 'GET', path: `/providers/${own}/batches`, query, options }, { items: (page: ProviderBatches) => page.batches, next: ({ cursor }) => cursor, position: 'cursor' }),
    },
    webhooks: {
      create: (body, options) => transport.json({ method: 'POST', path: `/providers/${own}/webhooks`, body, options }),
      list: (options) => transport.list({ method: 'GET', path: `/providers/${own}/webhooks`, options }, { items: (page: Webhooks) => page.webhooks, next: () => null, position: 'offset' }),
      get: (webhookId, options) => transport.json({ method: 'GET', path: `/providers/${own}/webhooks/${encodeURIComponent(webhookId)}`, options }),
      delete: (webhookId, options) => transport.nothing({ method: 'DELETE', path: `/providers/${own}/webhooks/${encodeURIComponent(webhookId)}`, options }),
      rotateSecret: (webhookId, options) => transport.json({ method: 'POST', path: `/providers/${own}/webhooks/${encodeURIComponent(webhookId)}/rotate`, options }),
      test: (webhookId, options) => transport.json({ method: 'POST', path: `/providers/${own}/webhooks/${encodeURIComponent(webhookId)}/test`, options }),
      deliveries: (webhookId, query, options) => transport.list({ method: 'GET', path: `/providers/${own}/webhooks/${encodeURIComponent(webhookId)}/deliveries`, query, options }, { items: (page: WebhookDeliveries) => page.deliveries, next: ({ cursor }) => cursor, position: 'cursor' }),
      redeliver: (webhookId, deliveryId, options) => transport.nothing({ method: 'POST', path: `/providers/${own}/webhooks/${encodeURIComponent(webhookId)}/deliveries/${encodeURIComponent(deliveryId)}/redeliver`, options }),
    },
    settlements: {
      status: (query, options) => transport.json({ method: 'GET', path: '/settlements/status', query, options }),
      batches: (query, options) => transport.list({ method: 'GET', path: '/settlements/batches', query, options }, { items: (page: SettlementBatches) => page.batches, next: ({ cursor }) => cursor, position: 'cursor' }),
      export: (query, options) => transport.file({ method: 'GET', path: '/settlements/export', query, options }),
    },
    networks: {
      get: (options) => transport.json({ method: 'GET', path: '/networks', options }),
    },
    discovery: {
      resources: (query, options) => transport.list({ method: 'GET', path: '/discovery/resources', query, options }, { items: (page: DiscoveryResourcesAnswer) => page.items, next: ({ pagination, items }) => nextOffset(pagination, items.length), position: 'offset' }),
      search: (query, options) => transport.list({ method: 'GET', path: '/discovery/search', query, options }, { items: (page: DiscoverySearchAnswer) => page.resources, next: ({ pagination }) => pagination.cursor, position: 'cursor' }),
      merchant: (query, options) => transport.list({ method: 'GET', path: '/discovery/merchant', query, options }, { items: (page: DiscoveryMerchantAnswer) => page.resources, next: ({ pagination, resources }) => nextOffset(pagination, resources.length), position: 'offset' }),
      documents: (query, options) => transport.json({ method: 'GET', path: `/discovery/providers/${own}`, query, options }),
      validate: (body, options) => transport.json({ method: 'POST', path: '/discovery/validate', body, options }),
    },
  }
}

function nextOffset({ offset, total }: { offset: number; total: number }, count: number): string | null {
  return count === 0 || offset + count >= total ? null : String(offset + count)
}
