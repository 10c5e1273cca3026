import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'
import { beforeEach, expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedChainId, seedProvider, seedToken } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { answerDiscovery } from './answers.ts'
import { createCatalogue } from './catalogue.ts'
import { type Declaration, listDeclaration } from './declarations.ts'

// Registration is free, so the size of an answer must not grow with the number of registrations.

const sql = await useDatabase()
beforeEach(async () => {
  await sql`delete from declared_resource`
  await sql`update endpoint set listed = false`
})

const deployment = { splitterFactory: randomHex(20), tabSettlement: randomHex(20) }
const clock = { ms: Date.now() }
const open = () =>
  createCatalogue({
    sql,
    networks: [{ network: networks.localhost, token: seedToken, deployment } as never],
    platformWallet: randomHex(20),
    feeSchedule: 'tiered',
    offerTimeoutSeconds: 300,
    minimumPrice: () => 5_000n,
    now: () => clock.ms,
  })

const textOf = (bytes: Uint8Array) => new TextDecoder().decode(bytes)

type Item = { resource: string; extensions: { bazaar: { info: { input: object; output?: object } } } }
const page = async (catalogue: ReturnType<typeof open>, asked: Record<string, string> = {}) => {
  const text = textOf(await answerDiscovery(catalogue, 'resources', { limit: '100', ...asked }))
  return { text, ...(JSON.parse(text) as { items: Item[]; pagination: { total: number } }) }
}

/** Registers endpoints with documents of the maximum length. */
async function seedLong(count: number) {
  const provider = await seedProvider(sql, count)
  const long = { note: 'x'.repeat(4_000) }
  await sql`
    update endpoint set input_schema = ${sql.json({ type: 'object', description: long.note })}, input_example = ${sql.json(long)},
      output_schema = ${sql.json({ type: 'object', description: long.note })}, output_example = ${sql.json(long)}
    where provider_id = ${provider.providerId}`
  return provider
}

function declare(payTo: Address, path: string, note = '') {
  const declaration: Declaration = {
    resource: `https://declared.example/${path}`,
    chainId: seedChainId,
    payTo,
    providerId: null,
    x402Version: 2,
    amount: 10_000n,
    maxTimeoutSeconds: 60,
    description: '',
    mimeType: '',
    bazaar: {
      info: { input: { type: 'http', method: 'POST', bodyType: 'json', body: { note } } },
      schema: { type: 'object' },
    },
    serviceName: null,
    tags: [],
    iconUrl: null,
  }
  return listDeclaration(sql, declaration)
}

test('default: a page contains complete documents until it is full, and only the kind and method of further items', async () => {
  await seedLong(40)
  const { items, text } = await page(open())
  expect(items).toHaveLength(40)
  const isWhole = items.map(({ extensions }) => extensions.bazaar.info.output !== undefined)
  expect(isWhole.indexOf(false)).toBeGreaterThan(10)
  expect(isWhole.slice(isWhole.indexOf(false))).not.toContain(true)
  expect(items.at(-1)?.extensions.bazaar.info.input).toEqual({ type: 'http', method: 'GET' })
  expect(Buffer.byteLength(text)).toBeLessThan(350_000)
})

test('behavior: a document that is shortened on a long page is complete on the page that starts with it', async () => {
  await seedLong(40)
  const catalogue = open()
  const [first] = (await page(catalogue, { offset: '39' })).items
  expect(first?.extensions.bazaar.info.output).toBeDefined()
  expect((await page(catalogue, { offset: '39' })).items).toEqual([first])
})

test('behavior: documents that other answers have cached don’t make an answer longer', async () => {
  await seedLong(40)
  const catalogue = open()
  for (const offset of ['30', '20', '10', '0']) await page(catalogue, { offset, limit: '10' })
  const { items, text } = await page(catalogue)
  expect(items[0]?.extensions.bazaar.info.output).toBeDefined()
  expect(Buffer.byteLength(text)).toBeLessThan(350_000)
})

test('behavior: a page also contains complete documents of declared resources until it is full', async () => {
  for (let n = 0; n < 3; n++)
    for (let m = 0; m < 10; m++) await declare(randomHex(20), `${n}/${m}`, 'x'.repeat(16_000))
  const { items, text } = await page(open())
  expect(items).toHaveLength(30)
  expect(items[0]?.extensions.bazaar.info.input).toMatchObject({
    body: { note: expect.stringMatching(/^x+$/) },
  })
  expect(items[29]?.extensions.bazaar.info.input).toEqual({
    type: 'http',
    method: 'POST',
    bodyType: 'json',
    body: {},
  })
  expect(Buffer.byteLength(text)).toBeLessThan(350_000)
})

test('behavior: a changed document appears once the list has been read again', async () => {
  const { endpointIds } = await seedLong(1)
  const catalogue = open()
  const example = async () => (await page(catalogue)).items[0]?.extensions.bazaar.info.output
  expect(await example()).toMatchObject({ example: { note: expect.any(String) } })
  await sql`
    update endpoint set output_example = '{"degrees": 7}', updated_at = now() + interval '1 second' where id = ${endpointIds[0] ?? ''}`
  clock.ms += 10_000
  expect(await example()).toMatchObject({ example: { degrees: 7 } })
})

test('behavior: equal queries are answered with one cached text', async () => {
  await seedProvider(sql)
  const catalogue = open()
  let made = 0
  const ask = async (key: string) => textOf(await catalogue.remember(key, async () => `${key} ${++made}`))
  expect(await Promise.all([ask('a'), ask('a'), ask('b')])).toEqual(['a 1', 'a 1', 'b 2'])
  clock.ms += 10_000
  expect(await ask('a')).toBe('a 3')
})

test('behavior: a failed answer is not cached', async () => {
  await expect(answerDiscovery(open(), 'merchant', { payTo: 'nobody' })).rejects.toMatchObject({
    code: 'invalid_field',
  })
  const found = await answerDiscovery(open(), 'search', { query: 'x'.repeat(20_000) })
  expect(textOf(found)).toContain('"resources":[]')
})
