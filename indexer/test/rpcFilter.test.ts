import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { inspect } from 'node:util'
import { type Hex, pad } from 'viem'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { filterNodes } from '../rpcFilter.ts'
import { authorizationUsed, batchSettled, transfer } from '../src/receipt.ts'

const settlement: Hex = '0x00000000000000000000000000000000000000BB'
const token: Hex = '0x00000000000000000000000000000000000000AA'
const platform: Hex = '0x00000000000000000000000000000000000000Fe'
const stranger: Hex = '0x00000000000000000000000000000000000000c1'

const blockHash = pad('0x0b')
const log = (transaction: Hex, address: Hex, ...topics: Hex[]) => ({
  address: address.toLowerCase(),
  topics: topics.map((topic) => pad(topic).toLowerCase()),
  blockHash,
  transactionHash: pad(transaction),
})
const batch = log('0x01', settlement, batchSettled, '0x01', '0x02', token)
const fee = log('0x01', token, transfer, stranger, platform)
const direct = log('0x02', token, transfer, stranger, platform)
const ofAnotherToken = log('0x03', settlement, batchSettled, '0x01', '0x02', stranger)
const besideIt = log('0x03', token, transfer, stranger, platform)
const elsewhere = [
  log('0x01', token, authorizationUsed, stranger, '0x01'),
  log('0x04', token, transfer, platform, stranger),
  log('0x04', stranger, transfer, stranger, platform),
]

/** The fake node's answers, by request. */
let answers: (question: { method: string; params?: unknown[] }) => {
  status?: number
  body: unknown
  isSilent?: boolean
}
let authorization: string | undefined
const node = createServer(async (request, response) => {
  authorization = request.headers.authorization
  const { status = 200, body, isSilent = false } = answers(JSON.parse(await text(request)))
  if (!isSilent) response.writeHead(status).end(JSON.stringify(body))
})
let url: string

beforeAll(async () => {
  await once(node.listen(0, '127.0.0.1'), 'listening')
  const { port } = node.address() as AddressInfo
  const [filtered] = filterNodes([
    { url: `http://127.0.0.1:${port}`, settlements: [settlement], token, platforms: [platform] },
  ])
  url = filtered ?? ''
})

afterAll(() => {
  node.closeAllConnections()
  node.close()
})

async function ask(method: string, ...params: unknown[]) {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 7, method, ...(params.length > 0 ? { params } : {}) })
  const response = await fetch(url, { method: 'POST', body })
  return {
    status: response.status,
    ...((await response.json()) as { id?: unknown; result?: unknown; error?: unknown }),
  }
}

const transfersOf = { topics: [transfer], fromBlock: '0x1', toBlock: '0x2' }

test('default: keeps only the logs that the index reads; of a batch’s transaction, keeps only the batch event', async () => {
  answers = () => ({ body: { result: [fee, batch, direct, ofAnotherToken, besideIt, ...elsewhere] } })
  expect(await ask('eth_getLogs', { blockHash })).toMatchObject({ id: 7, result: [batch, direct, besideIt] })
})

test('behavior: keeps one log of a block that has only logs of other contracts', async () => {
  answers = () => ({ body: { result: elsewhere } })
  expect((await ask('eth_getLogs', { blockHash })).result).toEqual(elsewhere.slice(0, 1))
  answers = () => ({ body: { result: [] } })
  expect((await ask('eth_getLogs', { blockHash })).result).toEqual([])
})

test('default: requests the token’s batches in a range, and keeps only the Transfers outside these batches', async () => {
  answers = ({ params }) => {
    const [filter] = params as [{ address?: Hex[]; topics: Hex[] }]
    const isOfBatches = filter.topics[0] === batchSettled && filter.address?.[0] === settlement
    return { body: { result: isOfBatches ? [batch] : [fee, direct, besideIt] } }
  }
  expect((await ask('eth_getLogs', transfersOf)).result).toEqual([direct, besideIt])
})

test('behavior: keeps every Transfer if the batches can’t be read', async () => {
  const error = { code: -32005, message: 'too many' }
  answers = ({ params }) => {
    const [{ topics }] = params as [{ topics: Hex[] }]
    return { body: topics[0] === transfer ? { result: [fee, direct] } : { error } }
  }
  expect((await ask('eth_getLogs', transfersOf)).result).toEqual([fee, direct])
})

test('default: removes the calldata of a block’s transactions, and passes on any other answer unchanged', async () => {
  answers = ({ method }) => ({ body: { result: { method, input: '0xab01' } } })
  for (const method of ['eth_getBlockByNumber', 'eth_getBlockByHash'])
    expect((await ask(method, '0x1', true)).result).toEqual({ method, input: '0x' })
  expect((await ask('eth_chainId')).result).toEqual({ method: 'eth_chainId', input: '0xab01' })
})

test('error: passes on a node’s error unchanged, whether it is in the status or in the body', async () => {
  for (const filter of [transfersOf, { blockHash }]) {
    answers = () => ({ status: 429, body: { error: 'slower' } })
    expect(await ask('eth_getLogs', filter)).toEqual({ status: 429, error: 'slower' })
    const error = { code: -32005, message: 'a range of at most 500 blocks' }
    answers = () => ({ body: { error } })
    expect(await ask('eth_getLogs', filter)).toEqual({ status: 200, error })
  }
})

test('error: the error for a node that can’t be reached does not contain the node’s URL; other URLs are fetched as usual', async () => {
  const dead = 'http://127.0.0.1:2/secret'
  const [filtered] = filterNodes([{ url: dead, settlements: [settlement], token, platforms: [] }])
  const failed = await fetch(filtered ?? '', { method: 'POST', body: '{"method":"eth_chainId"}' }).catch(
    inspect,
  )
  expect(failed).toMatch('ECONNREFUSED')
  expect(failed).not.toMatch('secret')
  answers = () => ({ body: { result: '0x1' } })
  const { port } = node.address() as AddressInfo
  const direct = await fetch(`http://127.0.0.1:${port}`, { method: 'POST', body: '{"method":"eth_chainId"}' })
  expect(await direct.json()).toEqual({ result: '0x1' })
})

test('behavior: uses another node of the chain while a node can’t be reached', async () => {
  const { port } = node.address() as AddressInfo
  const [filtered = ''] = filterNodes([
    {
      url: 'http://127.0.0.1:2/secret',
      others: [`http://127.0.0.1:${port}`],
      settlements: [settlement],
      token,
      platforms: [],
    },
  ])
  answers = () => ({ body: { result: '0x1' } })
  const response = await fetch(filtered, { method: 'POST', body: '{"method":"eth_chainId"}' })
  expect(await response.json()).toEqual({ result: '0x1' })
})

test('args: moves a password in a node’s URL to a header, so that no error shows it', async () => {
  const { port } = node.address() as AddressInfo
  const [filtered = ''] = filterNodes([
    { url: `http://me:p%40ss@127.0.0.1:${port}`, settlements: [settlement], token, platforms: [platform] },
  ])
  answers = () => ({ body: { jsonrpc: '2.0', id: 7, result: '0x1' } })
  const body = JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'eth_chainId' })
  expect((await fetch(filtered, { method: 'POST', body })).status).toBe(200)
  expect(authorization).toBe(`Basic ${Buffer.from('me:p@ss').toString('base64')}`)
})

test('behavior: an aborted request is aborted at the node as well', async () => {
  const asked = once(node, 'request')
  answers = () => ({ body: null, isSilent: true })
  const left = new AbortController()
  const failed = fetch(
    new Request(url, { method: 'POST', body: '{"method":"eth_chainId"}', signal: left.signal }),
  )
  const [request] = await asked
  left.abort()
  await expect(failed).rejects.toThrow('aborted')
  await once(request, 'close')
})
