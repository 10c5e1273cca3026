import fc from 'fast-check'
import type { Address, Hash } from 'viem'
import { describe, expect, test } from 'vitest'
import { address, claims, facts, payer, signed, stranger, transaction, word } from '../../test/audited.ts'
import { type ReceiptClaims, zeroHash } from '../protocol/receipt.ts'
import { refundNonce } from '../protocol/refund.ts'
import { splitterAddress } from '../protocol/splitter.ts'
import type { Evidence, EvidenceByNonce } from './evidence.ts'
import { explain } from './explain.ts'
import { type ChainFacts, judge } from './judge.ts'

const used = (half: 0 | 1, change: Partial<Evidence> = {}): Evidence => {
  const { to, value, nonce } = signed[half]
  return {
    kind: 'used',
    authorizer: payer,
    nonce,
    transfer: { to, value: BigInt(value) },
    transactionHash: transaction,
    blockNumber: 90n,
    blockHash: word('8') as Hash,
    blockTime: 900n,
    logIndex: 2 * half,
    ...change,
  }
}

const paying = (half: 0 | 1, to: Address, value: bigint) => used(half, { transfer: { to, value } })

const found = (...evidence: Evidence[]): EvidenceByNonce => {
  const byNonce: EvidenceByNonce = new Map()
  for (const one of evidence) byNonce.set(one.nonce, [...(byNonce.get(one.nonce) ?? []), one])
  return byNonce
}

describe('a receipt of a whole tab', () => {
  const whole: ReceiptClaims = {
    ...claims,
    split: { provider: facts.tabSettlement, platform: address('2') },
    authorizations: [{ ...signed[0], to: facts.tabSettlement, value: claims.totalUsdc }],
  }
  const moved = (value: bigint) => found(paying(0, facts.tabSettlement, value))

  test('default: is settled if its whole value was transferred to TabSettlement, which divides the amount', () => {
    expect(judge(whole, moved(BigInt(claims.totalUsdc)), facts)).toMatchObject({
      state: 'settled',
      reconciled: true,
    })
    expect(judge(whole, moved(1n), facts)).toMatchObject({ state: 'mismatch', reason: 'amount' })
    expect(judge(whole, found(), facts)).toMatchObject({ state: 'pending' })
  })

  test('error: is a mismatch if its value has moved to another contract', () => {
    const [one] = whole.authorizations
    const other: ReceiptClaims = {
      ...whole,
      split: { provider: stranger, platform: address('2') },
      authorizations: [{ ...one, to: stranger }],
    }
    const paid = found(paying(0, stranger, BigInt(claims.totalUsdc)))
    expect(judge(other, paid, facts)).toMatchObject({ state: 'mismatch', reason: 'splitter' })
  })
})

describe('judge', () => {
  test('default: judges a receipt as settled if both transfers exist with enough confirmations', () => {
    const verdict = judge(claims, found(used(0), used(1)), facts)
    expect(verdict).toMatchObject({ state: 'settled', reconciled: true })
    expect(explain(verdict)).toBe(`Each authorization settled in ${transaction}`)
  })

  test('behavior: accepts only the splitter of the receipt’s two wallets and amounts', () => {
    const split = { provider: address('1'), platform: address('2') }
    const to = splitterAddress({ ...split, providerShare: 19n, platformShare: 1n, factory: address('f') })
    const one: ReceiptClaims = { ...claims, split, authorizations: [{ ...signed[0], to, value: '10000' }] }
    const paid = found(used(0, { transfer: { to, value: 10_000n } }))
    expect(judge(one, paid, facts)).toMatchObject({ state: 'settled' })
    for (const other of [
      { ...one, split: { ...split, provider: stranger } },
      { ...one, split: { ...split, platform: stranger } },
      { ...one, providerUsdc: '9000', platformUsdc: '1000' },
    ]) {
      const verdict = judge(other, paid, facts)
      expect(verdict).toMatchObject({ state: 'mismatch', reason: 'splitter', reconciled: false })
      expect(explain(verdict)).toBe(
        `The payment pays ${to}, which isn't the splitter for the receipt's two wallets and amounts`,
      )
    }
    expect(judge(one, paid, { ...facts, splitterFactory: stranger })).toMatchObject({ reason: 'splitter' })
  })

  test('behavior: accepts only a transfer to the payer with the refund’s own nonce as proof of a refund', () => {
    const from = address('1')
    const nonce = refundNonce(claims.iss, claims.paymentId, 2)
    const refund = { number: 2, from, value: '4000', nonce, transactionHash: zeroHash }
    const moved = used(0, { authorizer: from, nonce, transfer: { to: payer, value: 4_000n } })
    const judgeWith = (change: Partial<typeof refund>, evidence: Evidence[], head = facts.head) =>
      judge({ ...claims, refunds: [{ ...refund, ...change }] }, found(used(0), used(1), ...evidence), {
        ...facts,
        head,
      })
    const arrived = judgeWith({ transactionHash: transaction }, [moved])
    expect(arrived).toMatchObject({ state: 'settled', reconciled: true, refunds: [{ state: 'settled' }] })
    expect(explain(arrived)).toContain(`; refund 2 of 0.004000 USDC arrived in ${transaction}`)
    // This receipt names no transaction for the refund. The refund may have arrived since, or may still be pending.
    expect(judgeWith({}, [moved])).toMatchObject({ refunds: [{ state: 'settled' }] })
    expect(judgeWith({}, [moved], { number: 92n, time: 1000n })).toMatchObject({
      refunds: [{ state: 'pending' }],
    })
    expect(judgeWith({}, [])).toMatchObject({ state: 'settled', refunds: [{ state: 'pending' }] })
    const lies: [Partial<typeof refund>, Evidence[], string][] = [
      [{ transactionHash: transaction }, [], 'missing'],
      [
        { transactionHash: transaction },
        [{ ...moved, transfer: { to: stranger, value: 4_000n } }],
        'mismatch',
      ],
      [{ transactionHash: transaction }, [{ ...moved, transfer: { to: payer, value: 3_999n } }], 'mismatch'],
      [{ transactionHash: transaction }, [{ ...moved, authorizer: stranger }], 'missing'],
      // A transfer for another purpose doesn't prove a refund.
      [{ nonce: word('1'), from: payer, transactionHash: transaction }, [], 'mismatch'],
      [{ number: 1, transactionHash: transaction }, [moved], 'mismatch'],
    ]
    for (const [change, evidence, state] of lies)
      expect(judgeWith(change, evidence)).toMatchObject({
        state: 'mismatch',
        reason: 'refund',
        reconciled: false,
        refunds: [{ state }],
      })
  })

  test('behavior: judges a receipt with a single authorization as settled if its transfer exists', () => {
    const one: ReceiptClaims = { ...claims, authorizations: [signed[0]] }
    const verdict = judge(one, found(used(0)), facts)
    expect(verdict).toMatchObject({ state: 'settled', halves: [{ half: 'provider' }] })
    expect(explain(verdict)).toBe(`The payment settled in ${transaction}`)
    expect(judge(one, found(), facts)).toMatchObject({ state: 'pending', reason: 'waiting' })
  })

  const cases: [
    string,
    Partial<ReceiptClaims>,
    Evidence[],
    Partial<ChainFacts>,
    string,
    string | undefined,
  ][] = [
    ['is pending if neither authorization was used', {}, [], {}, 'pending', 'waiting'],
    ['is pending if only one authorization was used', {}, [used(0)], {}, 'pending', 'waiting'],
    [
      'is pending with too few confirmations',
      {},
      [used(0, { blockNumber: 98n }), used(1)],
      {},
      'pending',
      'confirming',
    ],
    [
      'is settled with just enough confirmations',
      {},
      [used(0, { blockNumber: 97n }), used(1)],
      {},
      'settled',
      undefined,
    ],
    [
      'is missing if only one authorization was used, and the other has expired',
      {},
      [used(0)],
      { head: { number: 100n, time: 2000n } },
      'missing',
      'expired',
    ],
    [
      'is pending if only one authorization was used, a second before the other expires',
      {},
      [used(0)],
      { head: { number: 100n, time: 1999n } },
      'pending',
      'waiting',
    ],
    [
      'is missing if the receipt says settled, but one transfer is not on chain',
      { status: 'settled' },
      [used(0)],
      {},
      'missing',
      'said_to_be_settled',
    ],
    [
      'is missing if the receipt names a transaction, but nothing is on chain',
      { transactionHash: transaction },
      [],
      {},
      'missing',
      'said_to_be_settled',
    ],
    [
      'is pending if the provider is paid and the platform is not yet',
      { transactionHash: transaction },
      [used(0)],
      {},
      'pending',
      'waiting',
    ],
    [
      'is cancelled if the payer cancelled one authorization',
      {},
      [used(0), { ...used(1), kind: 'cancelled' }],
      {},
      'cancelled',
      'cancelled_on_chain',
    ],
    [
      'is cancelled if the provider voided the payment and nothing moved',
      { status: 'voided' },
      [],
      {},
      'cancelled',
      'voided',
    ],
    [
      'is settled if the payment was voided, but both transfers happened',
      { status: 'voided' },
      [used(0), used(1)],
      {},
      'settled',
      undefined,
    ],
    [
      'is a mismatch if less was transferred',
      {},
      [paying(0, address('1'), 9499n), used(1)],
      {},
      'mismatch',
      'amount',
    ],
    [
      'is a mismatch if more was transferred',
      {},
      [paying(0, address('1'), 9501n), used(1)],
      {},
      'mismatch',
      'amount',
    ],
    [
      'is a mismatch if another recipient was paid',
      {},
      [used(0), paying(1, stranger, 500n)],
      {},
      'mismatch',
      'recipient',
    ],
    [
      'is a mismatch if another payer paid',
      {},
      [used(0, { authorizer: stranger }), used(1)],
      {},
      'mismatch',
      'payer',
    ],
    [
      'is a mismatch if the receipt names another token',
      { asset: address('d') },
      [used(0), used(1)],
      {},
      'mismatch',
      'token',
    ],
    [
      'has the worse verdict of the two authorizations',
      {},
      [paying(0, stranger, 9500n)],
      {},
      'mismatch',
      'recipient',
    ],
  ]
  test.each(cases)('behavior: a receipt %s', (_, changedClaims, evidence, changedFacts, state, reason) => {
    const verdict = judge({ ...claims, ...changedClaims }, found(...evidence), { ...facts, ...changedFacts })
    expect([verdict.state, verdict.reason]).toEqual([state, reason])
    expect(verdict.reconciled).toBe(state === 'settled' || reason === 'voided')
    expect(explain(verdict)).not.toMatch(/undefined/)
  })

  test('behavior: does not accept AuthorizationUsed without a Transfer as proof', () => {
    const { transfer: _, ...unpaired } = used(0)
    expect(judge(claims, found(unpaired, used(1)), facts)).toMatchObject({
      state: 'mismatch',
      reason: 'no_transfer',
    })
  })

  test('behavior: does not accept one transfer as proof of two authorizations with the same nonce', () => {
    const [provider] = claims.authorizations
    const greedy = { ...claims, authorizations: [provider, provider] } as ReceiptClaims
    expect(judge(greedy, found(used(0)), facts)).toMatchObject({ state: 'mismatch', reason: 'same_nonce' })
  })

  test('behavior: reports a transaction that differs from the receipt’s, and still counts the payment as settled', () => {
    const both = found(used(0), used(1))
    const settled = { ...claims, status: 'settled' } as ReceiptClaims
    const reorged = { ...settled, transactionHash: word('9') }
    expect(judge(reorged, both, facts)).toMatchObject({ state: 'settled', isSuperseded: true })
    const mined = { ...settled, transactionHash: transaction, blockHash: word('8') }
    expect(judge(mined, both, facts).isSuperseded).toBeUndefined()
    const minedAnew = { ...mined, blockHash: word('9') }
    expect(judge(minedAnew, both, facts)).toMatchObject({ state: 'settled', isSuperseded: true })
  })

  const arbitraryEvidence = fc.record({
    half: fc.constantFrom(0, 1) as fc.Arbitrary<0 | 1>,
    kind: fc.constantFrom('used', 'cancelled') as fc.Arbitrary<Evidence['kind']>,
    authorizer: fc.constantFrom(payer, stranger, address('1')),
    to: fc.constantFrom(address('1'), address('2'), stranger, undefined),
    value: fc.constantFrom(9500n, 500n, 0n, 9501n),
    blockNumber: fc.bigInt(90n, 100n),
  })

  test('behavior: judges a receipt as settled if and only if the payer made both promised transfers, with enough confirmations', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(arbitraryEvidence, { selector: (one) => `${one.half} ${one.authorizer}` }),
        (many) => {
          const evidence = many.map(({ half, to, value, ...change }): Evidence => {
            const { transfer: _, ...one } = used(half, change)
            return to ? { ...one, transfer: { to, value } } : one
          })
          const isProved = (half: 0 | 1) =>
            many.some(
              (one) =>
                one.half === half &&
                one.kind === 'used' &&
                one.authorizer === payer &&
                one.to === signed[half].to &&
                one.value === BigInt(signed[half].value) &&
                one.blockNumber <= 97n,
            )
          const { state, reconciled } = judge(claims, found(...evidence), facts)
          expect(state === 'settled').toBe(isProved(0) && isProved(1))
          expect(reconciled).toBe(state === 'settled')
        },
      ),
      { numRuns: 2000 },
    )
  })

  test('behavior: returns the same verdict if another address uses the same nonces for other transfers', () => {
    fc.assert(
      fc.property(fc.array(arbitraryEvidence), (noise) => {
        const others = noise.map(({ half, value, kind }) =>
          used(half, { kind, authorizer: stranger, transfer: { to: stranger, value } }),
        )
        const quiet = judge(claims, found(used(0)), facts)
        expect(judge(claims, found(...others, used(0)), facts)).toEqual(quiet)
      }),
    )
  })
})
