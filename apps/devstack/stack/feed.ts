import { openDatabase } from '@tollkeeper/ledger/store/database'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { ServiceName } from './stack.ts'

const warning = 40
const error = 50
const lookMs = 400

/** Converts a line of a process's log into a message for people; undefined if people don't need it. */
export function describeLine(name: ServiceName, line: string): string | undefined {
  const entry = parseEntry(line)
  if (!entry) return undefined
  const { level, msg, hash, payments, trigger, block } = entry
  if (name === 'keeper' && msg === 'batch signed') {
    return `broadcast  ${payments} payment${payments === 1 ? '' : 's'}, trigger ${trigger}, transaction ${hash}`
  }
  if (name === 'keeper' && msg === 'batch mined') return `mined      transaction ${hash} in block ${block}`
  if (isNoNews(entry)) return undefined
  if (typeof level === 'number' && level >= warning)
    return `${(level >= error ? 'ERROR' : 'warning').padEnd(11)}${name}: ${msg}`
  return undefined
}

/** Reports accepted payments and settled batches until it is stopped. */
export function watchDatabase(databaseUrl: string, tell: (news: string) => void): () => Promise<void> {
  const sql = openDatabase({ url: databaseUrl, max: 1, applicationName: 'tollkeeper-start' })
  const stopping = new AbortController()
  let acceptedUntil = new Date(0)
  let recorded = 0n

  const look = async () => {
    const accepted = await sql<{ provider: string; count: number; price: bigint; last: Date }[]>`
      select p.name as provider, count(*)::int as count, sum(a.price) as price, max(a.accepted_at) as last
      from payment a join provider p on p.id = a.provider_id
      where a.accepted_at > ${acceptedUntil}
      group by p.name order by last`
    for (const { provider, count, price, last } of accepted) {
      tell(`accepted   ${count} payment${count === 1 ? '' : 's'} of ${formatUsdc(price)} USDC to ${provider}`)
      if (last > acceptedUntil) acceptedUntil = last
    }
    const settled = await sql<Settled[]>`
      select id, payment_count as payments, provider_total as "providerTotal", fee_total as "feeTotal", tx_hash as hash
      from settled_batch where id > ${recorded} order by id`
    for (const batch of settled) {
      const { payments, providerTotal, feeTotal, hash } = batch
      tell(
        `settled    ${payments} payment${payments === 1 ? '' : 's'}: ${formatUsdc(providerTotal)} USDC to providers, ${formatUsdc(feeTotal)} to the platform, transaction ${hash}`,
      )
      recorded = batch.id
    }
  }

  const watching = (async () => {
    while (!stopping.signal.aborted) {
      await look().catch(() => {})
      await new Promise((resolve) => setTimeout(resolve, lookMs))
    }
  })()
  return async () => {
    stopping.abort()
    await watching
    await sql.end({ timeout: 1 })
  }
}

type Settled = { id: bigint; payments: number; providerTotal: bigint; feeTotal: bigint; hash: string }

/**
 * Whether the line is one of Ponder's expected warnings: about an unknown RPC, about being stopped, or about Platform in
 * ponder.config.ts.
 */
function isNoNews({ msg, name }: Record<string, unknown>): boolean {
  if (msg === 'No registered indexing functions') return name === 'Platform'
  return typeof msg === 'string' && /^(Detected public RPC|Received SIG|Started shutdown)/.test(msg)
}

function parseEntry(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith('{')) return undefined
  try {
    return JSON.parse(line)
  } catch {
    return undefined
  }
}
