import { readdir, readFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { readIndexerSettings } from '../config.ts'

const env = {
  DATABASE_URL: 'postgres://user:secret@127.0.0.1/db',
  NETWORKS: 'localhost',
  RPC_URL_LOCALHOST: 'http://127.0.0.1:8545',
  PLATFORM_WALLET: '0x00000000000000000000000000000000000fee00',
}

test('default: reads the networks with an RPC URL, and the platform wallet', () => {
  const config = readIndexerSettings(env)
  expect(config.networks.map(({ network }) => network.name)).toEqual(['localhost'])
  expect(config.platformWallets).toEqual([env.PLATFORM_WALLET])
  expect(config.rpcLanes).toBeNull()
})

test('args: reads several platform wallets as the same set, regardless of order and case', () => {
  const upper = '0xFB6916095CA1DF60BB79CE92CE3EA74C37C5D359'.toLowerCase()
  const one = readIndexerSettings({ ...env, PLATFORM_WALLETS: upper })
  const two = readIndexerSettings({
    ...env,
    PLATFORM_WALLETS: `${env.PLATFORM_WALLET},${upper},${env.PLATFORM_WALLET}`,
  })
  expect(one.platformWallets).toEqual(two.platformWallets)
  expect(one.platformWallets).toHaveLength(2)
})

describe('the error names the variable', () => {
  test.each([
    ['DATABASE_URL', {}],
    ['DATABASE_URL', { DATABASE_URL: 'mysql://user:secret@host/db' }],
    ['PLATFORM_WALLET', { PLATFORM_WALLET: '' }],
    ['PLATFORM_WALLET', { PLATFORM_WALLET: '0x1234' }],
    ['PLATFORM_WALLET', { PLATFORM_WALLET: '0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d358' }], // wrong checksum
    ['PLATFORM_WALLETS', { PLATFORM_WALLETS: 'x' }],
    ['NETWORKS', { NETWORKS: 'mars' }],
    ['INDEXER_RPC_LANES', { INDEXER_RPC_LANES: '0' }],
    ['INDEXER_RPC_LANES', { INDEXER_RPC_LANES: '33' }],
  ] as [string, Record<string, string>][])('error: rejects an invalid %s: %j', (variable, change) => {
    const broken =
      Object.keys(change).length === 0 ? { ...env, [variable]: undefined } : { ...env, ...change }
    expect(() => readIndexerSettings(broken)).toThrow(new RegExp(`^${variable}: expected`))
    try {
      readIndexerSettings(broken)
    } catch (error) {
      expect(String(error)).not.toContain('secret')
    }
  })
})

test('behavior: handlers import none of our code outside indexer/src, because Ponder would not notice its changes', async () => {
  const folder = new URL('../src/', import.meta.url)
  const files = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.ts'))
  expect(files.length).toBeGreaterThan(3)
  const allowed = /^(ponder|ponder:(registry|schema|api)|viem|hono|\.\/[A-Za-z]+\.ts)$/
  for (const file of files) {
    const source = await readFile(new URL(file, folder), 'utf8')
    for (const [, specifier] of source.matchAll(/(?:from|import) '([^']+)'/g)) {
      expect([file, specifier]).toEqual([file, expect.stringMatching(allowed)])
    }
  }
})
