/** What a verification's time goes to: CPU time a request of each process, and of the api by area, summing to the whole. */
import { parseArgs } from 'node:util'
import { createPayments } from './gateway/payments.ts'
import { profile, sharesByArea } from './gateway/profile.ts'
import { startRig } from './gateway/rig.ts'

export async function run(args: string[]): Promise<object> {
  const { values } = parseArgs({
    args,
    options: { json: { type: 'boolean', default: false }, requests: { type: 'string', default: '5000' } },
  })
  const requests = Number(values.requests)
  const rig = await startRig({ buyers: 1_000, withInspector: true })
  try {
    if (rig.inspectorUrl === undefined) throw new Error('the api opened no inspector')
    const payments = createPayments(rig)
    const prepare = async (count: number) =>
      payments.sign((await payments.challenge(count)).challenges, 'bound')
    await payments.verify(await prepare(Math.max(1_000, requests / 2)))

    const signed = await prepare(requests)
    const warm = await prepare(1_000)
    await payments.verify(warm)
    const before = await rig.cpu()
    let perSecond = 0
    const taken = await profile(rig.inspectorUrl, async () => {
      perSecond = await payments.verify(signed)
    })
    const after = await rig.cpu()
    const cpuUs = (part: keyof typeof before) => Math.round((after[part] - before[part]) / requests)
    const [api, main] = [cpuUs('api'), cpuUs('apiMain')]
    const areas = Object.fromEntries([
      ...[...sharesByArea(taken)].map(([area, share]): [string, number] => [area, Math.round(share * main)]),
      ['other threads: two public keys recovered, garbage collector', api - main],
    ])
    return {
      perSecond: Math.round(perSecond),
      cpuUsPerRequest: { api, postgres: cpuUs('postgres'), chain: cpuUs('chain'), load: cpuUs('load') },
      apiByArea: areas,
    }
  } finally {
    await rig.close()
  }
}
