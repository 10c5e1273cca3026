import { z } from '@hono/zod-openapi'
import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { type TabPayment, type TabTerms, tabAuthorization } from '@tollkeeper/sdk/protocol/tab'
import * as wire from '../../http/wire.ts'

/** The SDK's protocol/tab.ts parses it, with a message for each field. */
export const tabPayload = z.looseObject({ tab: wire.tabId }).openapi('TabPayload', {
  description: 'The state that a buyer signed for a request on a tab (docs/tabs.md)',
  properties: {
    tab: { type: 'string' },
    payer: { type: 'string' },
    sequence: { type: 'integer' },
    expiry: { type: 'integer' },
    line: { type: 'integer' },
    known: { type: 'integer' },
    splits: { type: 'array', items: { type: 'string' } },
    amounts: { type: 'string' },
    signature: { type: 'string' },
  },
})

/** Returns a state as its buyer signed it, with the splits of all its lines. */
export function toSignedState(
  terms: TabTerms,
  { tabId, payer, sequence, expiry, amounts, signature }: TabPayment,
  splits: readonly bigint[],
): SignedAuthorization {
  const lines = amounts.map((amount, index) => ({ split: splits[index] as bigint, amount }))
  return { ...tabAuthorization(terms, { tabId, payer, sequence, expiry, lines }, keccak256), signature }
}
