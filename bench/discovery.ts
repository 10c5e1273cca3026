/**
 * Measures how much free listings slow down everyone else: how long challenges take on an api with thousands of free endpoints, each with very long
 * documents, while strangers read all lists as fast as they can. Compares this with challenges of the same process before anyone reads the lists.
 */
import type { Database } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { isTestnet } from '@tollkeeper/ledger/store/networks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { randomHex } from '../test/support/usdc.ts'
import { renderPost, send } from './gateway/load.ts'
import { startRig } from './gateway/rig.ts'
import { readPeakRssMb } from './support/benchEnv.ts'
import { atMost, type Goals } from './support/goals.ts'
import { median, percentile, round2, type Say } from './support/statistics.ts'

export const options = { endpoints: 3_000, readers: 20, seconds: 20, rate: 10 }

export const figures = () => [
  'quietChallengeMsP50',
  'quietChallengeMsP99',
  'challengeMsP50',
  'challengeMsP99',
  'challengeMsMax',
  'pagesPerSecond',
  'cpuMsPerPage',
  'pagesRefused',
  'quietRssMb',
  'peakRssMb',
]

/** A buyer's challenge must stay fast while others read the lists. */
export const goals = (): Goals => ({ challengeMsP99: atMost(100) })

/** Maximum number of endpoints of a provider. */
const endpointsOfProvider = 1_000

export async function run({ endpoints, readers, seconds, rate }: typeof options, say: Say): Promise<object> {
  await using rig = await startRig({ buyers: 1 })
  const { database, apiPort: port, apis, shop } = rig
  const pid = apis[0]?.pid() ?? 0
  const { providerId, endpointIds, url: resource } = shop
  const body = { providerId, endpointId: endpointIds[0], resource }
  const challenge = async (seconds: number) => {
    const requests = Array.from({ length: seconds * rate }, () => renderPost('/challenge', body))
    const { ms } = await send({ port, connections: 8, requests, perSecond: rate })
    return ms
  }
  await challenge(2)
  const quiet = await challenge(seconds)
  const quietRssMb = await readPeakRssMb(pid)
  say(`quiet: p99 ${round2(percentile(quiet, 0.99))} ms`)

  const providers = await registerFree(database, endpoints)
  const paths = [
    ...[0, 100, 200, 500, 1_000, 2_000].map((offset) => `/discovery/resources?limit=100&offset=${offset}`),
    ...['free listing', 'note', 'weather'].map((words) => `/discovery/search?limit=100&query=${words}`),
    ...['network=eip155:31337', 'scheme=exact'].map((filter) => `/discovery/resources?limit=100&${filter}`),
    `/discovery/merchant?payTo=${randomHex(20)}`,
    ...providers.map((id) => `/discovery/providers/${id}?origin=https://free.example`),
    '/openapi.json',
    '/llms.txt',
  ]
  const over = new AbortController()
  const pages = { read: 0, refused: 0 }
  const read = async (reader: number) => {
    for (let turn = reader; !over.signal.aborted; turn++) {
      const answer = await fetch(`http://127.0.0.1:${port}${paths[turn % paths.length]}`, {
        signal: over.signal,
      })
      await answer.arrayBuffer()
      pages.read++
      if (!answer.ok) pages.refused++
    }
  }
  const cpuBefore = (await rig.cpu()).api
  const reading = Promise.allSettled(Array.from({ length: readers }, (_, reader) => read(reader)))
  const busy = await challenge(seconds)
  over.abort()
  await reading
  // This includes the CPU time of the challenges, but the challenges are few.
  const cpuUs = (await rig.cpu()).api - cpuBefore
  say(`${pages.read} pages, ${pages.refused} refused; p99 ${round2(percentile(busy, 0.99))} ms`)
  return {
    quietChallengeMsP50: round2(median(quiet)),
    quietChallengeMsP99: round2(percentile(quiet, 0.99)),
    challengeMsP50: round2(median(busy)),
    challengeMsP99: round2(percentile(busy, 0.99)),
    challengeMsMax: round2(Math.max(...busy)),
    pagesPerSecond: round2(pages.read / seconds),
    cpuMsPerPage: round2(cpuUs / 1_000 / pages.read),
    pagesRefused: pages.refused,
    quietRssMb,
    peakRssMb: await readPeakRssMb(pid),
  }
}

/** Writes endpoints of providers without sales directly to the tables. */
async function registerFree(sql: Database, endpoints: number): Promise<string[]> {
  const { chainId } = networks.localhost
  const schema = { type: 'object', description: 'x'.repeat(2_500) }
  const example = { note: 'x'.repeat(2_500) }
  const ids: string[] = []
  for (let left = endpoints; left > 0; left -= endpointsOfProvider) {
    const [providerId, walletId] = [newId('prov'), newId('wal')]
    ids.push(providerId)
    await sql`insert into provider (id, name) values (${providerId}, 'Free')`
    await sql`
      insert into wallet (id, provider_id, chain_id, address) values (${walletId}, ${providerId}, ${chainId}, ${randomHex(20)})`
    await sql`
      insert into endpoint (id, provider_id, wallet_id, chain_id, testnet, method, url, host, path, shape, price, description,
        input_schema, output_schema, input_example, output_example)
      select 'ep_' || md5(${providerId} || n), ${providerId}, ${walletId}, ${chainId}, ${isTestnet(sql, sql`${chainId}::int`)}, 'GET', 'https://free.example/' || n, 'free.example', '/' || n,
        '/' || n, 50000, 'free listing ' || n || ' ' || repeat('note ', 80), ${sql.json(schema)}, ${sql.json(schema)},
        ${sql.json(example)}, ${sql.json(example)}
      from generate_series(1, ${Math.min(left, endpointsOfProvider)}::int) n`
  }
  return ids
}
