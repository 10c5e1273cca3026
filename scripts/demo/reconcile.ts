import {
  type Address,
  type Hash,
  type Hex,
  isAddressEqual,
  type PublicClient,
  parseEventLogs,
  TransactionReceiptNotFoundError,
} from 'viem'
import { usdcAbi } from '#protocol/abi/usdc'
import type { ReceiptClaims } from '#protocol/receipt'

/** Finds what is wrong with a receipt, by the chain's own logs; nothing of our index or our database is asked. */
export type Reconciler = (claims: ReceiptClaims) => Promise<string[]>

/** One half can't prove two payments, so a reconciler remembers which transfers it has used up. */
export function createReconciler(client: PublicClient, token: Address): Reconciler {
  const transactions = new Map<Hash, Promise<Transaction | undefined>>()
  const usedUp = new Set<ProvenTransfer>()

  return async (claims) => {
    const hash = claims.transactionHash
    const reading = transactions.get(hash) ?? readTransaction(client, token, hash)
    transactions.set(hash, reading)
    const transaction = await reading
    if (!transaction) return [`transaction ${hash} isn't on the chain, or it reverted`]

    const problems: string[] = []
    if (claims.blockHash !== transaction.blockHash)
      problems.push(`the receipt names block ${claims.blockHash}`)
    if (!isAddressEqual(claims.asset, token)) problems.push(`the receipt names token ${claims.asset}`)
    const total = claims.authorizations.reduce((sum, { value }) => sum + BigInt(value), 0n)
    if (total !== BigInt(claims.totalUsdc)) problems.push(`the halves add up to ${total}`)

    for (const { to, value, nonce } of claims.authorizations) {
      const transfer = transaction.transfers.get(keyOf(claims.payer, nonce))
      if (!transfer) {
        problems.push(`authorization ${nonce} wasn't used in ${hash}`)
      } else if (!isAddressEqual(transfer.to, to) || transfer.value !== BigInt(value)) {
        problems.push(`authorization ${nonce} moved ${transfer.value} to ${transfer.to}`)
      } else if (usedUp.has(transfer)) {
        problems.push(`authorization ${nonce} has proven another payment already`)
      } else {
        usedUp.add(transfer)
      }
    }
    return problems
  }
}

type ProvenTransfer = { to: Address; value: bigint }
type Transaction = { blockHash: Hash; transfers: Map<string, ProvenTransfer> }

/** The token's Transfers of a transaction that come right after an AuthorizationUsed of the same payer. */
async function readTransaction(
  client: PublicClient,
  token: Address,
  hash: Hash,
): Promise<Transaction | undefined> {
  const receipt = await client.getTransactionReceipt({ hash }).catch((error) => {
    if (error instanceof TransactionReceiptNotFoundError) return undefined
    throw error
  })
  if (receipt?.status !== 'success') return undefined
  const { hash: canonical } = await client.getBlock({ blockNumber: receipt.blockNumber })
  if (canonical !== receipt.blockHash) return undefined

  const logs = parseEventLogs({
    abi: usdcAbi,
    logs: receipt.logs.filter((log) => isAddressEqual(log.address, token)),
  })
  const transfers = new Map<string, ProvenTransfer>()
  for (const [index, log] of logs.entries()) {
    const next = logs[index + 1]
    if (log.eventName !== 'AuthorizationUsed' || next?.eventName !== 'Transfer') continue
    const isPair = next.logIndex === log.logIndex + 1 && isAddressEqual(next.args.from, log.args.authorizer)
    if (isPair) transfers.set(keyOf(log.args.authorizer, log.args.nonce), next.args)
  }
  return { blockHash: receipt.blockHash, transfers }
}

function keyOf(payer: Address, nonce: Hex): string {
  return `${payer}:${nonce}`.toLowerCase()
}
