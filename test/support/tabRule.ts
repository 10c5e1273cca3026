import type { TabPayment } from '@tollkeeper/sdk/protocol/tab'
import {
  acceptOnTab,
  chargeOnTab,
  closeTab,
  type GatewayTab,
  type GatewayTabTerms,
  type TabPurchase,
} from '@tollkeeper/sdk/protocol/tabRule'
import vectors from '../vectors/tabRule.json' with { type: 'json' }

// Plays steps on a tab by the rules in sdk/src/protocol/tabRule.ts, and reads the test vectors of these rules.

export type TabStep =
  | { accept: TabPurchase }
  | { charge: { sequence: number; amount: bigint } }
  | { close: Pick<TabPayment, 'sequence' | 'expiry' | 'amounts'> & { least: bigint } }

/** The result of a step: its verdict, the line of an accepted request, and the tab after the step. */
export type TabStepResult = {
  verdict: string
  request?: { lineTotal: bigint; lineReduced: bigint }
  /** The credit that the request uses up. */
  credit?: bigint
  tab: DescribedTab | null
}

/** A tab without its requests and its terms. */
export type DescribedTab = ReturnType<typeof describeTab>

/** The vectors, each with its steps and their results. */
export const tabRuleCases = vectors.cases.map(({ name, steps }) => ({
  name,
  steps: (steps as Vector[]).map((step) => ({ step: readStep(step), result: readResult(step) })),
}))

/** Plays a step. @returns the tab after it, and the result. */
export function playTabStep(
  tab: GatewayTab | undefined,
  step: TabStep,
): { tab: GatewayTab | undefined; result: TabStepResult } {
  if ('accept' in step) {
    const decision = acceptOnTab(tab, step.accept)
    const { verdict } = decision
    const result: TabStepResult = { verdict, tab: decision.tab ? describeTab(decision.tab) : null }
    if ('request' in decision) {
      const { lineTotal, lineReduced } = decision.request
      result.request = { lineTotal, lineReduced }
    }
    if ('credit' in decision && decision.credit > 0n) result.credit = decision.credit
    return { tab: decision.tab, result }
  }
  if (!tab) throw new Error('there is no tab')
  const { verdict, tab: after } =
    'charge' in step
      ? chargeOnTab(tab, step.charge.sequence, step.charge.amount)
      : closeTab(tab, step.close, step.close.least)
  return { tab: after, result: { verdict, tab: describeTab(after) } }
}

export function describeTab({ isClosed, reserved, sequence, signed, lines }: GatewayTab) {
  return {
    isClosed,
    reserved,
    sequence,
    signed,
    charged: lines.map(({ charged }) => charged),
    reduced: lines.map(({ reduced }) => reduced),
  }
}

/** A step of a vector. Amounts are decimal. `terms` contains only terms that differ from the file's. */
type Vector = {
  accept?: Pick<TabPurchase, 'requestHash' | 'sequence' | 'line' | 'known'> & {
    splits: string[]
    amounts: string[]
    price: string
    reserved?: string
    credit?: string
    terms?: object
  }
  charge?: { sequence: number; amount: string }
  close?: { sequence: number; expiry: number; amounts: string[]; least: string }
  verdict: string
  request?: { lineTotal: string; lineReduced: string }
  credit?: string
  tab: {
    isClosed: boolean
    reserved: string
    sequence: number
    signed: string[]
    charged: string[]
    reduced: string[]
  } | null
}

function readStep({ accept, charge, close }: Vector): TabStep {
  if (charge) return { charge: { ...charge, amount: BigInt(charge.amount) } }
  if (close) return { close: { ...close, amounts: close.amounts.map(BigInt), least: BigInt(close.least) } }
  if (!accept) throw new Error('the step does nothing')
  const { reserved, credit, terms, splits, amounts, price, ...request } = accept
  return {
    accept: {
      ...request,
      terms: { ...vectors.terms, ...terms } as GatewayTabTerms,
      splits: splits.map(BigInt),
      amounts: amounts.map(BigInt),
      price: BigInt(price),
      ...(reserved !== undefined && { reserved: BigInt(reserved) }),
      ...(credit !== undefined && { credit: BigInt(credit) }),
    },
  }
}

function readResult({ verdict, request, credit, tab }: Vector): TabStepResult {
  return {
    verdict,
    ...(request && {
      request: { lineTotal: BigInt(request.lineTotal), lineReduced: BigInt(request.lineReduced) },
    }),
    ...(credit !== undefined && { credit: BigInt(credit) }),
    tab: tab && {
      isClosed: tab.isClosed,
      reserved: BigInt(tab.reserved),
      sequence: tab.sequence,
      signed: tab.signed.map(BigInt),
      charged: tab.charged.map(BigInt),
      reduced: tab.reduced.map(BigInt),
    },
  }
}
