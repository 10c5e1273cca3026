import { setTimeout as wait } from 'node:timers/promises'
import { setGasGrant } from '@tollkeeper/ledger/registry/apiKeys'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { Shop } from '../../support/shop.ts'
import type { signPayment } from '../../support/x402.ts'
import type { Market, Scene } from './scene.ts'

/** A number in [0, 1), always the same ones for a seed. */
export type Draw = () => number

/**
 * Gets ready, in peace. What it returns does its worst again and again until the signal fires, and then leaves the
 * machines as they were.
 */
export type Adversary = (scene: Scene, draw: Draw) => Promise<(over: AbortSignal) => Promise<unknown>>

export const pick = <One>(draw: Draw, from: readonly One[]): One =>
  from[Math.floor(draw() * from.length)] as One

/** Acts again and again, a third sooner or later; one act that fails doesn't end the play. */
export async function again(
  { scene, draw, over, everyMs }: { scene: Market; draw: Draw; over: AbortSignal; everyMs: number },
  act: () => Promise<unknown>,
): Promise<void> {
  while (!over.aborted) {
    await act().catch((error: unknown) => scene.events.push(firstLine(error)))
    await wait(everyMs * (0.67 + draw() * 0.67), undefined, { signal: over }).catch(() => {})
  }
}

function firstLine(error: unknown): string {
  const { details = '' } = error as { details?: string }
  return `${String(error).split('\n')[0]} ${details}`.trim().slice(0, 200)
}

export function placeOf({ stack, token }: Pick<Market, 'stack' | 'token'>) {
  return { network: networks[stack.chain.network], token }
}

/** A provider with a grant of this many USD a day for gas. */
export async function openGranted(scene: Market, usd: string): Promise<Shop> {
  const shop = await scene.shop('0.01')
  await setGasGrant(scene.database, shop.providerId, parseUsdc(usd))
  return shop
}

export type Told = { status: number; success: boolean; reason: string; detail: string }

/** Asks one of the keepers. */
export async function post(
  url: string,
  path: '/settle' | '/submit',
  { key, body, signal }: { key?: string | undefined; body: unknown; signal: AbortSignal },
): Promise<Told> {
  const response = await fetch(new URL(path, url), {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) },
    body: JSON.stringify(body),
    signal,
  })
  const told = (await response.json()) as Record<string, unknown>
  const reason = String(told.errorReason ?? told.code ?? '')
  return {
    status: response.status,
    success: told.success === true,
    reason,
    detail: String(told.errorMessage ?? ''),
  }
}

export function tell({ heard }: Market, { authorization }: Payment, { success }: Told): void {
  if (success) heard.set(authorization.nonce, (heard.get(authorization.nonce) ?? 0) + 1)
}

export type Payment = Awaited<ReturnType<typeof signPayment>>
