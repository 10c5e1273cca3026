import { type Address, createPublicClient, http, type PublicClient } from 'viem'
import { keepRefusal } from '../nodes/nodeErrors.ts'
import type { Deployments } from '../protocol/deployments.ts'
import { BaseError, ProtocolError } from '../protocol/errors.ts'
import { type ReceiptClaims, type ReceiptTab, zeroHash } from '../protocol/receipt.ts'
import { maxRefunds, refundNonce } from '../protocol/refund.ts'
import { tabNonce } from '../protocol/tab.ts'
import {
  type GenuineTabLine,
  type JudgedTabLines,
  judgeTabLines,
  lineKey,
  readTabLines,
  wantedOfTabLine,
} from './auditTabLines.ts'
import { smallest } from './bigints.ts'
import { type ChainReader, openChainReader } from './chainReader.ts'
import { mapLimited } from './concurrency.ts'
import { type EvidenceByNonce, findEvidence, type Wanted } from './evidence.ts'
import { explain } from './explain.ts'
import { type ChainFacts, isOfWholeTab, judge, type Verdict } from './judge.ts'
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
import { countStates, sumByBatch, sumByProvider, sumCounts } from './totals.ts'
import { type ReceiptKeys, verifyReceipt } from './verifyReceipt.ts'
import { findWalletTransfers } from './walletTransfers.ts'

const refundNumbers = Array.from({ length: maxRefunds }, (_, index) => index + 1)

/** Maximum number of signatures that are verified at once. */
const signaturesAtOnce = 64

/** JWS compact serialization (RFC 7515 section 7.1). */
const compactPattern = /^[\w-]+\.[\w-]+\.[\w-]+$/

/** Progress of an audit. */
export type AuditProgress = {
  /** What `done` counts: verified signatures, authorizations found on chain, or transfers found for a wallet. */
  step: 'signatures' | 'chain' | 'wallet'
  done: number
  /** Undefined if the total isn't known in advance. */
  total?: number
}

/** What to audit, and which keys and nodes to trust. */
export type AuditOptions = {
  /** Receipts as JWS compact, in any order. A payment may have several receipts. */
  receipts: readonly string[]
  /** Tab lines as JWS compact, in any order. A tab line is the gateway's record of what a provider sold on one line of a tab. */
  tabLines?: readonly string[]
  /** Reports only payments and sales that were accepted in [from, to), in Unix seconds. Default: all. */
  period?: { from: bigint; to: bigint }
  /** The provider to audit. Tab lines of other providers are rejected. Default: any provider. */
  provider?: string
  /** The gateway's keys, current and retired, or the URL that serves them. */
  jwks: ReceiptKeys
  /** An RPC URL for each network of the receipts. Their responses are trusted, so use your own nodes. */
  rpcUrls?: readonly string[]
  /** viem clients, which replace `rpcUrls` or add to them. */
  clients?: readonly PublicClient[]
  /** The gateway's public URL. Receipts with another `iss` are `forged`. Default: any `iss` that the keys signed. */
  issuer?: string
  /** Wallets whose transfers are also searched, to find transfers that no receipt accounts for. */
  wallets?: readonly Address[]
  /** The first second of the period that `wallets` covers, in Unix time. Default: from the first block that is read. */
  from?: bigint
  /** The last second of the period that `wallets` covers, in Unix time. Default: up to the newest block. */
  to?: bigint
  /** Deployments, for a chain whose USDC isn't in our table (a local chain). Default: those of this version. */
  deployments?: Deployments
  /** The first block to read. Default: the block in which BatchSettlement was deployed. */
  fromBlock?: bigint
  /** Number of confirmations after which a settlement counts as confirmed. Default: the network's number. */
  confirmations?: number
  onProgress?: (progress: AuditProgress) => void
}

/**
 * Compares receipts with the chain. Trusts only the given keys and nodes.
 *
 * Verifies each receipt's signature, and looks for its authorizations (one or two) in USDC's own logs: AuthorizationUsed followed directly by the
 * Transfer, in a canonical block. A request on a tab is settled if TabSettlement executed the tab's authorization, the request's line received at
 * least the receipt's `lineTotal` minus later reductions, and the platform is the one in the receipt. The events that TabSettlement emits between
 * USDC's logs show this, regardless of who called the contract. The audit doesn't read calldata.
 *
 * A tab line is settled if the tab's line received exactly the amount that the tab line states. The tab line must also agree with the receipts of its
 * requests, if there are any. The audit doesn't ask the gateway. If a call to a node fails, the audit fails too: otherwise a transfer that the node
 * didn't report would look missing.
 *
 * @returns a verdict for each receipt, and sums by provider and by batch. Amounts are in USDC base units, and times are in Unix seconds.
 * @throws {ProtocolError} `unknown_network` for a receipt on a chain without a node; `dependency_unavailable`
 * if a chain or the keys can't be read.
 * @example
 * import { audit } from '@tollkeeper/sdk/audit'
 *
 * // Returns whether every receipt is settled, or voided without any transfer.
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
  const lines = await readTabLines(options.tabLines ?? [], options)
  const genuineLines = lines.filter((one): one is GenuineTabLine => one.claims !== undefined)
  const accepted = [...genuine, ...genuineLines].map(({ claims }) => claims)
  refuseUnreadable(accepted, readers)

  const evidence = await findAllEvidence(genuine, genuineLines, readers, onProgress)
  const owners = findOwners(genuine)
  const latest = findLatest(genuine)
  const needOf = findLineNeeds([...latest.values()].map(({ claims }) => claims))
  const receipts: AuditedReceipt[] = []
  const factsOf = (reader: ChainReader): ChainFacts => ({
    ...reader,
    confirmations: options.confirmations ?? reader.network.confirmations,
  })
  for (const one of read)
    if (!one.claims) receipts[one.position] = { ...one, state: 'forged', reconciled: false }
  for (const [name, reader] of readers) {
    const own = genuine.filter(({ claims }) => claims.network === name)
    const found = evidence.get(name) ?? new Map()
    const judged = own.map((one): Judged => {
      // Use the amount in the request's latest receipt: if the price was reduced later, the buyer no longer owes the difference.
      const claims = one.claims.tab ? (latest.get(keyOf(one.claims)) ?? one).claims : one.claims
      return { ...one, verdict: judge(claims, found, factsOf(reader), needOf(claims)) }
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
      walletAudits.push(await auditWallet(wallet, reader, genuine, genuineLines, options))
    }
  }
  const isDuplicate = ({ position }: Genuine) => receipts[position]?.state === 'duplicate'
  const judgedLines = judgeTabLines(lines, {
    receipts: [...latest.values()].filter((one) => !isDuplicate(one)).map(({ claims }) => claims),
    evidence,
    factsOf: (network) => factsOf(readers.get(network) as ChainReader),
    provider: options.provider,
  })
  const { tabLines, counted } = restrictTo(judgedLines, genuineLines, options.period)
  const isReported = ({ timestamp }: { timestamp: string }) => isWithin(options.period, Date.parse(timestamp))
  const reported = receipts.filter(({ payment }) => payment === undefined || isReported(payment))
  const covered = new Set(judgedLines.counted.map(({ claims }) => lineKey(claims)))
  // Don't count a request twice: if a tab line counts it, leave out its receipt. Tab lines don't contain voided requests, so keep their receipts.
  const distinct = [...latest.values()]
    .filter(({ claims }) => isReported(claims))
    .filter(({ claims }) => !claims.tab || claims.status === 'voided' || !covered.has(lineKey(claims)))
    .flatMap(({ position }) => receipts[position] ?? [])
  const providers = sumByProvider(distinct, counted)
  return {
    reconciled:
      reported.every(({ reconciled }) => reconciled) &&
      tabLines.every(({ reconciled }) => reconciled) &&
      walletAudits.every(({ unreceipted }) => unreceipted.length === 0),
    receipts: reported,
    tabLines,
    counts: sumCounts(providers),
    states: countStates(reported),
    providers,
    batches: sumByBatch(distinct, counted),
    tabs: sumByTab(
      [...latest.values()]
        .filter(({ claims }) => isReported(claims))
        .flatMap(({ position }) => receipts[position] ?? []),
      new Map(genuine.map(({ position, claims }) => [position, claims])),
      needOf,
      evidence,
      tabLines,
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

/** Removes the tab lines without a sale in the period, and from the remaining tab lines the sales outside the period. */
function restrictTo(
  { tabLines, counted }: JudgedTabLines,
  genuine: readonly GenuineTabLine[],
  period: AuditOptions['period'],
): JudgedTabLines {
  const isSold = new Map(
    genuine.map(({ position, claims }) => [
      position,
      claims.sales.some(({ lastAt }) => isWithin(period, Date.parse(lastAt))),
    ]),
  )
  return {
    tabLines: tabLines.filter(({ position }) => isSold.get(position) ?? true),
    counted: counted.map((one) => ({
      ...one,
      sales: one.sales.filter(({ lastAt }) => isWithin(period, lastAt)),
    })),
  }
}

/** Returns whether a time in Unix milliseconds is in a period in Unix seconds. */
function isWithin(period: AuditOptions['period'], milliseconds: number): boolean {
  if (period === undefined) return true
  return milliseconds >= Number(period.from) * 1000 && milliseconds < Number(period.to) * 1000
}

type Genuine = { position: number; claims: ReceiptClaims }
type Forged = { position: number; claims?: undefined; reason: AuditReason; detail: string }

type Judged = Genuine & { verdict: Verdict }

/** Returns the splitters that receipts paid, each with the first block in which a receipt paid it. */
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
      // Paths and queries of RPC URLs may contain credentials.
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

function refuseUnreadable(
  accepted: readonly { network: string }[],
  readers: ReadonlyMap<string, ChainReader>,
): void {
  const unread = new Set(accepted.map(({ network }) => network).filter((name) => !readers.has(name)))
  if (unread.size === 0) return
  const given = [...readers.keys()].join(', ') || 'none'
  throw new ProtocolError(
    'unknown_network',
    `There are receipts on ${[...unread].join(', ')}: pass an RPC URL for each (got ${given})`,
  )
}

async function findAllEvidence(
  genuine: readonly Genuine[],
  lines: readonly GenuineTabLine[],
  readers: ReadonlyMap<string, ChainReader>,
  onProgress: (progress: AuditProgress) => void,
): Promise<Map<string, EvidenceByNonce>> {
  const wanted = new Map<string, Map<string, Wanted>>()
  const asked = [
    ...genuine.map(({ claims }) => ({ network: claims.network, own: wantedOf(claims) })),
    ...lines.map(({ claims }) => ({ network: claims.network, own: [wantedOfTabLine(claims)] })),
  ]
  for (const { network, own } of asked) {
    const ofNetwork = wanted.get(network) ?? new Map<string, Wanted>()
    for (const one of own) {
      const key = `${one.payer} ${one.nonce}`
      // If a payment has several receipts, use a receipt that names a transaction, because the search starts in that transaction.
      if (one.hint || !ofNetwork.has(key)) ofNetwork.set(key, one)
    }
    wanted.set(network, ofNetwork)
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
    // The receipt doesn't contain the validity of a refund, so search until the time at which the receipt was signed.
    ...refunds.map(({ from, nonce, transactionHash }) => ({
      payer: from,
      nonce,
      acceptedAt,
      validBefore: BigInt(claims.iat),
      ...(transactionHash !== zeroHash && { hint: transactionHash }),
    })),
  ]
}

/** Finds the owner of each key of {@link ownedKeys}. If several receipts have a key, the receipt with the earliest payment determines its owner. */
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

/** Returns the keys that only one payment may have: its authorizations or, on a tab, the tab's authorization with the request's number. */
function ownedKeys(claims: ReceiptClaims): string[] {
  const { tab } = claims
  return tab ? authorizationKeys(claims).map((key) => `${key} ${tab.sequence}`) : authorizationKeys(claims)
}

/**
 * Returns the owner of a receipt: the id of its payment, or the facts that identify a request on a tab. If the gateway signs a receipt again, its
 * owner stays the same.
 */
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
      status: claims.status,
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
      ? `Number ${claims.tab.sequence} of the tab belongs to an earlier request`
      : `Payment ${duplicateOf} used the same authorization first`
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

/**
 * Returns whether a receipt is later than the known receipt of the same request. If both were signed in the same second, the charge decides.
 * Raising a charge moves the request to the end of its line, so a receipt with a later position is later. At the same position, the receipt
 * with the larger reduction is later.
 */
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
  lines: readonly GenuineTabLine[],
  { from = 0n, to, onProgress = () => {} }: AuditOptions,
): Promise<WalletAudit> {
  const wallet = address.toLowerCase() as Address
  const network = reader.network.name
  const until = to ?? reader.head.time
  const found = await findWalletTransfers(reader, wallet, from, until, (done) =>
    onProgress({ step: 'wallet', done }),
  )
  const known = new Set([
    ...genuine.flatMap(({ claims }) => authorizationKeys(claims)),
    ...lines.map(
      ({ claims: { network, payer, iss, tab } }) => `${network} ${payer} ${tabNonce(iss, tab.id)}`,
    ),
  ])
  // A refund made after the receipt was signed is also accounted for. Each refund has its own nonce.
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
