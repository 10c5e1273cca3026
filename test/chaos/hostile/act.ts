import { setTimeout as wait } from 'node:timers/promises'
import { setGasGrant } from '@tollkeeper/ledger/registry/apiKeys'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import type { Shop } from '../../support/shop.ts'
import type { signPayment } from '../../support/x402.ts'
import type { Market, Scene } from './scene.ts'

/** Returns the next number in [0, 1) of a sequence that depends only on the seed. */
export type Draw = () => number

/**
 * Prepares an attack without disturbing anyone. The returned function attacks repeatedly until the signal fires, and
 * then restores the machines.
 */
export type Adversary = (scene: Scene, draw: Draw) => Promise<(over: AbortSignal) => Promise<unknown>>

export const pick = <One>(draw: Draw, from: readonly One[]): One =>
  from[Math.floor(draw() * from.length)] as One

/** Repeats `act` every `everyMs`, up to a third sooner or later. If `act` fails, it is repeated anyway. */
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
  return { network: networkByName(stack.chain.network), token }
}

/** Opens a provider whose gas grant is this many USD per day. */
export async function openGranted(scene: Market, usd: string): Promise<Shop> {
  const shop = await scene.shop('0.01')
  await setGasGrant(scene.database, shop.providerId, parseUsdc(usd))
  return shop
}

export type KeeperAnswer = { status: number; success: boolean; reason: string; detail: string }

/** Sends a request to one of the keepers. */
export async function post(
  url: string,
  path: '/settle' | '/submit',
  { key, body, signal }: { key?: string | undefined; body: unknown; signal: AbortSignal },
): Promise<KeeperAnswer> {
  const response = await fetch(new URL(path, url), {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) },
    body: JSON.stringify(body),
    signal,
  })
  const answer = (await response.json()) as Record<string, unknown>
  const reason = String(answer.errorReason ?? answer.code ?? '')
  return {
    status: response.status,
    success: answer.success === true,
    reason,
    detail: String(answer.errorMessage ?? ''),
  }
}

export function countSuccess(
  { successes }: Market,
  { authorization }: Payment,
  { success }: KeeperAnswer,
): void {
  if (success) successes.set(authorization.nonce, (successes.get(authorization.nonce) ?? 0) + 1)
}

export type Payment = Awaited<ReturnType<typeof signPayment>>
