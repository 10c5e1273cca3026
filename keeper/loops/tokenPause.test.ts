import { createLogger } from '@tollkeeper/runtime/log'
import { createTestClient, encodeFunctionData, http, parseAbi, publicActions } from 'viem'
import { afterEach, expect, test } from 'vitest'
import { useGateway } from '../../test/support/useGateway.ts'
import { createMetrics } from '../settings/metrics.ts'
import { createMemory } from './context.ts'
import { isTokenPaused, noteTokenPaused, probeToken, watchToken } from './tokenPause.ts'

const gateway = useGateway()
const abi = parseAbi(['function pauser() view returns (address)', 'function pause()', 'function unpause()'])

/** Pauses or unpauses USDC, as Circle would. */
async function setPaused(isPaused: boolean): Promise<void> {
  const { served, chain } = gateway
  const node = createTestClient({ mode: 'hardhat', transport: http(chain.url) }).extend(publicActions)
  const address = served.token
  const from = await node.readContract({ address, abi, functionName: 'pauser' })
  await node.impersonateAccount({ address: from })
  await node.setBalance({ address: from, value: 10n ** 18n })
  const data = encodeFunctionData({ abi, functionName: isPaused ? 'pause' : 'unpause' })
  const params = [{ from, to: address, data }]
  const hash = await node.request({ method: 'eth_sendTransaction', params } as never)
  await node.waitForTransactionReceipt({ hash })
}
afterEach(() => setPaused(false))

function createContext() {
  const lines: { level: number; msg: string }[] = []
  const { served } = gateway
  let now = 0
  const context = {
    served,
    memory: createMemory(),
    metrics: createMetrics(),
    log: createLogger('keeper', 'info', { write: (line: string) => void lines.push(JSON.parse(line)) }),
    now: () => new Date(now),
  }
  const gauge = async () => (await context.metrics.tokenPaused.get()).values.map(({ value }) => value)
  const readiness = () =>
    probeToken(context)
      .ask()
      .then(
        () => 'ok',
        (error: Error) => error.message,
      )
  return { context, lines, gauge, readiness, pass: (ms: number) => (now += ms) }
}

test('default: the start and the end of a USDC pause each appear in one log line, a metric and /readyz, even if no payment is waiting', async () => {
  const { context, lines, gauge, readiness, pass } = createContext()
  await watchToken(context)
  expect([await gauge(), await readiness(), lines]).toEqual([[0], 'ok', []])
  await setPaused(true)
  pass(15_000)
  await watchToken(context)
  pass(15_000)
  await watchToken(context)
  const message = 'USDC is paused: nothing settles until Circle unpauses it'
  expect([await gauge(), await readiness()]).toEqual([[1], message])
  expect(lines).toEqual([expect.objectContaining({ level: 40, msg: message })])
  expect(await isTokenPaused(context)).toBe(true)
  await setPaused(false)
  // The keeper reads the chain only once in 15 seconds, so it still reports the token as paused.
  expect(await isTokenPaused(context)).toBe(true)
  pass(15_000)
  expect(await isTokenPaused(context)).toBe(false)
  expect([await gauge(), await readiness(), lines[1]?.msg]).toEqual([[0], 'ok', 'USDC is no longer paused'])
})

test('behavior: if a batch finds that the token is paused, the pause is also logged and shown in the metric', async () => {
  const { context, lines, gauge } = createContext()
  noteTokenPaused(context)
  expect([await gauge(), await isTokenPaused(context), lines.length]).toEqual([[1], true, 1])
})
