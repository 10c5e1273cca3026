import {
  type Address,
  encodeAbiParameters,
  encodeEventTopics,
  type Hex,
  numberToHex,
  pad,
  type RpcLog,
} from 'viem'
import { describe, expect, test } from 'vitest'
import { batchSettlementAbi } from '../protocol/abi/batchSettlement.ts'
import { tabSettlementAbi } from '../protocol/abi/tabSettlement.ts'
import { topics } from './chainReader.ts'
import { addressToTopic, pairLogs } from './evidence.ts'

const token: Address = '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913'
const payer = `0x${'a'.repeat(40)}` as Address
const payee = `0x${'1'.repeat(40)}` as Address
const nonce = `0x${'5'.repeat(64)}` as Hex
const tabSettlement = `0x${'e'.repeat(40)}` as Address
const platform = `0x${'3'.repeat(40)}` as Address

const log = (logIndex: number, logTopics: Hex[], data: Hex = '0x'): RpcLog => ({
  address: token,
  topics: logTopics as RpcLog['topics'],
  data,
  blockHash: `0x${'8'.repeat(64)}`,
  blockNumber: '0x10',
  blockTimestamp: '0x0',
  transactionHash: `0x${'7'.repeat(64)}`,
  transactionIndex: '0x0',
  logIndex: numberToHex(logIndex),
  removed: false,
})
const used = (index: number) => log(index, [topics.used, addressToTopic(payer), nonce])
const transfer = (index: number, from = payer, to = payee) =>
  log(
    index,
    [topics.transfer, addressToTopic(from), addressToTopic(to)],
    pad(numberToHex(9500), { size: 32 }),
  )

/** Returns the TabsSettled of a batch with one tab and one line. `ends` returns the BatchSettled that ends the batch. */
const begins = (index: number): RpcLog => ({
  ...log(
    index,
    encodeEventTopics({
      abi: tabSettlementAbi,
      eventName: 'TabsSettled',
      args: { batchId: nonce, platform },
    }) as Hex[],
    encodeAbiParameters(
      [{ type: 'uint16' }, { type: 'uint256[]' }, { type: 'bytes' }],
      [1_000, [9n], `0x000100000000070000${(9_500).toString(16).padStart(12, '0')}` as Hex],
    ),
  ),
  address: tabSettlement,
})
const ends = (index: number, ofToken = token): RpcLog => ({
  ...log(
    index,
    encodeEventTopics({
      abi: batchSettlementAbi,
      eventName: 'BatchSettled',
      args: { batchId: nonce, keeper: payee, token: ofToken },
    }) as Hex[],
    encodeAbiParameters(
      [{ type: 'uint8' }, { type: 'uint256' }, { type: 'uint256' }, { type: 'uint256' }, { type: 'bytes' }],
      [1, 1n, 9_000n, 500n, '0x10'],
    ),
  ),
  address: tabSettlement,
})

const pair = (logs: RpcLog[]) => pairLogs(logs, { token, tabSettlement })

describe('pairLogs', () => {
  test('default: pairs AuthorizationUsed with the Transfer directly after it', () => {
    expect(pair([used(4), transfer(5)])).toMatchObject([
      {
        kind: 'used',
        authorizer: payer,
        nonce,
        logIndex: 4,
        blockNumber: 16n,
        transfer: { to: payee, value: 9500n },
      },
    ])
  })

  test('behavior: ignores a Transfer that isn’t the next log, or whose sender is another account', () => {
    expect(pair([used(4), transfer(6)])[0]?.transfer).toBeUndefined()
    expect(pair([used(4), transfer(3)])[0]?.transfer).toBeUndefined()
    expect(pair([used(4), transfer(5, payee)])[0]?.transfer).toBeUndefined()
  })

  test('behavior: pairs no transfer with a cancellation, whatever log follows it', () => {
    const cancelled = log(4, [topics.cancelled, addressToTopic(payer), nonce])
    expect(pair([cancelled, transfer(5)])).toMatchObject([{ kind: 'cancelled', logIndex: 4 }])
    expect(pair([cancelled, transfer(5)])[0]?.transfer).toBeUndefined()
  })

  test('behavior: ignores all logs of another token', () => {
    expect(pair([used(4), transfer(5)].map((one) => ({ ...one, address: payee })))).toEqual([])
    expect(pair([used(4), { ...transfer(5), address: payee }])[0]?.transfer).toBeUndefined()
  })

  const pull = (index: number) => [used(index), transfer(index + 1, payer, tabSettlement)]
  const settledState = {
    platform,
    rewardShare: 1_000,
    sequence: 7,
    lines: [{ split: 9n, amount: 9_500n }],
  }

  test('default: reads a tab from the events of TabSettlement', () => {
    expect(pair([...pull(4), begins(6), ends(7)])).toMatchObject([
      { nonce, transfer: { to: tabSettlement, value: 9_500n }, tab: settledState },
    ])
  })

  test('behavior: reads a tab if a Safe or a relayer, with its own logs, called the contract', () => {
    const noise = (index: number) => ({ ...log(index, [`0x${'6'.repeat(64)}`]), address: payee })
    const found = pair([noise(2), used(3), transfer(4), ...pull(5), begins(7), noise(8), ends(9), noise(10)])
    expect(found.map(({ tab }) => tab)).toEqual([undefined, settledState])
  })

  test.each([
    ['TabsSettled in a batch of another token', [begins(6), ends(7, payee)]],
    [
      'a copy of the events by another contract',
      [begins(6), ends(7)].map((one) => ({ ...one, address: payee })),
    ],
    ['a transaction without events of TabSettlement', []],
    ['a batch that ended before the authorization was used', [begins(2), ends(3)]],
  ])('behavior: %s does not prove that a tab settled', (_, events) => {
    const logs = [...pull(4), ...events].sort((a, b) => Number(a.logIndex) - Number(b.logIndex))
    const [found] = pair(logs)
    expect(found).toMatchObject({ transfer: { to: tabSettlement } })
    expect(found?.tab).toBeUndefined()
  })
})
