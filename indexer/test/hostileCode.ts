import { concat, type Hex, type Log, numberToHex, size } from 'viem'

// Hostile contracts, written as the few opcodes that they need.

/** Returns a token's code that makes this call during a transfer, and succeeds. The code returns no data for `authorizationState`. */
export function codeThatCalls(target: Hex, data: Hex): Hex {
  const length = numberToHex(size(data), { size: 2 })
  const skip: Hex = '0x36604414603157' // calldatasize() == 68: jump to the end
  const copy = concat(['0x61', length, '0x6033600039']) // codecopy(0, 51, length)
  const call = concat(['0x60006000', '0x61', length, '0x60006000', '0x73', target, '0x5af1']) // with all the gas
  return concat([skip, copy, call, '0x5b00', data])
}

/** Returns code that emits these logs on any call. */
export function codeThatLogs(logs: readonly Pick<Log, 'topics' | 'data'>[]): Hex {
  const parts = logs.flatMap(({ topics, data }) => {
    const words = data.slice(2).match(/.{64}/g) ?? []
    const stores = words.map((word, i) =>
      concat([`0x7f${word}`, '0x61', numberToHex(32 * i, { size: 2 }), '0x52']),
    )
    const pushes = topics.toReversed().map((topic) => concat(['0x7f', topic]))
    const length = numberToHex(size(data), { size: 2 })
    return [...stores, ...pushes, '0x61' as Hex, length, '0x6000' as Hex, numberToHex(0xa0 + topics.length)]
  })
  return concat([...parts, '0x00'])
}
