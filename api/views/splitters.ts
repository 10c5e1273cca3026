import { z } from '@hono/zod-openapi'
import { paidSince } from '@tollkeeper/ledger/facts/payouts'
import type { Database } from '@tollkeeper/ledger/store/database'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, integerField, textField } from '../http/cursor.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'

const splitterBalance = z
  .object({
    splitter: wire.addressOut,
    network: wire.networkOfChain,
    wallet: wire.addressOut.openapi({ description: 'Wallet that receives the provider’s part' }),
    payments: z.int().openapi({ description: "Number of the provider's payments that wait in the splitter" }),
    waiting_usdc: wire.decimalUsdc.openapi({ description: "The provider's part of these payments" }),
    isAtLeast: z.boolean().openapi({
      description: 'Whether more than 1,000 payments wait. If so, only the newest 1,000 are counted',
    }),
    since: wire.isoSeconds.nullable().openapi({ description: 'When the oldest of these payments arrived' }),
    paidOutAfter: wire.isoSeconds.nullable().openapi({
      description:
        'Time from which the next batch pays the splitter out even if it holds few payments; null if it holds none, or if the next batch pays it out anyway',
    }),
    failedSweeps: z.int().openapi({
      description: 'Number of payouts that failed in a row, which delays the next attempt',
    }),
    lastPayout: z.object({ at: wire.isoSeconds, transactionHash: wire.hashOut }).nullable(),
  })
  .openapi('SplitterBalance')

export const splitters = z
  .object({
    splitters: z.array(splitterBalance),
    sweep: z.object({
      payments: z.int().openapi({
        description: 'A splitter is paid out by the next batch once it holds this many payments',
      }),
      seconds: z.int().openapi({
        description: 'A splitter is also paid out once its oldest payment has waited this many seconds',
      }),
    }),
    cursor: wire.cursorOut,
    indexedBlocks: wire.indexedBlocks,
  })
  .openapi('SplitterBalances')

/** Maximum number of waiting payments that are counted in a splitter. */
const maxCounted = 1_000

const positions = createCursor({ chainId: integerField, splitter: textField })

export type SplitterRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'triggers'>
}

export const addSplitterRoute = view('/providers/{id}/splitters', {
  ...providerViews,
  summary: "Settled payments that wait in the splitters of the provider's wallets",
  description:
    'A payment with one signature settles into a splitter, which divides it between provider and platform. A batch pays a splitter out once enough ' +
    'payments wait in it, or one has waited long enough. Anyone may pay it out at any time.',
  query: z.object({ network: wire.networkName.optional(), limit: wire.limit, cursor: wire.cursor }),
  answer: ['The splitters', splitters],
  open:
    ({ sql, heads, networks, settings: { triggers } }: SplitterRouteOptions) =>
    async ({ id: providerId, network, ...asked }) => {
      const chainId = networks.chainIdNamed(network)
      const indexedBlocks = await heads.ofProvider(providerId, chainId)
      const { rows, cursor } = await positions.page('splitters', asked, (page) =>
        findSplitters(sql, { providerId, chainId, ...page }),
      )
      return {
        splitters: rows.map(({ chainId, payoutAt, payoutTx, ...row }) => {
          const isDue = row.payments >= triggers.sweepCount
          return {
            ...row,
            network: chainId,
            paidOutAfter:
              row.since === null || isDue ? null : row.since + BigInt(triggers.sweepAfterMs / 1000),
            lastPayout:
              payoutAt === null || payoutTx === null ? null : { at: payoutAt, transactionHash: payoutTx },
          }
        }),
        sweep: { payments: triggers.sweepCount, seconds: triggers.sweepAfterMs / 1000 },
        cursor,
        indexedBlocks,
      }
    },
})

type Row = Omit<z.input<typeof splitterBalance>, 'network' | 'paidOutAfter' | 'lastPayout'> & {
  chainId: number
  payoutAt: bigint | null
  payoutTx: string | null
}

type SplittersOptions = {
  providerId: string
  chainId?: number | undefined
  after: { chainId: number; splitter: string } | null
  limit: number
}

/** Finds the splitters that pay a provider's wallets. Counts only the provider's own payments, because providers may share a wallet. */
function findSplitters(
  sql: Database,
  { providerId, chainId, after, limit }: SplittersOptions,
): Promise<Row[]> {
  return sql<Row[]>`
    select s.chain_id as "chainId", s.address as splitter, s.provider as wallet, s.failed_sweeps as "failedSweeps",
      waiting.payments, waiting.amount as waiting_usdc, waiting.since, waiting.looked > ${maxCounted} as "isAtLeast",
      latest.block_time as "payoutAt", latest.tx_hash as "payoutTx"
    from (
      select s.* from (select distinct chain_id, address from wallet where provider_id = ${providerId}) w
      join splitter s on s.chain_id = w.chain_id and s.provider = w.address
      where true ${chainId === undefined ? sql`` : sql`and s.chain_id = ${chainId}`}
        ${after === null ? sql`` : sql`and (s.chain_id, s.address) > (${after.chainId}, ${after.splitter})`}
      order by s.chain_id, s.address limit ${limit}
    ) s
    cross join lateral (
      select count(*)::int as looked, count(p.id)::int as payments, coalesce(sum(p.provider_amount), 0) as amount,
        min(paid.block_time) filter (where p.id is not null) as since
      from (
        select * from (${paidSince(sql)}) inside order by block_number desc, log_index desc limit ${maxCounted + 1}
      ) paid
      left join payment p on p.id = paid.payment_id and p.provider_id = ${providerId}
    ) waiting
    left join lateral (
      select o.tx_hash, b.time as block_time from payout o join recorded_block b on b.id = o.block_id
      where o.splitter = s.address and b.chain_id = s.chain_id
      order by b.number desc, o.log_index desc limit 1
    ) latest on true
    order by s.chain_id, s.address`
}
