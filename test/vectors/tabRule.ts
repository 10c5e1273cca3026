import { account, contract, domain, mostUint40, mostUint48, splitOf } from './tabMessage.ts'

// The expected verdicts and tabs are written by hand, without sdk/src/protocol, because the vectors check it.

const terms = {
  chainId: domain.chainId as number,
  token: account('token'),
  contract,
  platform: account('platform'),
  rewardShare: 1_000,
  expiry: 1_800_093_600,
}
const [a, b, c, d] = ['A', 'B', 'C', 'D'].map((provider) => splitOf(provider, 9, 1)) as [
  Split,
  Split,
  Split,
  Split,
]
const many = Array.from({ length: 14 }, (_, index) => splitOf(`provider ${index}`, 9, 1))

type Split = ReturnType<typeof splitOf>
type Amount = number | bigint

type ChangedTerms = { [Name in keyof typeof terms]?: (typeof terms)[Name] }

type Accept = {
  requestHash?: string
  sequence: number
  line?: number
  known?: number
  splits?: readonly Split[]
  amounts: readonly Amount[]
  price?: Amount
  reserved?: Amount
  credit?: Amount
  terms?: ChangedTerms
}
type Tab = {
  sequence: number
  signed: readonly Amount[]
  charged: readonly Amount[]
  reduced?: readonly Amount[]
  reserved?: Amount
  isClosed?: true
}
type Line = { lineTotal: Amount; lineReduced?: Amount; credit?: Amount }
/**
 * The expected result of a step. A text alone is a refusal, which leaves the tab unchanged, or a verdict that changes nothing. Otherwise it is
 * the verdict, the tab after it, and the line of an accepted request.
 */
type Expected = string | [verdict: string, tab: Tab, line?: Line] | [verdict: string, line: Line]
type Action =
  | { accept: Accept }
  | { charge: { sequence: number; amount: Amount } }
  | { close: { sequence: number; expiry: number; amounts: readonly Amount[]; least?: Amount } }
type Step = [Action, Expected]

/**
 * A request for 10 on line 0, under the file's terms unless the request names other terms. Requests with different numbers are different
 * requests.
 */
const accept = (one: Accept): Action => ({ accept: one })
const charge = (sequence: number, amount: Amount): Action => ({ charge: { sequence, amount } })
const close = (sequence: number, amounts: readonly Amount[], least?: Amount): Action => ({
  close: { sequence, expiry: terms.expiry, amounts, ...(least !== undefined && { least }) },
})
/** The result of a request accepted on a tab without reductions: the tab, and the line's total. */
const accepted = (tab: Tab, lineTotal: Amount, more: Partial<Line> = {}): Expected => [
  'accepted',
  tab,
  { lineTotal, ...more },
]

/** Opens a tab with 1,000 of credit by a request on line A. */
const opens: Step = [
  accept({ sequence: 1, splits: [a], amounts: [10], reserved: 1_000 }),
  accepted({ sequence: 1, signed: [10], charged: [10] }, 10),
]
/** Adds line B to the tab that `opens` has opened. */
const addsLine: Step = [
  accept({ sequence: 2, line: 1, known: 1, splits: [b], amounts: [10, 5], price: 5 }),
  accepted({ sequence: 2, signed: [10, 5], charged: [10, 5] }, 5),
]

const cases: { name: string; steps: Step[] }[] = [
  {
    name: 'a tab is opened by its first request, and each further one adds its price',
    steps: [
      opens,
      [
        accept({ sequence: 2, known: 1, amounts: [30], price: 20 }),
        accepted({ sequence: 2, signed: [30], charged: [30] }, 30),
      ],
    ],
  },
  {
    name: 'a tab without reserved credit is not opened',
    steps: [[accept({ sequence: 1, splits: [a], amounts: [10] }), 'unreserved']],
  },
  {
    name: 'a tab that covers exactly its reserved credit is opened, and more credit lets it continue',
    steps: [
      [accept({ sequence: 1, splits: [a], amounts: [10], reserved: 9 }), 'unreserved'],
      [
        accept({ sequence: 1, splits: [a], amounts: [10], reserved: 10 }),
        accepted({ sequence: 1, signed: [10], charged: [10], reserved: 10 }, 10),
      ],
      [accept({ sequence: 2, known: 1, amounts: [11], price: 1 }), 'unreserved'],
      [
        accept({ sequence: 2, known: 1, amounts: [11], price: 1, reserved: 11 }),
        accepted({ sequence: 2, signed: [11], charged: [11], reserved: 11 }, 11),
      ],
      // A reservation never shrinks.
      [accept({ sequence: 3, known: 1, amounts: [12], price: 1, reserved: 5 }), 'unreserved'],
      [
        accept({ sequence: 3, known: 1, amounts: [12], price: 1, reserved: 20 }),
        accepted({ sequence: 3, signed: [12], charged: [12], reserved: 20 }, 12),
      ],
      [
        accept({ sequence: 4, known: 1, amounts: [13], price: 1, reserved: 5 }),
        accepted({ sequence: 4, signed: [13], charged: [13], reserved: 20 }, 13),
      ],
    ],
  },
  {
    name: 'a state that signs less than the price opens no tab',
    steps: [
      [accept({ sequence: 1, splits: [a], amounts: [9], reserved: 1_000 }), 'behind'],
      // The signed amount and the reserved credit are both too small, and the rule checks the signed amount first.
      [accept({ sequence: 1, splits: [a], amounts: [9], reserved: 1 }), 'behind'],
      opens,
    ],
  },
  {
    name: 'a tab that does not exist has no lines that a request could know',
    steps: [[accept({ sequence: 1, known: 1, amounts: [10], reserved: 1_000 }), 'mismatch'], opens],
  },
  {
    name: 'a state buys one request, and the same request again is the same purchase',
    steps: [
      opens,
      [accept({ sequence: 1, splits: [a], amounts: [10] }), ['repeated', { lineTotal: 10 }]],
      [accept({ sequence: 1, splits: [a], amounts: [10], requestHash: 'another' }), 'replayed'],
      // Only the request is compared, so other terms make no difference.
      [
        accept({ sequence: 1, splits: [b], amounts: [10], terms: { rewardShare: 0 } }),
        ['repeated', { lineTotal: 10 }],
      ],
      [charge(1, 0), ['charged', { sequence: 1, signed: [10], charged: [0], reduced: [10] }]],
      [accept({ sequence: 1, splits: [a], amounts: [10] }), 'voided'],
      [accept({ sequence: 1, splits: [a], amounts: [10], requestHash: 'another' }), 'replayed'],
      [charge(1, 4), ['charged', { sequence: 1, signed: [10], charged: [4], reduced: [6] }]],
      [accept({ sequence: 1, splits: [a], amounts: [10] }), ['repeated', { lineTotal: 10 }]],
    ],
  },
  {
    name: 'requests arrive in any order, and the newest state counts',
    steps: [
      opens,
      [
        accept({ sequence: 4, known: 1, amounts: [40] }),
        accepted({ sequence: 4, signed: [40], charged: [20] }, 20),
      ],
      [
        accept({ sequence: 2, known: 1, amounts: [20] }),
        accepted({ sequence: 4, signed: [40], charged: [30] }, 30),
      ],
      [
        accept({ sequence: 3, known: 1, amounts: [30] }),
        accepted({ sequence: 4, signed: [40], charged: [40] }, 40),
      ],
      [accept({ sequence: 5, known: 1, amounts: [49] }), 'behind'],
      [
        accept({ sequence: 6, known: 1, amounts: [50] }),
        accepted({ sequence: 6, signed: [50], charged: [50] }, 50),
      ],
      // Only the newest state counts, even if an older one signs more.
      [accept({ sequence: 5, known: 1, amounts: [1_000] }), 'behind'],
    ],
  },
  {
    name: 'a later state may sign less than an earlier one',
    steps: [
      [
        accept({ sequence: 1, splits: [a], amounts: [500], reserved: 1_000 }),
        accepted({ sequence: 1, signed: [500], charged: [10] }, 10),
      ],
      [
        accept({ sequence: 2, known: 1, amounts: [20] }),
        accepted({ sequence: 2, signed: [20], charged: [20] }, 20),
      ],
    ],
  },
  {
    name: 'a charge is reduced, the next request uses up the reduction, and the charge is raised again up to the signed amount',
    steps: [
      opens,
      [charge(1, 11), 'over'],
      [charge(1, 3), ['charged', { sequence: 1, signed: [10], charged: [3], reduced: [7] }]],
      [charge(1, 3), 'charged'],
      [
        accept({ sequence: 2, known: 1, amounts: [8], price: 5 }),
        accepted({ sequence: 2, signed: [8], charged: [8], reduced: [7] }, 8, { lineReduced: 7 }),
      ],
      [charge(1, 4), 'over'],
      [
        accept({ sequence: 3, known: 1, amounts: [20], price: 5 }),
        accepted({ sequence: 3, signed: [20], charged: [13], reduced: [7] }, 13, { lineReduced: 7 }),
      ],
      // The charge of the first request rises from 3 to 5, so the line's charges are 15 (5 + 5 + 5).
      [charge(1, 5), ['charged', { sequence: 3, signed: [20], charged: [15], reduced: [5] }]],
      // The repeated request's `lineTotal` counts the request at its full price: 20 (10 + 5 + 5).
      [accept({ sequence: 1, splits: [a], amounts: [10] }), ['repeated', { lineTotal: 20 }]],
      [charge(1, 10), ['charged', { sequence: 3, signed: [20], charged: [20], reduced: [0] }]],
      [charge(9, 0), 'closed'],
    ],
  },
  {
    name: 'a request is reduced on its own line',
    steps: [
      opens,
      addsLine,
      [charge(2, 1), ['charged', { sequence: 2, signed: [10, 5], charged: [10, 1], reduced: [0, 4] }]],
      [
        accept({ sequence: 3, line: 2, known: 2, splits: [c], amounts: [10, 1, 10] }),
        accepted({ sequence: 3, signed: [10, 1, 10], charged: [10, 1, 10], reduced: [0, 4, 0] }, 10),
      ],
      [
        charge(3, 8),
        ['charged', { sequence: 3, signed: [10, 1, 10], charged: [10, 1, 8], reduced: [0, 4, 2] }],
      ],
      [
        accept({ sequence: 4, line: 2, known: 3, amounts: [10, 1, 18] }),
        accepted({ sequence: 4, signed: [10, 1, 18], charged: [10, 1, 18], reduced: [0, 4, 2] }, 18, {
          lineReduced: 2,
        }),
      ],
    ],
  },
  {
    name: 'lines keep their positions, and a request may repeat lines that another request has added before',
    steps: [
      opens,
      [
        accept({ sequence: 2, line: 1, splits: [a, b], amounts: [10, 5], price: 5 }),
        accepted({ sequence: 2, signed: [10, 5], charged: [10, 5] }, 5),
      ],
      [
        accept({ sequence: 3, known: 1, splits: [b], amounts: [20, 5] }),
        accepted({ sequence: 3, signed: [20, 5], charged: [20, 5] }, 20),
      ],
      [accept({ sequence: 4, line: 1, known: 1, splits: [c], amounts: [20, 15] }), 'mismatch'],
      [accept({ sequence: 4, known: 0, splits: [b], amounts: [30] }), 'mismatch'],
      [accept({ sequence: 4, known: 3, amounts: [30, 5, 0] }), 'mismatch'],
      [
        accept({ sequence: 4, line: 3, known: 1, splits: [b, c, d], amounts: [20, 5, 0, 10] }),
        accepted({ sequence: 4, signed: [20, 5, 0, 10], charged: [20, 5, 0, 10] }, 10),
      ],
    ],
  },
  {
    name: 'two lines may have the same split',
    steps: [
      opens,
      [
        accept({ sequence: 2, line: 1, known: 1, splits: [a], amounts: [10, 10] }),
        accepted({ sequence: 2, signed: [10, 10], charged: [10, 10] }, 10),
      ],
    ],
  },
  {
    name: 'a state with fewer lines than the tab signs nothing for the missing lines',
    steps: [
      opens,
      addsLine,
      [accept({ sequence: 3, known: 1, amounts: [20] }), 'behind'],
      [charge(2, 0), ['charged', { sequence: 2, signed: [10, 5], charged: [10, 0], reduced: [0, 5] }]],
      [
        accept({ sequence: 3, known: 1, amounts: [20] }),
        accepted({ sequence: 3, signed: [20], charged: [20, 0], reduced: [0, 5] }, 20),
      ],
      [charge(2, 1), 'over'],
      [
        accept({ sequence: 4, known: 2, amounts: [30, 5] }),
        accepted({ sequence: 4, signed: [30, 5], charged: [30, 0], reduced: [0, 5] }, 30),
      ],
      [charge(2, 5), ['charged', { sequence: 4, signed: [30, 5], charged: [30, 5], reduced: [0, 0] }]],
    ],
  },
  {
    name: 'a request with other terms is refused',
    steps: [
      opens,
      ...(
        [
          { chainId: 1 },
          { token: account('another token') },
          { contract: account('another contract') },
          { platform: account('another platform') },
          { rewardShare: 999 },
          { expiry: 1_800_093_601 },
        ] satisfies Accept['terms'][]
      ).map(
        (changed): Step => [accept({ sequence: 2, known: 1, amounts: [20], terms: changed }), 'mismatch'],
      ),
    ],
  },
  {
    name: 'a closed tab accepts no request and no other charge',
    steps: [
      opens,
      [close(2, [10]), ['closed', { sequence: 2, signed: [10], charged: [10], isClosed: true }]],
      [accept({ sequence: 3, known: 1, amounts: [20] }), 'closed'],
      [accept({ sequence: 3, known: 1, amounts: [20], terms: { chainId: 1 } }), 'closed'],
      [accept({ sequence: 1, splits: [a], amounts: [10] }), ['repeated', { lineTotal: 10 }]],
      [accept({ sequence: 1, splits: [a], amounts: [10], requestHash: 'another' }), 'replayed'],
      [charge(1, 10), 'charged'],
      [charge(1, 11), 'over'],
      [charge(1, 9), 'closed'],
      [close(2, [10]), 'closed'],
    ],
  },
  {
    name: 'a last state has all lines, is the newest and covers what is charged',
    steps: [
      opens,
      addsLine,
      [close(3, [15]), 'mismatch'],
      [close(3, [10, 5, 0]), 'mismatch'],
      [{ close: { sequence: 3, expiry: terms.expiry + 1, amounts: [10, 5] } }, 'mismatch'],
      [close(3, [10, 4]), 'behind'],
      [close(2, [10, 5]), 'behind'],
      [close(3, [10, 5], 16), 'too_small'],
      [close(3, [11, 5], 15), ['closed', { sequence: 3, signed: [11, 5], charged: [10, 5], isClosed: true }]],
    ],
  },
  {
    name: 'a tab on which nothing is charged is never too small',
    steps: [
      opens,
      [charge(1, 0), ['charged', { sequence: 1, signed: [10], charged: [0], reduced: [10] }]],
      [
        close(2, [0], 100),
        ['closed', { sequence: 2, signed: [0], charged: [0], reduced: [10], isClosed: true }],
      ],
    ],
  },
  {
    name: 'a tab has at most eight lines on which nothing was bought',
    steps: [
      [
        accept({ sequence: 1, splits: many.slice(0, 10), amounts: [10, ...zeros(9)], reserved: 1_000 }),
        'crowded',
      ],
      [
        accept({ sequence: 1, splits: many.slice(0, 9), amounts: [10, ...zeros(8)], reserved: 1_000 }),
        accepted({ sequence: 1, signed: [10, ...zeros(8)], charged: [10, ...zeros(8)] }, 10),
      ],
      [accept({ sequence: 2, known: 9, splits: many.slice(9, 10), amounts: [20, ...zeros(9)] }), 'crowded'],
      // The request's own line counts as bought.
      [
        accept({ sequence: 2, line: 9, known: 9, splits: many.slice(9, 10), amounts: [10, ...zeros(8), 10] }),
        accepted({ sequence: 2, signed: [10, ...zeros(8), 10], charged: [10, ...zeros(8), 10] }, 10),
      ],
      // A voided request leaves its line bought.
      [
        charge(2, 0),
        [
          'charged',
          {
            sequence: 2,
            signed: [10, ...zeros(8), 10],
            charged: [10, ...zeros(9)],
            reduced: [...zeros(9), 10],
          },
        ],
      ],
      [
        accept({ sequence: 3, known: 10, splits: many.slice(10, 11), amounts: [20, ...zeros(10)] }),
        'crowded',
      ],
      [
        accept({ sequence: 3, line: 1, known: 10, amounts: [10, 10, ...zeros(8)] }),
        accepted(
          {
            sequence: 3,
            signed: [10, 10, ...zeros(8)],
            charged: [10, 10, ...zeros(8)],
            reduced: [...zeros(9), 10],
          },
          10,
        ),
      ],
      [
        accept({ sequence: 4, known: 10, splits: many.slice(10, 11), amounts: [20, 10, ...zeros(9)] }),
        accepted(
          {
            sequence: 4,
            signed: [20, 10, ...zeros(9)],
            charged: [20, 10, ...zeros(9)],
            reduced: [...zeros(9), 10, 0],
          },
          20,
        ),
      ],
    ],
  },
  {
    name: 'a line begins with the credit of earlier tabs, which its first requests use up',
    steps: [
      [
        accept({ sequence: 1, splits: [a], amounts: [0], credit: 15, reserved: 1_000 }),
        accepted({ sequence: 1, signed: [0], charged: [-5] }, 0, { credit: 15 }),
      ],
      [accept({ sequence: 2, known: 1, amounts: [4] }), 'behind'],
      [
        accept({ sequence: 2, known: 1, amounts: [5] }),
        accepted({ sequence: 2, signed: [5], charged: [5] }, 5),
      ],
      // Only a request that opens a line uses credit.
      [accept({ sequence: 3, known: 1, amounts: [14], credit: 7 }), 'behind'],
      [
        accept({ sequence: 3, known: 1, amounts: [15], credit: 7 }),
        accepted({ sequence: 3, signed: [15], charged: [15] }, 15),
      ],
    ],
  },
  {
    name: 'the rest of a line’s credit pays nothing on other lines',
    steps: [
      [
        accept({ sequence: 1, splits: [a], amounts: [0], credit: 15, reserved: 10 }),
        accepted({ sequence: 1, signed: [0], charged: [-5], reserved: 10 }, 0, { credit: 15 }),
      ],
      [accept({ sequence: 2, line: 1, known: 1, splits: [b], amounts: [0, 11], price: 11 }), 'unreserved'],
      [
        accept({ sequence: 2, line: 1, known: 1, splits: [b], amounts: [0, 10] }),
        accepted({ sequence: 2, signed: [0, 10], charged: [-5, 10], reserved: 10 }, 10),
      ],
    ],
  },
  {
    name: 'a tab that begins with credit on one line settles what its other lines charge',
    steps: [
      [
        accept({ sequence: 1, splits: [a], amounts: [0], credit: 15, reserved: 1_000 }),
        accepted({ sequence: 1, signed: [0], charged: [-5] }, 0, { credit: 15 }),
      ],
      [
        accept({ sequence: 2, line: 1, known: 1, splits: [b], amounts: [0, 10] }),
        accepted({ sequence: 2, signed: [0, 10], charged: [-5, 10] }, 10),
      ],
      [close(3, [0, 10], 11), 'too_small'],
      [
        close(3, [0, 10], 10),
        ['closed', { sequence: 3, signed: [0, 10], charged: [-5, 10], isClosed: true }],
      ],
    ],
  },
  {
    name: 'a request paid by credit is reduced and raised below 0',
    steps: [
      [
        accept({ sequence: 1, splits: [a], amounts: [0], credit: 15, reserved: 1_000 }),
        accepted({ sequence: 1, signed: [0], charged: [-5] }, 0, { credit: 15 }),
      ],
      [charge(1, 0), ['charged', { sequence: 1, signed: [0], charged: [-15], reduced: [10] }]],
      [charge(1, 4), ['charged', { sequence: 1, signed: [0], charged: [-11], reduced: [6] }]],
      [accept({ sequence: 1, splits: [a], amounts: [0] }), ['repeated', { lineTotal: 0 }]],
    ],
  },
  {
    name: 'maximum values',
    steps: [
      [
        accept({
          sequence: mostUint40,
          splits: [a],
          amounts: [mostUint48],
          price: mostUint48,
          reserved: mostUint48,
        }),
        accepted(
          { sequence: mostUint40, signed: [mostUint48], charged: [mostUint48], reserved: mostUint48 },
          mostUint48,
        ),
      ],
    ],
  },
]

function zeros(count: number): number[] {
  return Array(count).fill(0)
}

const texts = (amounts: readonly Amount[]) => amounts.map(String)

/** Returns a case as JSON: each step with its verdict and the tab after it; null means that no tab exists. */
function vectorOf({ name, steps }: (typeof cases)[number]) {
  let tab: object | null = null
  const played = steps.map(([action, expected]) => {
    const [verdict, ...more] = typeof expected === 'string' ? [expected] : expected
    let line: object | undefined
    for (const one of more) {
      if (one === undefined) continue
      if ('lineTotal' in one) line = lineOf(one)
      else tab = tabOf(one)
    }
    return { ...actionOf(action), verdict, ...line, tab }
  })
  return { name, steps: played }
}

function lineOf({ lineTotal, lineReduced = 0, credit = 0 }: Line) {
  return {
    request: { lineTotal: String(lineTotal), lineReduced: String(lineReduced) },
    ...(credit > 0 && { credit: String(credit) }),
  }
}

function tabOf({ sequence, signed, charged, reduced = zeros(charged.length), ...tab }: Tab) {
  return {
    isClosed: tab.isClosed ?? false,
    reserved: String(tab.reserved ?? 1_000),
    sequence,
    signed: texts(signed),
    charged: texts(charged),
    reduced: texts(reduced),
  }
}

function actionOf(action: Action) {
  if ('charge' in action) {
    const { sequence, amount } = action.charge
    return { charge: { sequence, amount: String(amount) } }
  }
  if ('close' in action) {
    const { sequence, expiry, amounts, least = 0 } = action.close
    return { close: { sequence, expiry, amounts: texts(amounts), least: String(least) } }
  }
  const { sequence, line = 0, known = 0, splits = [], amounts, price = 10, reserved, credit } = action.accept
  const { requestHash = `request ${sequence}` } = action.accept
  return {
    accept: {
      requestHash,
      sequence,
      line,
      known,
      splits,
      amounts: texts(amounts),
      price: String(price),
      ...(reserved !== undefined && { reserved: String(reserved) }),
      ...(credit !== undefined && { credit: String(credit) }),
      ...(action.accept.terms && { terms: action.accept.terms }),
    },
  }
}

/** Returns the content of `test/vectors/tabRule.json`. */
export function generateTabRule() {
  return {
    about:
      'The rule by which a gateway accepts requests on a tab (docs/tabs.md): sequences of requests, charges and closings, each on a new tab, with the verdict of each step and the tab after it. Amounts are USDC base units; `charged`, `reduced` and `signed` have one for each line. Requests have the terms of this file unless they name others. Written by hand in test/vectors/tabRule.ts.',
    terms,
    cases: cases.map(vectorOf),
  }
}
