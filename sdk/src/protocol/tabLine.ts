import type { Address, Hash, Hex } from 'viem'
import { addressPattern, amountPattern, fieldsOf, wordPattern } from './fields.ts'
import { isNetworkName, networkByName } from './networks.ts'
import { isPaymentStatus, type PaymentStatus } from './paymentStatus.ts'

/** The `typ` in the JWS header of a tab line. It distinguishes a tab line from a receipt. */
export const tabLineType = 'x402-tab-line+jwt'

/** A provider's sales on a line, for one endpoint within one hour. Amounts are USDC base units, decimal. */
export type TabLineSale = {
  endpointId: string
  /** Number of charged requests. */
  requests: number
  totalUsdc: string
  providerUsdc: string
  platformUsdc: string
  /** When the last of these requests was accepted, in ISO 8601 UTC. */
  lastAt: string
}

/**
 * The payload of a tab line's JWS: what a provider sold on one line of a tab, as the gateway recorded it when the tab closed. Amounts are USDC base
 * units, decimal.
 */
export type TabLineClaims = {
  /** The gateway's public URL. */
  iss: string
  /** When this tab line was signed, in Unix seconds. */
  iat: number
  /** Status of the payment that settles the tab. */
  status: PaymentStatus
  network: string
  testnet: boolean
  asset: Address
  /** TabSettlement, the only contract that can settle the tab. */
  contract: Address
  paymentId: string
  providerId: string
  payer: Address
  /** Expiry in Unix seconds, decimal. The tab can't settle afterwards. */
  validBefore: string
  /** The wallets that the line pays: the provider's and the platform's. */
  payee: Address
  platform: Address
  tab: {
    id: string
    /** The provider's wallet and the shares: 32 bytes in the packed form of `encodeSplit`. */
    split: Hex
    /** The reward for settling, in basis points of the platform's part. */
    rewardShare: number
    /** The number and the digest (see `tabStateDigest`) of the state that settles. */
    sequence: number
    state: Hash
  }
  /** The sums of `sales`: the number of charged requests, and their amounts. */
  requests: number
  totalUsdc: string
  providerUsdc: string
  platformUsdc: string
  /** The sales, in the order of purchase. */
  sales: TabLineSale[]
  line: {
    /** The amount on the line that the buyer signed in the state that settles. */
    signedUsdc: string
    /** The part of the signed amount that the buyer owes for requests. After the settlement, the rest is the buyer's credit. */
    chargedUsdc: string
    /** The part of the sales that the buyer paid with credit from earlier tabs. `totalUsdc + othersUsdc = chargedUsdc + creditUsdc`. */
    creditUsdc: string
    /** Sales on this line by other providers that have the same wallet. */
    othersUsdc: string
    /** The amount that was paid on the line. Set only if the tab settled in a different state than the state named above. */
    movedUsdc?: string
  }
  openedAt: string
  closedAt: string
  /** Transaction of the settlement. 32 zero bytes until it is confirmed. */
  transactionHash: Hash
  blockHash?: Hash
}

const timePattern = /^(?:0|[1-9]\d{0,12})$/
const isoTimePattern = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z$/
/**
 * Maximum number of sales. A tab is open for at most a day and has at most 128 lines, so the sales of one provider on one tab stay far below this
 * number.
 */
const maxSales = 10_000

const { invalid, object, text, integer } = fieldsOf('invalid_receipt', 'Tab line', /^.{1,4096}$/s)

/**
 * Reads the claims of a tab line whose signature was verified, and checks that the claims are consistent.
 *
 * Ignores unknown claims. `verifyTabLine` of `@tollkeeper/sdk/audit` also verifies the signature.
 *
 * @param payload the JWS's payload as parsed JSON.
 * @throws {ProtocolError} `invalid_receipt`, with `details.field`.
 */
export function parseTabLineClaims(payload: unknown): TabLineClaims {
  const claims = object(payload, 'tabLine')
  const tab = object(claims.tab, 'tab')
  const line = object(claims.line, 'line')
  const { status, testnet } = claims
  if (!isPaymentStatus(status)) throw invalid('status', 'a payment status')
  if (typeof testnet !== 'boolean') throw invalid('testnet', 'true or false')
  if (!Array.isArray(claims.sales) || claims.sales.length === 0 || claims.sales.length > maxSales)
    throw invalid('sales', `1 to ${maxSales} sales`)
  const read: TabLineClaims = {
    iss: text(claims, 'iss'),
    iat: integer(claims.iat, 'iat', [0, Number.MAX_SAFE_INTEGER], 'Unix seconds'),
    status,
    network: text(claims, 'network'),
    testnet,
    asset: text(claims, 'asset', addressPattern) as Address,
    contract: text(claims, 'contract', addressPattern) as Address,
    paymentId: text(claims, 'paymentId'),
    providerId: text(claims, 'providerId'),
    payer: text(claims, 'payer', addressPattern) as Address,
    validBefore: text(claims, 'validBefore', timePattern),
    payee: text(claims, 'payee', addressPattern) as Address,
    platform: text(claims, 'platform', addressPattern) as Address,
    tab: {
      id: text(tab, 'id', /^tab_[0-9a-f]{32}$/, 'tab'),
      split: text(tab, 'split', wordPattern, 'tab') as Hex,
      rewardShare: integer(tab.rewardShare, 'tab.rewardShare', [0, 10_000], 'basis points, 0 to 10000'),
      sequence: integer(tab.sequence, 'tab.sequence', [1, 2 ** 40 - 1]),
      state: text(tab, 'state', wordPattern, 'tab') as Hash,
    },
    requests: integer(claims.requests, 'requests', [1, Number.MAX_SAFE_INTEGER], 'an integer from 1'),
    totalUsdc: text(claims, 'totalUsdc', amountPattern),
    providerUsdc: text(claims, 'providerUsdc', amountPattern),
    platformUsdc: text(claims, 'platformUsdc', amountPattern),
    sales: claims.sales.map(parseSale),
    line: {
      signedUsdc: text(line, 'signedUsdc', amountPattern, 'line'),
      chargedUsdc: text(line, 'chargedUsdc', amountPattern, 'line'),
      creditUsdc: text(line, 'creditUsdc', amountPattern, 'line'),
      othersUsdc: text(line, 'othersUsdc', amountPattern, 'line'),
      ...(line.movedUsdc !== undefined && { movedUsdc: text(line, 'movedUsdc', amountPattern, 'line') }),
    },
    openedAt: text(claims, 'openedAt', isoTimePattern),
    closedAt: text(claims, 'closedAt', isoTimePattern),
    transactionHash: text(claims, 'transactionHash', wordPattern) as Hash,
    ...(claims.blockHash !== undefined && { blockHash: text(claims, 'blockHash', wordPattern) as Hash }),
  }
  requireSums(read)
  return read
}

function parseSale(json: unknown, index: number): TabLineSale {
  const path = `sales[${index}]`
  const sale = object(json, path)
  const read = {
    endpointId: text(sale, 'endpointId', undefined, path),
    requests: integer(sale.requests, `${path}.requests`, [1, Number.MAX_SAFE_INTEGER], 'an integer from 1'),
    totalUsdc: text(sale, 'totalUsdc', amountPattern, path),
    providerUsdc: text(sale, 'providerUsdc', amountPattern, path),
    platformUsdc: text(sale, 'platformUsdc', amountPattern, path),
    lastAt: text(sale, 'lastAt', isoTimePattern, path),
  }
  if (BigInt(read.providerUsdc) + BigInt(read.platformUsdc) !== BigInt(read.totalUsdc))
    throw invalid(`${path}.totalUsdc`, 'providerUsdc + platformUsdc')
  return read
}

function requireSums({ sales, line, network, testnet, ...claims }: TabLineClaims): void {
  if (sales.reduce((sum, { requests }) => sum + requests, 0) !== claims.requests)
    throw invalid('requests', 'the sum of its sales')
  for (const name of ['totalUsdc', 'providerUsdc', 'platformUsdc'] as const) {
    const sum = sales.reduce((all, sale) => all + BigInt(sale[name]), 0n)
    if (sum !== BigInt(claims[name])) throw invalid(name, 'the sum of its sales')
  }
  const [signed, charged] = [BigInt(line.signedUsdc), BigInt(line.chargedUsdc)]
  if (charged > signed) throw invalid('line.chargedUsdc', 'at most signedUsdc')
  if (BigInt(claims.totalUsdc) + BigInt(line.othersUsdc) !== charged + BigInt(line.creditUsdc))
    throw invalid('line', 'balanced: totalUsdc + othersUsdc = chargedUsdc + creditUsdc')
  if (isNetworkName(network) && networkByName(network).testnet !== testnet)
    throw invalid('testnet', `that of ${network}`)
}
