import { describe, expect, test } from 'vitest'
import { address } from '../../test/audited.ts'
import { networkByName } from '../protocol/networks.ts'
import { encodeSplit } from '../protocol/splitter.ts'
import type { TabOffer } from './offers.ts'
import type { Signer } from './payer.ts'
import {
  beginTab,
  canTake,
  catchUp,
  countOutcome,
  countRequest,
  countResponse,
  isPast,
  lastState,
  nextState,
  type Tab,
} from './tabState.ts'

const now = 1_800_000_000
const payer = { address: address('a') } as Signer
const splitFor = (digit: string) =>
  encodeSplit({ provider: address(digit), providerShare: 9n, platformShare: 1n })
const offer: TabOffer = {
  issuer: 'https://gateway.example',
  network: networkByName('base'),
  usdc: address('c'),
  macaroon: 'm',
  price: 100n,
  split: splitFor('1'),
  platform: address('f'),
  rewardShare: 1_000,
  maxTimeoutSeconds: 50_000,
}

/** Returns a tab on which `requests` requests were bought with the offer. */
function tabWith(requests: number, bought = offer): Tab {
  const tab = beginTab(offer, payer, now)
  for (let n = 0; n < requests; n++) buy(tab, bought)
  return tab
}
function buy(tab: Tab, bought = offer): number {
  const sequence = ++tab.sequence
  countRequest(tab, sequence, nextState(tab, bought), bought)
  return sequence
}
const boughtOn = (tab: Tab) => tab.lines.map(({ bought }) => bought)

describe('beginTab', () => {
  test.each([
    [50_000, 50_000],
    [10_000_000, 93_600],
  ])(
    'args: an offer for %d seconds starts a tab that is valid for %d seconds',
    (maxTimeoutSeconds, lifetime) => {
      expect(beginTab({ ...offer, maxTimeoutSeconds }, payer, now).expiry).toBe(now + lifetime)
    },
  )
})

describe('canTake', () => {
  test.each([
    ['accepts an offer if the tab has more than an hour left', {}, 3_601, true],
    ['rejects an offer if the tab has only an hour left', {}, 3_600, false],
    [
      'rejects an offer if the tab has only half of a short validity left',
      { maxTimeoutSeconds: 600 },
      300,
      false,
    ],
    [
      'accepts an offer if the tab has more than half of a short validity left',
      { maxTimeoutSeconds: 600 },
      301,
      true,
    ],
    ['rejects an offer with another platform', { platform: address('e') }, 50_000, false],
    ['rejects an offer with another reward', { rewardShare: 0 }, 50_000, false],
    ['rejects an offer in another token', { usdc: address('d') }, 50_000, false],
  ])('default: %s', (_, change, left, expected) => {
    const tab = beginTab(offer, payer, now)
    expect(canTake(tab, { ...offer, ...change }, tab.expiry - left)).toBe(expected)
  })
})

describe('nextState and lastState', () => {
  test('default: the next state adds the price to the offer’s line', () => {
    const tab = tabWith(2)
    expect(nextState(tab, offer)).toEqual({ line: 0, lines: [{ split: offer.split, amount: 300n }] })
    const other = splitFor('2')
    expect(nextState(tab, { ...offer, split: other, price: 7n })).toEqual({
      line: 1,
      lines: [
        { split: offer.split, amount: 200n },
        { split: other, amount: 7n },
      ],
    })
  })

  test.each([
    ['150 of 200 bought', 150n, 150n],
    ['201 of 200 bought', 201n, 200n],
  ])(
    'behavior: the last state contains the lower of the bought and the charged amount if the gateway charged %s',
    (_, charged, amount) => {
      const { lines } = lastState(tabWith(2), [{ split: offer.split, charged }])
      expect(lines).toEqual([{ split: offer.split, amount }])
    },
  )
})

describe('countOutcome', () => {
  test('default: counts an uncharged price as waived, not as bought', () => {
    const tab = tabWith(1)
    countOutcome(tab, buy(tab), { charged: 30n })
    expect(tab.lines).toMatchObject([{ bought: 130n, waived: 70n, signed: 200n }])
  })

  test('behavior: counts a request with an unknown outcome as charged until the outcome is known', () => {
    const tab = tabWith(0)
    const sequence = buy(tab)
    countOutcome(tab, sequence, 'unknown')
    expect(boughtOn(tab)).toEqual([100n])
    countOutcome(tab, sequence, { charged: 0n })
    expect(boughtOn(tab)).toEqual([0n])
  })

  test('error: counts at most the price as bought, even if more was charged', () => {
    const tab = tabWith(0)
    countOutcome(tab, buy(tab), { charged: 1_000n })
    expect(tab.lines).toMatchObject([{ bought: 100n, waived: 0n }])
  })
})

describe('catchUp', () => {
  /** Returns a tab on whose line 30 of 200 base units were waived. */
  function waivedTab(): Tab {
    const tab = tabWith(1)
    countOutcome(tab, buy(tab), { charged: 70n })
    return tab
  }

  test('default: raises the bought amount if a seller waived an amount that the gateway charged', () => {
    const tab = waivedTab()
    expect(catchUp(tab, [{ split: offer.split, charged: 200n }])).toBe(true)
    expect(tab.lines).toMatchObject([{ bought: 200n, waived: 0n }])
    // All 30 waived units are used up, so the tab can't cover another unit.
    expect(catchUp(tab, [{ split: offer.split, charged: 201n }])).toBe(false)
  })

  test.each([
    ['more than was waived', [{ split: offer.split, charged: 201n }]],
    ['a line that was never signed', [{ split: splitFor('9'), charged: 1n }]],
  ])('error: leaves the tab unchanged if the gateway charged %s', (_, charged) => {
    const tab = waivedTab()
    expect(catchUp(tab, charged)).toBe(false)
    expect(tab.lines).toMatchObject([{ bought: 170n, waived: 30n }])
  })
})

describe('countResponse', () => {
  const response = { id: 'tab_1', sequence: 1, known: 1 }
  const request = { line: 0, amounts: `0x${'0'.repeat(12)}` } as const

  test('default: uses up a line’s initial credit first, and counts the credit once even if two responses report it', () => {
    const tab = tabWith(1)
    for (let n = 0; n < 2; n++) countResponse(tab, { ...response, credit: '40' }, request)
    expect(tab.lines).toMatchObject([{ bought: 60n, credit: 40n }])
    countResponse(tab, { ...response, credit: '50' }, request)
    expect(tab.lines).toMatchObject([{ bought: 50n, credit: 50n }])
  })

  test('error: if a seller reports more known lines than the request contained, counts only the request’s lines as known', () => {
    const tab = tabWith(1)
    buy(tab, { ...offer, split: splitFor('2') })
    countResponse(tab, { ...response, known: 5 }, request)
    expect(tab.known).toBe(1)
    countResponse(tab, { ...response, known: 5 }, { line: 1, amounts: `0x${'0'.repeat(24)}` })
    expect(tab.known).toBe(2)
  })
})

test.each([
  ['true if the charge leaves no room for the state', 101n, true],
  ['false if the charge leaves room for the state', 100n, false],
])('default: isPast returns %s', (_, charged, expected) => {
  const tab = tabWith(2)
  const amounts = `0x${(200).toString(16).padStart(12, '0')}` as const
  expect(isPast(tab, { line: 0, amounts }, 100n, [{ split: offer.split, charged }])).toBe(expected)
})
