import { expect, test } from 'vitest'
import { sellerOptions } from '../../test/signedPayment.ts'
import { createGate } from './gate.ts'
import { createPassGate } from './passGate.ts'
import { type PassOption, readPassOption } from './passOption.ts'

test.each<[PassOption, object]>([
  ['1h', { seconds: 3_600, boundTo: 'payer' }],
  ['15m', { seconds: 900, boundTo: 'payer' }],
  ['366d', { seconds: 31_622_400, boundTo: 'payer' }],
  [100, { seconds: 2_592_000, requests: 100, boundTo: 'payer' }],
  [
    { requests: 100, within: '1d' },
    { seconds: 86_400, requests: 100, boundTo: 'payer' },
  ],
  [
    { within: '1h', boundTo: 'bearer' },
    { seconds: 3_600, boundTo: 'bearer' },
  ],
])('reads the pass option %o', (option, terms) => {
  expect(readPassOption(option)).toEqual(terms)
})

test.each<unknown>([
  '',
  '1',
  '0m',
  '30s',
  '-1h',
  '1.5h',
  '367d',
  '1H',
  0,
  -1,
  1.5,
  1_000_001,
  Number.NaN,
  {},
  { requests: '5' },
  { boundTo: 'payer' },
  { within: '1h', boundTo: 'anyone' },
])('rejects the pass option %o', (option) => {
  expect(() => readPassOption(option as PassOption)).toThrow('pricing.pass: a pass')
})

test('selling passes requires an API key, and a pass gate requires an API key and endpoints', () => {
  const pricing = { usdcPerUnit: '1', pass: '1h' } as const
  expect(() => createGate({ ...sellerOptions, pricing })).toThrow('needs apiKey')
  expect(createGate({ ...sellerOptions, pricing, apiKey: 'tk_1' })).toBeDefined()
  expect(() => createPassGate({ ...sellerOptions, apiKey: '', endpointIds: ['ep_1'] })).toThrow('apiKey')
  expect(() => createPassGate({ ...sellerOptions, apiKey: 'tk_1', endpointIds: [] })).toThrow('endpointIds')
})
