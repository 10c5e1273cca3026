import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Keeper } from '@tollkeeper/keeper/keeper'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { PrivateKeyAccount } from 'viem'
import { signTransfer } from './keeperStack.ts'
import { randomHex } from './usdc.ts'

export type Answer = { status: number; body: Record<string, unknown> }

export type X402Payment = { body: Record<string, unknown>; authorization: SignedAuthorization }

/** Signs a payment, and returns what a seller's middleware sends to its facilitator in version 2. */
export async function signPayment(
  served: Pick<ServedNetwork, 'network' | 'token'>,
  buyer: PrivateKeyAccount,
  {
    payTo,
    value = 10_000n,
    validFor = 300,
    paymentIdentifier,
    resource = 'https://seller.example/weather',
  }: {
    payTo: `0x${string}`
    value?: bigint
    validFor?: number
    paymentIdentifier?: string
    resource?: string
  },
): Promise<X402Payment> {
  const now = BigInt(Math.floor(Date.now() / 1000))
  const authorization = await signTransfer(served, buyer, {
    to: payTo,
    value,
    validAfter: now - 600n,
    validBefore: now + BigInt(validFor),
    nonce: randomHex(32),
  })
  const { signature, ...signed } = authorization
  const { caip2, eip712 } = served.network
  const requirements = {
    scheme: 'exact',
    network: caip2,
    amount: `${value}`,
    asset: served.token,
    payTo,
    maxTimeoutSeconds: 300,
    extra: eip712,
  }
  const text = Object.fromEntries(Object.entries(signed).map(([name, field]) => [name, `${field}`]))
  const paymentPayload = {
    x402Version: 2,
    resource: { url: resource },
    accepted: { ...requirements },
    payload: { signature, authorization: text },
    ...(paymentIdentifier && { extensions: { 'payment-identifier': { info: { id: paymentIdentifier } } } }),
  }
  return { body: { x402Version: 2, paymentPayload, paymentRequirements: requirements }, authorization }
}

/** Returns the same payment as a seller of version 1 sends it, on the local chain. */
export function toV1({ body }: X402Payment): Record<string, unknown> {
  const { paymentPayload, paymentRequirements } = body as Record<string, Record<string, unknown>>
  const { amount, ...requirements } = paymentRequirements ?? {}
  const kind = { scheme: 'exact', network: 'localhost' }
  return {
    x402Version: 1,
    paymentPayload: { x402Version: 1, ...kind, payload: paymentPayload?.payload },
    paymentRequirements: {
      ...requirements,
      ...kind,
      maxAmountRequired: amount,
      resource: 'https://seller.example/weather',
      description: '',
      mimeType: 'application/json',
    },
  }
}

/** Sends a request to a keeper's facilitator. */
export async function ask(
  { app }: Pick<Keeper, 'app'>,
  path: `/${string}`,
  {
    body,
    key,
    authorization = key && `Bearer ${key}`,
  }: { body?: unknown; key?: string; authorization?: string } = {},
): Promise<Answer> {
  const response = await app.request(path, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'content-type': 'application/json', ...(authorization && { authorization }) },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })
  return { status: response.status, body: (await response.json()) as Answer['body'] }
}
