import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { reservePort } from '@tollkeeper/runtime/port'
import { createPublicClient, http } from 'viem'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { runCliHere } from '../../../test/support/cli.ts'
import { type LocalChain, startLocalChain } from '../../devstack/chain/startLocalChain.ts'

let folder: string
let chain: LocalChain
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-costs-'))
  // 0.02 gwei.
  chain = await startLocalChain({ blockTimeMs: 0, baseFeePerGas: 20_000_000n })
})
afterAll(async () => {
  await chain.close()
  await rm(folder, { recursive: true })
})

const run = (args: string[], env: Record<string, string> = {}) =>
  runCliHere(['costs', ...args], { cwd: folder, env })
async function readJson(args: string[], env?: Record<string, string>) {
  const { status, stdout, stderr } = await run([...args, '--json'], env)
  expect([status, stderr]).toEqual([0, ''])
  return JSON.parse(stdout)
}

describe('tollkeeper costs', () => {
  test('uses the documented example prices if no node is configured, and prints that these prices are an example', async () => {
    const { status, stdout } = await run([])
    expect(status).toBe(0)
    expect(stdout).toMatch(
      /^A request of 0\.01 USDC on base: the provider receives 0\.0095 USDC, the fee is 0\.0005 USDC, and at 1000 requests a day/,
    )
    expect(stdout).toContain('No node was asked, so this is an example: 0.002 gwei, 2500 USD for 1 ETH')
    expect(stdout).toContain('Let buyers use tabs')
    const report = await readJson([])
    expect(report.prices.source).toBe('example')
    expect(report.payments).toContainEqual({
      kind: 'two_signatures',
      sharing: 1,
      gas_usd: '0.000711750000',
      operator_usd: '-0.000211750000',
      break_even_usdc: '0.014240',
    })
  })

  test('reads the price of gas from the node', async () => {
    const asked = ['--network', 'localhost', '--price', '0.05']
    const report = await readJson(asked, {
      RPC_URL_LOCALHOST: chain.url,
      ETH_USD: '2000',
      PRIORITY_FEE_WEI: '0',
    })
    const { gas_price_gwei: gwei, ...rest } = report.prices
    expect(rest).toEqual({ source: 'node', data_fee_wei_per_word: '0', gas_token_usd: '2000.000000' })
    const { baseFeePerGas } = await createPublicClient({ transport: http(chain.url) }).getBlock()
    expect(Number(gwei)).toBe(Number(baseFeePerGas) / 1e9)
    const [alone] = report.payments
    expect(Number(alone.gas_usd)).toBeCloseTo((142_350 * Number(gwei) * 2_000) / 1e9, 9)
    expect(
      await readJson([...asked, '--rpc', chain.url], { ETH_USD: '2000', PRIORITY_FEE_WEI: '0' }),
    ).toEqual(report)
  })

  test('computes lower costs for more payments in a batch, and for more requests on a tab', async () => {
    const { payments, waiting } = await readJson(['--gas-price', '0.01', '--eth-usd', '3000'])
    for (const kind of ['two_signatures', 'one_signature', 'tab']) {
      const gas = payments
        .filter((one: { kind: string }) => one.kind === kind)
        .map((one: { gas_usd: string }) => Number(one.gas_usd))
      expect(gas).toHaveLength(3)
      expect(gas.toSorted((a: number, b: number) => b - a)).toEqual(gas)
    }
    const minutes = waiting.map((one: { minutes: number }) => one.minutes)
    expect(minutes.toSorted((a: number, b: number) => a - b)).toEqual(minutes)
  })

  test('computes no tab costs for a price whose fee has a fixed part, and uses the fees of FEE_SCHEDULE', async () => {
    const { payments, fee_usdc: fee } = await readJson(['--price', '1'])
    expect(payments.some((one: { kind: string }) => one.kind === 'tab')).toBe(false)
    expect(fee).toBe('0.080000')
    expect((await readJson(['--price', '1'], { FEE_SCHEDULE: 'flat' })).fee_usdc).toBe('0.020000')
  })

  test.each([
    [['--price', 'cheap'], /--price/],
    [['--price', '0'], /--price: expected more than 0 \(invalid_flags\)/],
    [['--per-day', '0'], /--per-day/],
    [['--gas-price', '1e-3'], /--gas-price.*decimal gwei, such as 0\.002/],
    [['--eth-usd', '3000'], /--eth-usd: needs --gas-price/],
  ])('rejects %j', async (args, said) => {
    const { status, stderr } = await run(args)
    expect([status, stderr]).toEqual([2, expect.stringMatching(said)])
  })

  test('reports a node of another chain, and a node that does not respond', async () => {
    const other = await run(['--rpc', chain.url])
    expect([other.status, other.stderr]).toEqual([
      2,
      expect.stringMatching(/serves chain 31337; base is 8453 \(wrong_chain\)/),
    ])
    const silent = await run(['--rpc', `http://127.0.0.1:${await reservePort()}`])
    expect([silent.status, silent.stderr]).toEqual([
      2,
      expect.stringMatching(/doesn't respond.*--gas-price 0\.002.*\(rpc_error\)/),
    ])
  })
})
