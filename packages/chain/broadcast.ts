import { scrub } from '@tollkeeper/runtime/log'
import { BaseError, type Hex, type PublicClient } from 'viem'

/**
 * The result of sending a transaction to the nodes.
 *
 * `unknown` means that the transaction may have been broadcast. Its hash is known, so a later call can ask whether it was mined.
 */
export type BroadcastResult =
  | { status: 'sent' }
  | { status: 'unknown'; reason: string }
  | {
      status: 'rejected'
      code: 'insufficient_gas_funds' | 'nonce_used' | 'underpriced' | 'invalid'
      reason: string
    }

// Nodes' own error texts. They are checked before viem's error classes, because viem classifies "already known" as "nonce too
// low". Sources: geth core/txpool/errors.go, Nethermind AcceptTxResult, Erigon txpoolcfg, Besu TransactionInvalidReason, Hardhat
// EDR.
const alreadyThere =
  /already[ _]?known|already_?exists|known transaction|already imported|already in (the )?(mem)?pool/i
const sameOrRival =
  /replacement transaction underpriced|replacement not allowed|gas price too low to replace/i
const noFunds =
  /insufficient funds|doesn'?t have enough funds|upfront cost exceeds|insufficient balance for gas/i
const nonceUsed = /nonce too low|nonce is too low|old nonce|invalid nonce.*lower/i
const underpriced =
  /transaction underpriced|fee too low|max fee per gas less than block base fee|feecap|maxFeePerGas .*is too low/i
const malformed =
  /intrinsic gas too low|exceeds block gas limit|gas limit (is )?too high|transaction gas limit|oversized data|invalid sender|invalid chain id|tip above|exceeds the configured cap|floor data gas|gas limit cap/i

/** Interprets a node's response to `eth_sendRawTransaction`. */
export function readBroadcastError(error: unknown): BroadcastResult | { status: 'same_or_rival' } {
  const reason = messageOf(error)
  if (alreadyThere.test(reason)) return { status: 'sent' }
  if (sameOrRival.test(reason)) return { status: 'same_or_rival' }
  if (noFunds.test(reason)) return { status: 'rejected', code: 'insufficient_gas_funds', reason }
  if (nonceUsed.test(reason)) return { status: 'rejected', code: 'nonce_used', reason }
  if (underpriced.test(reason)) return { status: 'rejected', code: 'underpriced', reason }
  if (malformed.test(reason)) return { status: 'rejected', code: 'invalid', reason }
  return { status: 'unknown', reason }
}

/** Returns the node's own error text, if it gave one. Leaves out URLs, which may contain a credential. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const words = [error instanceof BaseError ? `${error.shortMessage} ${error.details ?? ''}` : error.message]
  for (let cause: unknown = error.cause; cause instanceof Error; cause = cause.cause) {
    words.push(cause instanceof BaseError ? `${cause.shortMessage} ${cause.details ?? ''}` : cause.message)
  }
  return scrub(words.join(' | ')).slice(0, 500)
}

/** Sends a signed transaction, whose hash is already stored, to every RPC. */
export async function broadcast(
  clients: readonly PublicClient[],
  raw: Hex,
  hash: Hex,
): Promise<BroadcastResult> {
  const results = await Promise.all(clients.map((client) => broadcastTo(client, raw, hash)))
  const sent = results.find((result) => result.status === 'sent')
  const unknown = results.find((result) => result.status === 'unknown')
  return sent ?? unknown ?? results[0] ?? { status: 'unknown', reason: 'no RPC is configured' }
}

async function broadcastTo(client: PublicClient, raw: Hex, hash: Hex): Promise<BroadcastResult> {
  try {
    await client.request({ method: 'eth_sendRawTransaction', params: [raw] }, { retryCount: 0 })
    return { status: 'sent' }
  } catch (error) {
    const result = readBroadcastError(error)
    if (result.status !== 'same_or_rival') return result
    // If we send the same bytes again, nodes may report a nonce conflict, as they do when another transaction has that nonce. So
    // ask the node whether it knows this transaction.
    const known = await client
      .request({ method: 'eth_getTransactionByHash', params: [hash] }, { retryCount: 0 })
      .catch(() => undefined)
    if (known) return { status: 'sent' }
    if (known === null) return { status: 'rejected', code: 'underpriced', reason: messageOf(error) }
    return { status: 'unknown', reason: messageOf(error) }
  }
}
