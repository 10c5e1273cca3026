import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { reservePort } from '#process/port'
import { createTestDatabase } from '../support/database.ts'
import { killAll, type RunningCommand, runCommand, untilGone } from '../support/processes.ts'
import { newBuyer, openShop } from '../support/shop.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'

// A dev account of the chain, which has gas money.
const keeperKey = '0xea6c44ac03bff858b476bba40716402b03e41b8e97e276d1baec7c37d42484a0'

// The stack plays the external services: one of its processes is stopped, and `npm run <process>` takes its place.
let stack: TestStack
beforeAll(async () => {
  stack = await startTestStack({ env: { keeper: { TRIGGER_TIME_SECONDS: '1' } } })
})
afterAll(() => stack?.close())

let running: RunningCommand | undefined
afterEach(async () => {
  if (running) await killAll(running)
})

function run(name: string, env: Record<string, string | undefined> = {}): RunningCommand {
  running = runCommand(['npm', 'run', name], env)
  return running
}

async function stop(command: RunningCommand): Promise<void> {
  command.child.kill('SIGTERM')
  await command.exited
  await untilGone(command)
}

test('default: npm run api, beside an external Postgres, chain and index', async () => {
  const port = await reservePort()
  const command = run('api', {
    ...stack.env,
    API_PORT: String(port),
    MACAROON_SECRETS: `k1:${'ab'.repeat(32)}`,
    RECEIPT_KEY_FILE: `${stack.logFolder}/other-receipt-key.json`,
  })
  await command.line(/listening/)
  const base = `http://127.0.0.1:${port}`
  await until('it is ready', async () => (await fetch(`${base}/readyz`)).ok)
  expect(await (await fetch(`${base}/openapi.json`)).json()).toMatchObject({ openapi: '3.1.0' })
  await stop(command)
})

test('default: npm run keeper settles what another one left', async () => {
  await stack.keeper.stop()
  const shop = await openShop(stack)
  const buyer = await newBuyer(stack, '1')
  const { paymentId } = await buyer.client.request(shop.url)
  const command = run('keeper', {
    ...stack.env,
    KEEPER_PORT: String(await reservePort()),
    KEEPER_PRIVATE_KEYS: keeperKey,
    TRIGGER_TIME_SECONDS: '1',
  })
  await buyer.client.waitForSettlement(paymentId as string, { pollMs: 100, timeoutMs: 240_000 })
  await stop(command)
  await shop.close()
  await stack.keeper.start()
})

test('default: npm run indexer, in a schema of its own', async () => {
  const port = await reservePort()
  const command = run('indexer', {
    ...stack.env,
    INDEXER_PORT: String(port),
    DATABASE_URL: await createTestDatabase(),
    DATABASE_SCHEMA: 'other_index',
  })
  await command.line(/graphql/)
  await until(
    'it is ready',
    async () => (await fetch(`http://127.0.0.1:${port}/ready`).catch(() => undefined))?.ok ?? false,
  )
  const answer = await fetch(`http://127.0.0.1:${port}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query: '{ batchs { items { sequence } } }' }),
  })
  expect(answer.status).toBeLessThan(500)
  await stop(command)
})

test.each(['api', 'keeper', 'indexer'])('error: npm run %s without DATABASE_URL names it', async (name) => {
  const command = run(name, { ...stack.env, DATABASE_URL: undefined, KEEPER_PRIVATE_KEYS: keeperKey })
  expect(await command.exited).toBe(1)
  expect(command.output()).toContain('DATABASE_URL: expected')
  expect(command.output()).not.toContain('    at ')
})

test.each(['api', 'keeper'])('error: npm run %s on a taken port names it and its variable', async (name) => {
  const { port } = new URL(stack.api.url)
  const variable = `${name.toUpperCase()}_PORT`
  const command = run(name, {
    ...stack.env,
    [variable]: port,
    MACAROON_SECRETS: `k1:${'ab'.repeat(32)}`,
    RECEIPT_KEY_FILE: `${stack.logFolder}/other-receipt-key.json`,
    KEEPER_PRIVATE_KEYS: keeperKey,
  })
  expect(await command.exited).toBe(1)
  expect(command.output()).toContain(port)
  expect(command.output()).toContain(variable)
  expect(command.output()).not.toContain('    at ')
})
