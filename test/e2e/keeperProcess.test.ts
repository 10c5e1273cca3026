import { expect, test } from 'vitest'
import { useKeeperStack, walletKey } from '../support/keeperStack.ts'
import { type RunningCommand, runCommand } from '../support/processes.ts'
import { until } from '../support/until.ts'

const stack = useKeeperStack()

function start(change: Record<string, string> = {}): RunningCommand {
  return runCommand([process.execPath, 'keeper/main.ts'], {
    ...stack.env,
    KEEPER_PRIVATE_KEYS: walletKey(0),
    KEEPER_PORT: '0',
    PRIORITY_FEE_WEI: '0',
    TRIGGER_MIN_AGE_SECONDS: '0',
    ...change,
  })
}

test('default: the keeper process settles payments, reports its state, and drains on SIGTERM', async () => {
  const keeper = start({ METRICS_TOKEN: 'scraper' })
  const { port } = JSON.parse(await keeper.line(/listening/)) as { port: number }
  const [buyer] = await stack.buyers(1, 50_000n)
  const payment = await stack.queue({ buyer, price: 50_000n, acceptedAt: new Date(Date.now() - 3_600_000) })
  await until('it is settled', () => stack.isSettled([payment]))

  const url = `http://127.0.0.1:${port}`
  const alive = await fetch(`${url}/healthz`)
  const { status } = alive
  expect([status, alive.headers.get('x-content-type-options'), alive.headers.get('cache-control')]).toEqual([
    200,
    'nosniff',
    'no-store',
  ])
  const ready = await fetch(`${url}/readyz`)
  expect(await ready.json()).toMatchObject({ status: 'ok' })
  expect((await fetch(`${url}/metrics`)).status).toBe(401)
  const headers = { authorization: 'Bearer scraper' }
  const readMetrics = async () => (await fetch(`${url}/metrics`, { headers })).text()
  await until('it is counted', async () =>
    (await readMetrics()).includes(
      'tollkeeper_settlement_attempts_total{network="localhost",result="settled"} 1',
    ),
  )
  await until('its gas is known', async () =>
    /tollkeeper_gas_per_payment_sum\{network="localhost"\} \d{5,6}/.test(await readMetrics()),
  )

  keeper.child.kill('SIGTERM')
  expect(await keeper.exited).toBe(0)
  expect(await keeper.survivors()).toEqual([])
  const output = keeper.output()
  expect(output).toContain('batch signed')
  expect(output).not.toContain('shutdown timed out')
  expect(output).not.toContain(walletKey(0).slice(2))
  expect(output).not.toContain(payment.provider.signature.slice(2, 60))
})

test('error: the keeper process names an invalid variable and exits', async () => {
  const keeper = start({ KEEPER_PRIVATE_KEYS: '' })
  expect(await keeper.exited).toBe(1)
  expect(keeper.output()).toBe(
    'keeper: KEEPER_PRIVATE_KEYS: expected a private key, or several separated by commas (or set KEEPER_KEY_FILE or KEEPER_SIGNER_URL), but it is not set',
  )
})
