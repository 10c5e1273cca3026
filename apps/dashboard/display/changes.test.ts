import { expect, test } from 'vitest'
import { differences } from './changes.ts'

test('default: lists only the fields that differ, each with its name in words', () => {
  const before = {
    version: 1,
    url: 'https://api.example/a',
    pricing: { usdcPerUnit: '0.010000' },
    description: '',
    disabledAt: null,
    proof: null,
    networks: [{ network: 'base', walletId: `wal_${'1'.repeat(32)}` }],
  }
  const after = {
    ...before,
    version: 2,
    pricing: { usdcPerUnit: '0.020000' },
    description: 'Weather',
    proof: { status: 'unproven', finding: 'no answer' },
    networks: [...before.networks, { network: 'polygon', walletId: `wal_${'2'.repeat(32)}` }],
  }
  expect(differences(before, after)).toEqual([
    { field: 'Price', before: '0.010000 USDC', after: '0.020000 USDC' },
    { field: 'Description', before: '–', after: 'Weather' },
    {
      field: 'Paid on',
      before: 'base (wal_…111111111111)',
      after: 'base (wal_…111111111111), polygon (wal_…222222222222)',
    },
  ])
})

test('behavior: shows no previous values for a new item, and names a field without a title by its key', () => {
  expect(differences(null, { requiresKey: false, surpriseField: { a: 1 }, other_field: 1 })).toEqual([
    { field: 'Your API key is needed', before: null, after: 'no' },
    { field: 'Surprise field', before: null, after: '{"a":1}' },
    { field: 'Other field', before: null, after: '1' },
  ])
})
