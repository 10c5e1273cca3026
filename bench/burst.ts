/**
 * Sends many requests on one tab at once, from one client to one API behind our middleware and one gateway process. The gateway must not refuse any
 * of these requests because of the tab's state, even if they don't arrive in the order in which they were sent.
 */
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { bytesToHex } from 'viem'
import { openShop } from '../test/support/shop.ts'
import { startRig } from './gateway/rig.ts'
import { atMost, type Goals } from './support/goals.ts'
import { percentile, round1, type Say } from './support/statistics.ts'

const price = '0.0001'

export const options = { requests: 2_048 }

export const figures = () => ['served', 'refused', 'tabs', 'p50Ms', 'p99Ms', 'sumUsdc', 'seconds']

export const goals = (): Goals => ({ refused: atMost(0), tabs: atMost(1) })

export async function run({ requests }: typeof options, say: Say): Promise<object> {
  // Without PUBLIC_URL, the gateway uses the address on which it listens as its URL.
  await using rig = await startRig({ buyers: 1, settings: { PUBLIC_URL: '' } })
  const [buyer] = rig.buyers
  if (!buyer) throw new Error('the bench has no buyer')
  const stack = { api: rig.apis[0]?.service as { url: string }, chain: { network: 'localhost' as const } }
  const shop = await openShop(stack, { usdcPerUnit: price, timeout: 120_000 })
  rig.defer(shop.close)
  const client = createClient({
    gatewayUrl: stack.api.url,
    network: 'localhost',
    walletPrivateKey: bytesToHex(buyer.key),
    usdcAddress: rig.deployment.usdc,
    timeout: 120_000,
    tabs: true,
  })
  const refusals = new Map<string, number>()
  const times: number[] = []
  const startedAt = performance.now()
  await Promise.all(
    Array.from({ length: requests }, async () => {
      const sentAt = performance.now()
      try {
        await client.request(shop.url)
        times.push(performance.now() - sentAt)
      } catch (error) {
        const { code = '', message, cause } = error as Error & { code?: string }
        const reason = `${code}: ${message}${cause instanceof Error ? ` (${cause.message})` : ''}`
        refusals.set(reason, (refusals.get(reason) ?? 0) + 1)
      }
    }),
  )
  const seconds = (performance.now() - startedAt) / 1_000
  for (const [reason, count] of refusals) say(`${count} were not served: ${reason}`)
  const [row] = await rig.database<[{ tabs: number; requests: number; charged: bigint }]>`
    select count(*)::int as tabs, sum(requests)::int as requests,
      sum((select sum(one) from unnest(charged) one))::bigint as charged
    from tabs.tab`
  if (row.requests !== times.length || BigInt(row.charged) !== BigInt(times.length) * parseUsdc(price))
    throw new Error(`${times.length} requests were served, ${row.requests} are charged`)
  return {
    served: times.length,
    refused: requests - times.length,
    tabs: row.tabs,
    p50Ms: Math.round(percentile(times, 0.5)),
    p99Ms: Math.round(percentile(times, 0.99)),
    sumUsdc: formatUsdc(BigInt(row.charged)),
    seconds: round1(seconds),
  }
}
