import { type PassClaims, passType } from '@tollkeeper/sdk/protocol/pass'
import type { PassTerms } from '@tollkeeper/sdk/protocol/passTerms'
import type { Address } from 'viem'
import type { ReceiptKey } from '../receipts/keys.ts'
import { signJws } from '../receipts/signReceipt.ts'

/** A pass as it was sold. */
export type SoldPass = PassTerms & {
  paymentId: string
  providerId: string
  endpointId: string
  /** The endpoint's registered URL. */
  resource: string
  payer: Address
  /** When its payment was accepted, Unix milliseconds. */
  startsAt: number
}

/** Signs a pass: a JWS with the gateway's receipt key, and with the `typ` of passes. It isn't stored but signed again on demand. */
export function signPass(
  { paymentId, providerId, endpointId, resource, payer, startsAt, seconds, requests, boundTo }: SoldPass,
  { issuer, key }: { issuer: string; key: ReceiptKey },
): string {
  const iat = Math.floor(startsAt / 1000)
  const claims: PassClaims = {
    iss: issuer,
    jti: paymentId,
    aud: new URL(resource).origin,
    iat,
    exp: iat + seconds,
    providerId,
    endpointId,
    boundTo,
    ...(boundTo === 'payer' && { payer }),
    ...(requests !== undefined && { requests }),
  }
  return signJws({ alg: 'ES256', typ: passType, kid: key.kid }, claims, key)
}
