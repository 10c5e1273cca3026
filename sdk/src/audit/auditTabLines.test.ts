import { describe, expect, test } from 'vitest'
import { address, facts, stranger, transaction, word } from '../../test/audited.ts'
import {
  digestOf,
  movedTab,
  nonce,
  otherSplit,
  requestReceipt,
  tabLine,
  withLine,
} from '../../test/tabLine.ts'
import type { ReceiptClaims } from '../protocol/receipt.ts'
import { toWord } from '../protocol/tab.ts'
import { parseTabLineClaims, type TabLineClaims } from '../protocol/tabLine.ts'
import { judgeTabLines } from './auditTabLines.ts'
import type { Evidence } from './evidence.ts'
import { sumByProvider, sumCounts } from './totals.ts'

type Given = {
  /** Default: the correct tab line. */
  lines?: TabLineClaims[]
  /** Default: the tab settled in the state that the tab line names. */
  evidence?: Evidence[]
  receipts?: ReceiptClaims[]
  provider?: string
  time?: bigint
}

function judge({ lines = [tabLine], evidence = [movedTab()], receipts = [], provider, time }: Given) {
  return judgeTabLines(
    lines.map((claims, position) => ({ position, claims })),
    {
      receipts,
      evidence: new Map([['localhost', new Map([[nonce, evidence]])]]),
      factsOf: () => ({ ...facts, head: { ...facts.head, ...(time && { time }) } }),
      provider,
    },
  )
}

const verdicts = (given: Given) =>
  judge(given).tabLines.map(({ state, reason }) => (reason ? `${state}: ${reason}` : state))

/** Returns `tabLine` with another total, as a single sale. */
const claiming = (total: bigint, change: Partial<TabLineClaims> = {}): TabLineClaims => {
  const [sale] = tabLine.sales as [TabLineClaims['sales'][number]]
  const amounts = {
    totalUsdc: `${total}`,
    providerUsdc: `${(total * 9n) / 10n}`,
    platformUsdc: `${total / 10n}`,
  }
  return parseTabLineClaims({
    ...tabLine,
    ...amounts,
    sales: [{ ...sale, ...amounts, requests: 3 }],
    line: { signedUsdc: `${total}`, chargedUsdc: `${total}`, creditUsdc: '0', othersUsdc: '0' },
    ...change,
  })
}
const stated = (amount: bigint) => ({ tab: { ...tabLine.tab, state: digestOf(withLine(amount)) } })
const receipts = [1, 2, 3].map((sequence) => requestReceipt(sequence))

describe('an honest gateway', () => {
  const cases: [string, Given, string][] = [
    ['settled if there is no receipt of its requests', {}, 'settled'],
    ['settled if there are receipts of all its requests', { receipts }, 'settled'],
    ['settled if there are receipts of some of its requests', { receipts: receipts.slice(1) }, 'settled'],
    [
      'settled if there is also the receipt of a voided request, which a tab line does not contain',
      { receipts: [...receipts, requestReceipt(4, { status: 'voided', totalUsdc: '0' })] },
      'settled',
    ],
    [
      'pending if its settlement has too few confirmations',
      { evidence: [movedTab({}, { blockNumber: 99n })] },
      'pending: confirming',
    ],
    ['pending if its tab has not settled yet', { evidence: [] }, 'pending: waiting'],
    [
      'settled if another state settled, and the tab line states the amount of that state',
      {
        lines: [{ ...tabLine, line: { ...tabLine.line, movedUsdc: '3500' } }],
        evidence: [movedTab(withLine(3_500n, 13))],
      },
      'settled',
    ],
    [
      'settled if a credit from an earlier tab paid a part of its amount',
      {
        lines: [
          claiming(3_000n, {
            ...stated(2_000n),
            line: { signedUsdc: '2000', chargedUsdc: '2000', creditUsdc: '1000', othersUsdc: '0' },
          }),
        ],
        evidence: [movedTab(withLine(2_000n))],
      },
      'settled',
    ],
    [
      'settled if its buyer signed more than was charged, which leaves a credit',
      {
        lines: [
          claiming(3_000n, {
            ...stated(4_000n),
            line: { signedUsdc: '4000', chargedUsdc: '3000', creditUsdc: '0', othersUsdc: '0' },
          }),
        ],
        evidence: [movedTab(withLine(4_000n))],
      },
      'settled',
    ],
  ]
  test.each(cases)('behavior: a tab line is %s', (_, given, verdict) => {
    expect(verdicts(given)).toEqual([verdict])
    const [line] = judge(given).tabLines
    expect(line?.reconciled).toBe(verdict === 'settled')
    expect(line?.detail).not.toMatch(/undefined/)
  })
})

describe('a dishonest gateway', () => {
  const again = { ...tabLine, iat: tabLine.iat + 60 }
  const cases: [string, Given, string[]][] = [
    [
      'signs two different lines for one tab',
      { lines: [tabLine, { ...claiming(2_000n), iat: tabLine.iat + 60 }] },
      ['settled', 'duplicate: line_conflict'],
    ],
    [
      'signs two different lines for one tab, even if the false line comes first',
      { lines: [{ ...claiming(2_000n), iat: tabLine.iat - 60 }, tabLine] },
      ['mismatch: line', 'duplicate: line_conflict'],
    ],
    ['states a larger amount than was paid on the line', { lines: [claiming(9_000n)] }, ['mismatch: line']],
    ['states a smaller amount than was paid on the line', { lines: [claiming(1_000n)] }, ['mismatch: line']],
    [
      'states a smaller amount, but names the state that settled',
      { lines: [claiming(1_000n, { tab: tabLine.tab })] },
      ['mismatch: line'],
    ],
    [
      'states a smaller amount, and names a state with that amount',
      { lines: [claiming(1_000n, stated(1_000n))] },
      ['mismatch: line'],
    ],
    [
      'states a larger amount than the settled state, and names another state than the settled state',
      {
        lines: [{ ...tabLine, line: { ...tabLine.line, movedUsdc: '9000' } }],
        evidence: [movedTab(withLine(3_500n, 13))],
      },
      ['mismatch: line'],
    ],
    [
      'does not state that an older state settled with less',
      { evidence: [movedTab(withLine(2_000n, 11))] },
      ['mismatch: line'],
    ],
    ['signs a line of a tab that never settled', { evidence: [], time: 3_000n }, ['missing: expired']],
    [
      'claims that an unsettled tab settled',
      { lines: [{ ...tabLine, status: 'settled', transactionHash: transaction }], evidence: [] },
      ['missing: said_to_be_settled'],
    ],
    [
      'signs a line of a cancelled tab',
      { evidence: [movedTab({}, { kind: 'cancelled' })] },
      ['cancelled: cancelled_on_chain'],
    ],
    [
      'gives a provider the tab line of another provider',
      { provider: 'prov_2' },
      ['mismatch: other_provider'],
    ],
    [
      'names a wallet that the line does not pay',
      { lines: [{ ...tabLine, payee: stranger }] },
      ['mismatch: tab'],
    ],
    [
      'names a line of the tab that pays another wallet',
      { lines: [{ ...tabLine, tab: { ...tabLine.tab, split: toWord(otherSplit) } }] },
      ['mismatch: tab'],
    ],
    ['names another contract', { lines: [{ ...tabLine, contract: stranger }] }, ['mismatch: tab']],
    ['names another token', { lines: [{ ...tabLine, asset: address('d') }] }, ['mismatch: token']],
    [
      'signs the same tab line for another tab',
      { lines: [{ ...tabLine, tab: { ...tabLine.tab, id: `tab_${'1'.repeat(32)}` } }], time: 3_000n },
      ['missing: expired'],
    ],
    [
      'signs the same tab line under another URL of the gateway',
      { lines: [{ ...tabLine, iss: 'https://other.example' }] },
      ['pending: waiting'],
    ],
    [
      'takes a larger fee than the line’s shares allow',
      {
        lines: [
          parseTabLineClaims({
            ...tabLine,
            providerUsdc: '2600',
            platformUsdc: '400',
            sales: tabLine.sales.map((sale) => ({
              ...sale,
              ...(sale.requests === 1 && { providerUsdc: '800', platformUsdc: '200' }),
            })),
          }),
        ],
      },
      ['mismatch: fee'],
    ],
    [
      'settles the tab with another platform',
      { evidence: [movedTab({ platform: stranger })] },
      ['mismatch: terms'],
    ],
    [
      'uses the nonce for another transfer',
      { evidence: [movedTab({}, { transfer: { to: stranger, value: 3_007n } })] },
      ['mismatch: recipient'],
    ],
    [
      'moves the value to the contract without settling the tab',
      { evidence: [(({ tab: _, ...rest }) => rest)(movedTab())] },
      ['mismatch: line'],
    ],
    [
      'signs more receipts than the tab line has requests',
      { receipts: [...receipts, requestReceipt(4)] },
      ['mismatch: receipts'],
    ],
    [
      'signs a receipt for a larger amount than the tab line’s',
      { receipts: [requestReceipt(1, { totalUsdc: '3001' })] },
      ['mismatch: receipts'],
    ],
    [
      'signs receipts for all requests that add up to less than the tab line’s amount',
      { receipts: [...receipts.slice(1), requestReceipt(1, { totalUsdc: '999' })] },
      ['mismatch: receipts'],
    ],
    [
      'signs the same line for two providers',
      { lines: [tabLine, { ...tabLine, providerId: 'prov_2', iat: again.iat }] },
      ['settled', 'duplicate: line_conflict'],
    ],
  ]
  test.each(cases)('behavior: is detected if it %s', (_, given, expected) => {
    expect(verdicts(given)).toEqual(expected)
    expect(judge(given).tabLines.every(({ reconciled }) => reconciled)).toBe(false)
  })

  test('behavior: an honest gateway is not suspected if a tab line is audited twice or was signed again, and the tab line counts once', () => {
    const { tabLines, counted } = judge({ lines: [tabLine, tabLine, again], receipts })
    expect(tabLines.map(({ state }) => state)).toEqual(['settled', 'settled', 'settled'])
    expect(sumByProvider([], counted)).toMatchObject([
      { payments: 3, settled: 3, providerAmount: 2_700n, platformAmount: 300n },
    ])
  })

  describe('two providers with the same wallet', () => {
    const sharing = (
      total: bigint,
      others: bigint,
      providerId: string,
      chargedUsdc = '3000',
    ): TabLineClaims => ({
      ...claiming(total, {
        line: { signedUsdc: '3000', chargedUsdc, creditUsdc: '0', othersUsdc: `${others}` },
      }),
      providerId,
    })
    const details = (given: Given) => judge(given).tabLines.map(({ detail }) => detail)

    test('behavior: is detected if it overstates the share of one of them', () => {
      const honest = { lines: [sharing(2_000n, 1_000n, 'prov_1'), sharing(1_000n, 2_000n, 'prov_2')] }
      expect(verdicts(honest)).toEqual(['settled', 'settled'])
      const greedy = { lines: [sharing(2_000n, 1_000n, 'prov_1'), sharing(2_000n, 1_000n, 'prov_2')] }
      expect(verdicts(greedy)).toEqual(['settled', 'duplicate: line_conflict'])
      expect(details(greedy)[1]).toMatch(
        /^The tab lines of prov_1 and prov_2 together claim more than the line of tab \S+ that they share pays$/,
      )
    })

    test('behavior: is detected if it states a different amount of their line to each of them', () => {
      const lines = [sharing(2_000n, 1_000n, 'prov_1'), sharing(1_000n, 1_000n, 'prov_2', '2000')]
      expect(verdicts({ lines })).toEqual(['settled', 'duplicate: line_conflict'])
      expect(details({ lines })[1]).toMatch(
        /^The tab lines of prov_1 and prov_2 state different facts about the line of tab \S+ that they share$/,
      )
    })
  })
})

describe('counts', () => {
  test('behavior: if an older state of the tab settled, attributes the settled amount to the earliest sales first', () => {
    const { counted } = judge({
      lines: [{ ...tabLine, line: { ...tabLine.line, movedUsdc: '1500' } }],
      evidence: [movedTab(withLine(1_500n, 11))],
    })
    const providers = sumByProvider([], counted)
    expect(providers).toMatchObject([
      { settled: 1, failing: 2, providerAmount: 1_350n, platformAmount: 150n },
    ])
    expect(sumCounts(providers)).toMatchObject({ payments: 3, settled: 1, failed: 2, outstanding: 0 })
  })

  test('behavior: counts a pending tab as outstanding, and a tab without further retries as failed', () => {
    const open = judge({ evidence: [] })
    expect(sumCounts(sumByProvider([], open.counted))).toMatchObject({
      outstanding: 3,
      outstandingAmount: 2_700n,
    })
    const failed = judge({ lines: [{ ...tabLine, status: 'failed' }], evidence: [] })
    expect(sumCounts(sumByProvider([], failed.counted))).toMatchObject({ outstanding: 0, failed: 3 })
  })
})

describe('parseTabLineClaims', () => {
  test.each([
    ['requests', { requests: 4 }],
    ['totalUsdc', { totalUsdc: '3001' }],
    ['line', { line: { ...tabLine.line, creditUsdc: '1' } }],
    ['line.chargedUsdc', { line: { ...tabLine.line, chargedUsdc: '3001', creditUsdc: '0' } }],
    ['sales', { sales: [] }],
    ['testnet', { testnet: 'yes' }],
    ['testnet', { testnet: false }],
    ['tab.state', { tab: { ...tabLine.tab, state: word('1').slice(2) } }],
    ['status', { status: 'paid' }],
  ])(
    'error: rejects a tab line in which the field %s is invalid or contradicts another field',
    (field, change) => {
      expect(() => parseTabLineClaims({ ...tabLine, ...change })).toThrow(
        expect.objectContaining({ code: 'invalid_receipt', details: { field } }),
      )
    },
  )
})
