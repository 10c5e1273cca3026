import { expect, test } from 'vitest'
import { type Probe, probeLoop, readReadiness } from './health.ts'

const well = async () => {}
const ill = async () => {
  throw new Error('down: postgres://user:secret@host/db')
}
const probe = (name: string, network?: string, ask = well): Probe => ({
  name,
  ...(network !== undefined && { network }),
  ask,
})
const loop = (ms: number) => ({ name: 'finalize', sinceStepMs: () => ms, wake: () => {}, stop: well })

const cases: [string, Probe[], string][] = [
  ['everything works', [probe('database'), probe('rpc a', 'a'), probe('rpc b', 'b')], 'ok'],
  ['the database is down', [probe('database', undefined, ill), probe('rpc a', 'a')], 'unavailable'],
  ['one network of two is down', [probe('rpc a', 'a', ill), probe('rpc b', 'b')], 'degraded'],
  ['both networks are down', [probe('rpc a', 'a', ill), probe('index b', 'b', ill)], 'unavailable'],
  [
    'an optional dependency is down',
    [probe('rpc a', 'a'), { ...probe('index a', 'a', ill), optional: true }],
    'degraded',
  ],
  [
    'one of two networks is down and its loop has stopped',
    [probe('rpc a', 'a', ill), probeLoop(loop(60_000), 'a'), probe('rpc b', 'b')],
    'degraded',
  ],
  [
    'a network’s loop has stopped although its node responds',
    [probe('rpc a', 'a'), probeLoop(loop(60_000), 'a'), probe('rpc b', 'b')],
    'unavailable',
  ],
  ['a loop of the process itself has stopped', [probe('rpc a', 'a'), probeLoop(loop(60_000))], 'unavailable'],
  ['a loop completes its steps', [probe('rpc a', 'a'), probeLoop(loop(5_000))], 'ok'],
]

test.each(cases)('behavior: reports the right status if %s', async (_, probes, status) => {
  expect((await readReadiness(probes)).status).toBe(status)
})

test('behavior: names the failing dependency, without credentials', async () => {
  const { checks } = await readReadiness([probe('database', undefined, ill)])
  expect(checks).toEqual([{ name: 'database', ok: false, detail: 'Error: down: <url>' }])
})

test('behavior: treats a dependency that never responds as unavailable', async () => {
  const { checks } = await readReadiness([probe('rpc a', 'a', () => new Promise(() => {}))])
  expect(checks).toMatchObject([{ ok: false, detail: expect.stringContaining('no response within') }])
})
