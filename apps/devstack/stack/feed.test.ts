import { expect, test } from 'vitest'
import { describeLine } from './feed.ts'

const noFunctions = { level: 40, msg: 'No registered indexing functions', type: 'contract' }

test.each([
  ['a warning', 'indexer', { level: 40, msg: 'a node is slow' }, 'warning    indexer: a node is slow'],
  ['an error', 'api', { level: 50, msg: 'it failed' }, 'ERROR      api: it failed'],
  [
    'a signed batch',
    'keeper',
    { level: 30, msg: 'batch signed', payments: 2, trigger: 'time', hash: '0x1' },
    'broadcast  2 payments, trigger time, transaction 0x1',
  ],
  [
    'a warning about a source without functions',
    'indexer',
    { ...noFunctions, name: 'Usdc' },
    `warning    indexer: ${noFunctions.msg}`,
  ],
] as const)('default: shows %s in one line', (_, name, entry, news) => {
  expect(describeLine(name, JSON.stringify(entry))).toBe(news)
})

test.each([
  ['an informational message', 'api', { level: 30, msg: 'listening' }],
  [
    'a warning about the pseudo-contract of ponder.config.ts, which has no functions',
    'indexer',
    { ...noFunctions, name: 'Platform' },
  ],
  [
    'a warning that the local chain is an unknown RPC',
    'indexer',
    { level: 40, msg: 'Detected public RPC for base' },
  ],
] as const)('behavior: leaves out %s', (_, name, entry) => {
  expect(describeLine(name, JSON.stringify(entry))).toBeUndefined()
})

test('behavior: leaves out lines that are not log entries', () => {
  for (const line of ['', 'text', '{"level":50', '[]']) expect(describeLine('api', line)).toBeUndefined()
})
