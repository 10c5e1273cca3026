import { expect, test } from 'vitest'
import { describeListing } from './listing.ts'

const listed = { status: 'listed' as const, reasons: [] }
const proof = {
  status: 'proven' as const,
  code: null as string | null,
  finding: null as string | null,
  advice: null as string | null,
  asked_usdc: '0.050000',
  checkedAt: '2026-11-29T09:00:00.000Z',
  nextCheckAt: '2026-11-30T09:00:00.000Z',
}
const wrong = { code: 'serves_unpaid', finding: 'It answered 200.', advice: 'Put the middleware in front.' }
const reason = { code: 'endpoint_unlisted' as const, message: 'It is kept out.', advice: 'List it.' }

test.each([
  ['a proven endpoint', { listing: listed, proof }, ['good', 'Listed', null, null]],
  ['a tool', { listing: listed, proof: null }, ['good', 'Listed', null, null]],
  [
    'an unproven endpoint',
    { listing: listed, proof: { ...proof, ...wrong, status: 'unproven' as const } },
    ['busy', 'Listed last', 'It answered 200.', 'Put the middleware in front.'],
  ],
  [
    'a proven endpoint whose last check failed',
    { listing: listed, proof: { ...proof, ...wrong } },
    ['busy', 'Listed, check failed', 'It answered 200.', 'Put the middleware in front.'],
  ],
  [
    'an endpoint that was not checked yet',
    { listing: listed, proof: { ...proof, status: 'unasked' as const } },
    ['busy', 'Listed', 'The gateway checks its URL within a minute.', null],
  ],
  [
    'a hidden endpoint, with each reason',
    {
      listing: { status: 'not_listed' as const, reasons: [reason, { ...reason, message: 'And disabled.' }] },
      proof,
    },
    ['bad', 'Not listed', 'It is kept out. And disabled.', 'List it. List it.'],
  ],
  [
    'an endpoint that was changed just now',
    { listing: { status: 'not_listed' as const, reasons: [{ ...reason, code: 'not_yet' as const }] }, proof },
    ['busy', 'Listed in a moment', 'It is kept out.', 'List it.'],
  ],
])('default: describes the catalog state of %s', (_, endpoint, [tone, title, text, advice]) => {
  expect(describeListing(endpoint)).toEqual({ tone, title, text, advice })
})
