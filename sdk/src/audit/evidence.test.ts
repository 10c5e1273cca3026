import { type Address, type Hex, numberToHex, pad, type RpcLog } from 'viem'
import { describe, expect, test } from 'vitest'
import { topics } from './chainReader.ts'
import { addressToTopic, pairLogs } from './evidence.ts'

const token: Address = '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913'
const payer = `0x${'a'.repeat(40)}` as Address
const payee = `0x${'1'.repeat(40)}` as Address
const nonce = `0x${'5'.repeat(64)}` as Hex

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
const transfer = (index: number, from = payer) =>
  log(
    index,
    [topics.transfer, addressToTopic(from), addressToTopic(payee)],
    pad(numberToHex(9500), { size: 32 }),
  )

describe('pairLogs', () => {
  test('default: a use with the transfer right after it', () => {
    expect(pairLogs([used(4), transfer(5)])).toMatchObject([
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

  test('behavior: a transfer elsewhere, or of somebody else, is not its transfer', () => {
    expect(pairLogs([used(4), transfer(6)])[0]?.transfer).toBeUndefined()
    expect(pairLogs([used(4), transfer(3)])[0]?.transfer).toBeUndefined()
    expect(pairLogs([used(4), transfer(5, payee)])[0]?.transfer).toBeUndefined()
  })

  test('behavior: a cancellation has no transfer, whatever follows it', () => {
    const cancelled = log(4, [topics.cancelled, addressToTopic(payer), nonce])
    expect(pairLogs([cancelled, transfer(5)])).toMatchObject([{ kind: 'cancelled', logIndex: 4 }])
    expect(pairLogs([cancelled, transfer(5)])[0]?.transfer).toBeUndefined()
  })
})
