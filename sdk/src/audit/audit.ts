import { type Address, createPublicClient, http, type PublicClient } from 'viem'
import { keepRefusal } from '../nodes/nodeErrors.ts'
import type { Deployments } from '../protocol/deployments.ts'
import { BaseError, ProtocolError } from '../protocol/errors.ts'
import { type ReceiptClaims, type ReceiptTab, zeroHash } from '../protocol/receipt.ts'
import { maxRefunds, refundNonce } from '../protocol/refund.ts'
import { smallest } from './bigints.ts'
import { type ChainReader, openChainReader } from './chainReader.ts'
import { mapLimited } from './concurrency.ts'
import { type EvidenceByNonce, findEvidence, type Wanted } from './evidence.ts'
import { explain } from './explain.ts'
import { isOfWholeTab, judge, type Verdict } from './judge.ts'
import { findPayouts, payoutOf } from './payouts.ts'
import type {
  AuditedPayout,
  AuditedReceipt,
  AuditReason,
  AuditReport,
  UnreceiptedTransfer,
  WalletAudit,
} from './report.ts'
import { findLineNeeds, placeOf, sumByTab } from './tabLines.ts'
import { countStates, sumByBatch, sumByProvider } from './totals.ts'
import { type ReceiptKeys, verifyReceipt } from './verifyReceipt.ts'
import { findWalletTransfers } from './walletTransfers.ts'

const refundNumbers = Array.from({ length: maxRefunds }, (_, index) => index + 1)

/** How many signatures are verified at once. */
const signaturesAtOnce = 64

/** JWS compact serialization (RFC 7515 section 7.1). */
const compactPattern = /^[\w-]+\.[\w-]+\.[\w-]+$/

/** How far an audit has come. */
export type AuditProgress = {
  /** The meaning of `done`: signatures checked, authorizations found on chain, or transfers of a wallet found. */
  step: 'signatures' | 'chain' | 'wallet'
  done: number
  /** Absent if it isn't known beforehand. */
  total?: number
}

/** What is audited, and which keys and nodes are trusted. */
export type AuditOptions = {
  /** Receipts as JWS compact, in any order. A payment may have several. */
  receipts: readonly string[]
  /** The gateway's keys, current and retired, or the URL that serves them. */
  jwks: ReceiptKeys
  /** An RPC URL for each network that the receipts are on. Their answers are trusted, so use nodes of your own. */
  rpcUrls?: readonly string[]
  /** viem clients, instead of `rpcUrls` or besides. */
  clients?: readonly PublicClient[]
  /** The gateway's public URL. Receipts with another `iss` are `forged`. Default: any `iss` that the keys sign. */
  issuer?: string
  /** Also look for transfers to and from these wallets that no receipt accounts for. */
  wallets?: readonly Address[]
  /** The first second of the period that `wallets` covers, in Unix time. Default: from the first block that is read. */
  from?: bigint
  /** The last second of that period. Default: to the head. */
  to?: bigint
  /** Deployments, for a chain whose USDC isn't in our table (a local one). Default: those of this version. */
  deployments?: Deployments
  /** The first block that is read. Default: the one in which BatchSettlement was deployed. */
  fromBlock?: bigint
  /** How many blocks on top of a settlement confirm it. Default: the network's number. */
  confirmations?: number
  onProgress?: (progress: AuditProgress) => void
}

/**
 * Compares receipts with the chain, and trusts only the given keys and nodes.
 *
 * Checks each receipt's signature, and looks for each of its two authorizations in USDC's own logs: AuthorizationUsed with
 * the Transfer right after it, in a canonical block. A request on a tab is settled if TabSettlement moved the tab's nonce with the
 * request's line at the receipt's `lineTotal` or more, less what later receipts reduced, and to the receipt's platform. The events of
 * TabSettlement between USDC's logs say so, whoever called the contract; calldata isn't read. Doesn't ask the gateway. If a call fails the audit fails, because a failed call proves nothing.
 *
 * @returns a verdict for each receipt and sums by provider and by batch. Amounts are USDC base units, times Unix seconds.
 * @throws {ProtocolError} `unknown_network` for a receipt on a chain without a node; `dependency_unavailable`
 * if a chain or the keys can't be read.
 * @example
 * import { audit } from '@tollkeeper/sdk/audit'
 *
 * // Whether every receipt is settled, or voided with nothing moved.
 * export async function isReconciled(receipts: string[]): Promise<boolean> {
 *   const report = await audit({
 *     receipts,
 *     jwks: 'https://gateway.example/.well-known/jwks.json',
 *     issuer: 'https://gateway.example',
 *     rpcUrls: ['http://127.0.0.1:8545'],
 *   })
 *   return report.reconciled
 * }
 */
export async function audit(options: AuditOptions): Promise<AuditReport> {
  const { wallets = [], onProgress = () => {} } = options
  const readers = await openReaders(options)
  const read = await readReceipts(options, onProgress)
  const genuine = read.filter((one): one is Genuine => one.claims !== undefined)
  refuseUnreadable(genuine, readers)

  const evidence = await findAllEvidence(genuine, readers, onProgress)
  const owners = findOwners(genuine)
  const latest = findLatest(genuine)
  const needOf = findLineNeeds([...latest.values()].map(({ claims }) => claims))
  const receipts: AuditedReceipt[] = []
  for (const one of read)
    if (!one.claims) receipts[one.position] = { ...one, state: 'forged', reconciled: false }
  for (const [name, reader] of readers) {
    const own = genuine.filter(({ claims }) => claims.network === name)
    const found = evidence.get(name) ?? new Map()
    const confirmations = options.confirmations ?? reader.network.confirmations
    const judged = own.map((one): Judged => {
      // A request on a tab stands as its last receipt says: what it was reduced to isn't owed any more.
      const claims = one.claims.tab ? (latest.get(keyOf(one.claims)) ?? one).claims : one.claims
      return { ...one, verdict: judge(claims, found, { ...reader, confirmations }, needOf(claims)) }
    })
    const payouts = await findPayouts(reader, splittersPaidBy(judged))
    for (const one of judged) {
      const payout = isOfWholeTab(one.claims)
        ? undefined
        : payoutOf(one.claims, one.verdict.halves[0], payouts, reader.splitterFactory)
      receipts[one.position] = describeReceipt(one, owners, payout)
    }
  }

  const walletAudits: WalletAudit[] = []
  for (const wallet of wallets) {
    for (const reader of readers.values()) {
      walletAudits.push(await auditWallet(wallet, reader, genuine, options))
    }
  }
  const distinct = [...latest.values()].flatMap(({ position }) => receipts[position] ?? [])
  return {
    reconciled:
      receipts.every(({ reconciled }) => reconciled) &&
      walletAudits.every(({ unreceipted }) => unreceipted.length === 0),
    receipts,
    states: countStates(receipts),
    providers: sumByProvider(distinct),
    batches: sumByBatch(distinct),
    tabs: sumByTab(
      distinct,
      new Map(genuine.map(({ position, claims }) => [position, claims])),
      needOf,
      evidence,
    ),
    wallets: walletAudits,
    heads: [...readers.values()].map(({ network, head }) => ({
      network: network.name,
      blockNumber: head.number,
      blockHash: head.hash,
      blockTime: head.time,
    })),
  }
}

type Genuine = { position: number; claims: ReceiptClaims }
type Forged = { position: number; claims?: undefined; reason: AuditReason; detail: string }

type Judged = Genuine & { verdict: Verdict }

/** The splitters that receipts have paid, and the first block in which one did. */
function splittersPaidBy(judged: readonly Judged[]): { splitter: Address; since: bigint }[] {
  const since = new Map<Address, bigint>()
  for (const { claims, verdict } of judged) {
    const [{ to, onChain }] = verdict.halves
    if (!claims.split || claims.tab || isOfWholeTab(claims) || !onChain) continue
    since.set(to, smallest(onChain.blockNumber, since.get(to) ?? onChain.blockNumber))
  }
  return [...since].map(([splitter, first]) => ({ splitter, since: first }))
}

async function openReaders(options: AuditOptions): Promise<Map<string, ChainReader>> {
  const { rpcUrls = [], clients = [] } = options
  const nodes = [
    ...clients.map((client) => ({ client, name: client.transport.name })),
    ...rpcUrls.map((url) => ({
      client: createPublicClient({
        transport: http(url, {
          batch: { batchSize: 100, wait: 0 },
          timeout: 30_000,
          onFetchResponse: keepRefusal,
        }),
      }),
      // Paths and queries of RPC URLs hold credentials.
      name: new URL(url).host,
    })),
  ]
  const readers = new Map<string, ChainReader>()
  for (const { client, name } of nodes) {
    const reader = await openChainReader(client, options).catch((error: unknown) => {
      if (error instanceof BaseError) throw error
      const reason = error instanceof Error && 'shortMessage' in error ? error.shortMessage : String(error)
      throw new ProtocolError('dependency_unavailable', `The chain behind ${name} can't be read: ${reason}`, {
        cause: error,
      })
    })
    readers.set(reader.network.name, reader)
  }
  return readers
}

async function readReceipts(
  { receipts, jwks, issuer }: AuditOptions,
  onProgress: (progress: AuditProgress) => void,
): Promise<(Genuine | Forged)[]> {
  const total = receipts.length
  const read = await mapLimited([...receipts.entries()], signaturesAtOnce, async ([position, jws]) => {
    const one = await readReceipt(jws, position, jwks, issuer)
    if (position % signaturesAtOnce === 0) onProgress({ step: 'signatures', done: position, total })
    return one
  })
  onProgress({ step: 'signatures', done: total, total })
  return read
}

async function readReceipt(
  jws: string,
  position: number,
  jwks: ReceiptKeys,
  issuer: string | undefined,
): Promise<Genuine | Forged> {
  if (!compactPattern.test(jws)) {
    return { position, reason: 'not_a_jws', detail: 'Not a JWS in compact form' }
  }
  try {
    const claims = await verifyReceipt(jws, jwks)
    if (issuer !== undefined && claims.iss !== issuer) {
      return { position, reason: 'other_issuer', detail: `Signed for ${claims.iss}, not for ${issuer}` }
    }
    return { position, claims }
  } catch (error) {
    if (!(error instanceof ProtocolError) || error.code !== 'invalid_receipt') throw error
    const reason = 'field' in error.details ? 'bad_claims' : 'bad_signature'
    return { position, reason, detail: error.message }
  }
}

function refuseUnreadable(genuine: readonly Genuine[], readers: ReadonlyMap<string, ChainReader>): void {
  const unread = new Set(genuine.map(({ claims }) => claims.network).filter((name) => !readers.has(name)))
  if (unread.size === 0) return
  const given = [...readers.keys()].join(', ') || 'none'
  throw new ProtocolError(
    'unknown_network',
    `There are receipts on ${[...unread].join(', ')}: give an RPC URL of each (got ${given})`,
  )
}

async function findAllEvidence(
  genuine: readonly Genuine[],
  readers: ReadonlyMap<string, ChainReader>,
  onProgress: (progress: AuditProgress) => void,
): Promise<Map<string, EvidenceByNonce>> {
  const wanted = new Map<string, Map<string, Wanted>>()
  for (const { claims } of genuine) {
    const ofNetwork = wanted.get(claims.network) ?? new Map<string, Wanted>()
    for (const one of wantedOf(claims)) {
      const key = `${one.payer} ${one.nonce}`
      // If a payment has several receipts, the one with a transaction is the better hint.
      if (one.hint || !ofNetwork.has(key)) ofNetwork.set(key, one)
    }
    wanted.set(claims.network, ofNetwork)
  }
  const total = [...wanted.values()].reduce((sum, { size }) => sum + size, 0)
  const evidence = new Map<string, EvidenceByNonce>()
  let finished = 0
  for (const [name, ofNetwork] of wanted) {
    const reader = readers.get(name)
    if (!reader) continue
    const onFound = (count: number) => onProgress({ step: 'chain', done: finished + count, total })
    evidence.set(name, await findEvidence(reader, [...ofNetwork.values()], onFound))
    finished += ofNetwork.size
    onFound(0)
  }
  return evidence
}

function wantedOf(claims: ReceiptClaims): Wanted[] {
  const acceptedAt = BigInt(Math.floor(Date.parse(claims.timestamp) / 1000))
  const { payer, transactionHash, refunds = [] } = claims
  return [
    ...claims.authorizations.map(({ nonce }) => ({
      payer,
      nonce,
      acceptedAt,
      validBefore: BigInt(claims.validBefore),
      ...(transactionHash !== zeroHash && { hint: transactionHash }),
    })),
    // The receipt doesn't say when they were signed, only that it was before the receipt.
    ...refunds.map(({ from, nonce, transactionHash }) => ({
      payer: from,
      nonce,
      acceptedAt,
      validBefore: BigInt(claims.iat),
      ...(transactionHash !== zeroHash && { hint: transactionHash }),
    })),
  ]
}

/** Finds who had each authorization first: a payment, or for a request of a tab its number. */
function findOwners(genuine: readonly Genuine[]): Map<string, string> {
  const owners = new Map<string, string>()
  const inTime = [...genuine].sort(
    (a, b) =>
      Date.parse(a.claims.timestamp) - Date.parse(b.claims.timestamp) ||
      a.claims.iat - b.claims.iat ||
      a.position - b.position,
  )
  for (const { claims } of inTime) {
    for (const key of ownedKeys(claims)) {
      if (!owners.has(key)) owners.set(key, ownerOf(claims))
    }
  }
  return owners
}

/** What belongs to one payment alone: its authorizations, or the number of a request on a tab. */
function ownedKeys(claims: ReceiptClaims): string[] {
  const { tab } = claims
  return tab ? authorizationKeys(claims).map((key) => `${key} ${tab.sequence}`) : authorizationKeys(claims)
}

/** A receipt that was signed again has the same owner: the same payment, or the same request. */
function ownerOf({ paymentId, endpointId, totalUsdc, timestamp, tab }: ReceiptClaims): string {
  if (!tab) return paymentId
  const price = BigInt(totalUsdc) + BigInt(tab.reduced ?? 0)
  return [paymentId, tab.sequence, endpointId, price, tab.split, timestamp].join(' ')
}

function authorizationKeys({ network, payer, authorizations }: ReceiptClaims): string[] {
  return authorizations.map(({ nonce }) => `${network} ${payer} ${nonce}`)
}

function describeReceipt(
  { position, claims, verdict }: Judged,
  owners: ReadonlyMap<string, string>,
  payout: AuditedPayout | 'waiting' | undefined,
): AuditedReceipt {
  const { halves, isSuperseded } = verdict
  const { paymentId, providerId, endpointId, network, payer, timestamp } = claims
  const described = {
    position,
    payment: {
      paymentId,
      providerId,
      endpointId,
      network,
      payer,
      timestamp,
      providerAmount: BigInt(claims.providerUsdc),
      platformAmount: BigInt(claims.platformUsdc),
      transactionHash: claims.transactionHash,
      ...(claims.split && !claims.tab && !isOfWholeTab(claims) && { splitter: claims.authorizations[0].to }),
      ...(claims.tab && { tab: toReported(claims.tab) }),
    },
    halves,
    ...(payout && payout !== 'waiting' && { payout }),
    ...(isSuperseded && { isSuperseded }),
    ...(verdict.refunds && { refunds: verdict.refunds }),
  }
  const owner = ownedKeys(claims)
    .map((key) => owners.get(key))
    .find((first) => first !== ownerOf(claims))
  if (owner !== undefined) {
    const duplicateOf = claims.tab ? claims.paymentId : owner
    const shared = claims.tab
      ? `Has number ${claims.tab.sequence} of the tab, which another request had first`
      : `Shares an authorization with payment ${duplicateOf}, which had it first`
    const reason = claims.tab ? 'sequence_shared' : 'authorization_shared'
    return { ...described, state: 'duplicate', reason, reconciled: false, detail: shared, duplicateOf }
  }
  const { state, reason, reconciled } = verdict
  return { ...described, state, ...(reason && { reason }), reconciled, detail: explain(verdict, payout) }
}

function toReported({ id, sequence, split, lineTotal }: ReceiptTab) {
  return { id, sequence, split, lineTotal: BigInt(lineTotal) }
}

/** Finds the latest receipt of each payment, and of each request on a tab, by {@link keyOf}. */
function findLatest(genuine: readonly Genuine[]): Map<string, Genuine> {
  const last = new Map<string, Genuine>()
  for (const one of genuine) {
    const known = last.get(keyOf(one.claims))
    if (!known || isLater(one.claims, known.claims)) last.set(keyOf(one.claims), one)
  }
  return last
}

/** Within a second the charge decides: a request is reduced first, and may be raised again below others. */
function isLater(one: ReceiptClaims, known: ReceiptClaims): boolean {
  if (one.iat !== known.iat) return one.iat > known.iat
  const [place, before] = [placeOf(one), placeOf(known)]
  return place === before ? BigInt(one.tab?.reduced ?? 0) >= BigInt(known.tab?.reduced ?? 0) : place > before
}

function keyOf(claims: ReceiptClaims): string {
  return `${ownerOf(claims)} ${ownedKeys(claims).join(' ')}`
}

async function auditWallet(
  address: Address,
  reader: ChainReader,
  genuine: readonly Genuine[],
  { from = 0n, to, onProgress = () => {} }: AuditOptions,
): Promise<WalletAudit> {
  const wallet = address.toLowerCase() as Address
  const network = reader.network.name
  const until = to ?? reader.head.time
  const found = await findWalletTransfers(reader, wallet, from, until, (done) =>
    onProgress({ step: 'wallet', done }),
  )
  const known = new Set(genuine.flatMap(({ claims }) => authorizationKeys(claims)))
  // Refunds made after the receipt was signed count, too: they have nonces of their own.
  const refunds = new Map(
    genuine.flatMap(({ claims }) =>
      refundNumbers.map((number) => [refundNonce(claims.iss, claims.paymentId, number), claims] as const),
    ),
  )
  const unreceipted = found.authorized.flatMap((evidence): UnreceiptedTransfer[] => {
    const { authorizer, nonce, transfer, transactionHash, blockNumber, blockTime, logIndex } = evidence
    if (!transfer || known.has(`${network} ${authorizer} ${nonce}`)) return []
    const refunded = refunds.get(nonce)
    if (refunded?.network === network && refunded.payer === transfer.to) return []
    const direction = transfer.to === wallet ? 'in' : 'out'
    const where = { transactionHash, blockNumber, blockTime, logIndex }
    return [{ network, direction, from: authorizer, ...transfer, nonce, ...where }]
  })
  return {
    wallet,
    network,
    from,
    to: until,
    transfers: found.authorized.length,
    plainTransfers: found.plain,
    unreceipted,
  }
}
