import {
  type Asset,
  type ExactOffer,
  isWritable,
  parseAmount,
  parsePayee,
  toTexts,
} from '../client/exactOffers.ts'
import type { PaymentHeader } from '../client/signedPayment.ts'
import { bytesToHex, decodeBase64url, encodeBase64url, encodeUtf8 } from '../protocol/bytes.ts'
import type { Challenge } from '../protocol/challenge.ts'
import { portableKeccak256 } from '../protocol/eip3009.ts'
import { ProtocolError } from '../protocol/errors.ts'
import { isRecord, parseJson, textOf } from '../protocol/fields.ts'
import type { Network } from '../protocol/networks.ts'
import type { SignedAuthorization } from '../protocol/payload.ts'
import type { PaymentRequirementsV2 } from '../protocol/x402.ts'

/*
 * MPP's method `evm` with the intent `charge` (mppx 0.11). A challenge is paid with a credential that contains one EIP-3009 authorization. The
 * credential is equivalent to a payment of x402's scheme `exact`, so the same gate verifies both.
 */

/** Converts an offer of x402's `exact` into MPP's form. The macaroon goes into the field that MPP clients return. */
export function mppChallenge(
  { amount, asset, payTo, network, maxTimeoutSeconds, extra }: PaymentRequirementsV2,
  { requestId, issuer, accepts: [{ description }] }: Challenge,
): object {
  const chainId = Number(network.slice('eip155:'.length))
  return {
    id: requestId,
    realm: new URL(issuer).host,
    method: 'evm',
    intent: 'charge',
    request: {
      amount,
      currency: asset,
      recipient: payTo,
      methodDetails: { chainId, credentialTypes: ['authorization'], decimals: 6 },
    },
    ...(description && { description }),
    // The authorization must be valid until this time.
    expires: new Date(Date.now() + maxTimeoutSeconds * 1000).toISOString(),
    // MPP clients return this field unchanged.
    opaque: encodeBase64url(encodeUtf8(JSON.stringify({ macaroon: extra.macaroon }))),
  }
}

/**
 * Reads an MPP credential as an x402 v2 payment. The credential echoes the challenge. Only the macaroon in it can be trusted, because the gateway
 * signed it; the rest is claimed by the sender.
 *
 * @throws {ProtocolError} `invalid_payload`
 */
export function readMppCredential(credential: unknown): object {
  const { challenge, payload } = isRecord(credential) ? credential : {}
  if (!isRecord(challenge) || !isRecord(payload)) throw invalid()
  const { request, opaque } = challenge
  const { methodDetails } = isRecord(request) ? request : {}
  const { chainId } = isRecord(methodDetails) ? methodDetails : {}
  if (typeof chainId !== 'number') throw invalid()
  const { signature, from, to, value, validAfter, validBefore, nonce } = payload
  return {
    x402Version: 2,
    accepted: { scheme: 'exact', network: `eip155:${chainId}`, extra: { macaroon: macaroonOf(opaque) } },
    payload: { signature, authorization: { from, to, value, validAfter, validBefore, nonce } },
  }
}

function macaroonOf(opaque: unknown): unknown {
  const bytes = typeof opaque === 'string' ? decodeBase64url(opaque) : undefined
  try {
    return JSON.parse(new TextDecoder().decode(bytes)).macaroon
  } catch {
    throw invalid()
  }
}

/** Reads another seller's challenge. @returns undefined if the seller doesn't accept USDC on this network with one authorization. */
export function readMppOffer(challenge: unknown, { network, usdc }: Asset): ExactOffer | undefined {
  if (!isRecord(challenge) || challenge.method !== 'evm' || challenge.intent !== 'charge') return undefined
  const { id, realm, request, description, expires } = challenge
  const { currency, recipient, methodDetails, ...charge } = isRecord(request) ? request : {}
  const { chainId, credentialTypes, splits } = isRecord(methodDetails) ? methodDetails : {}
  const isOnce = Array.isArray(credentialTypes) && credentialTypes.includes('authorization') && !splits
  if (!isOnce || chainId !== network.chainId || textOf(currency).toLowerCase() !== usdc) return undefined
  if (typeof id !== 'string' || typeof realm !== 'string') return undefined
  const amount = parseAmount(charge.amount)
  const payTo = parsePayee(recipient)
  if (amount === undefined || payTo === undefined || !isWritable(challenge)) return undefined
  const until = typeof expires === 'string' ? Math.floor(Date.parse(expires) / 1000) : Number.NaN
  return {
    amount,
    payTo,
    maxTimeoutSeconds: 300,
    // MPP binds an authorization to its challenge through the nonce and the expiry.
    nonce: bytesToHex(portableKeccak256(encodeUtf8(id + realm))),
    ...(until > 0 && { validBefore: until }),
    description: textOf(description),
    present: (signed) => writeMppHeader(challenge, signed, network),
  }
}

const mppScheme = 'Payment '

/** Returns the credential that pays a challenge, as the value of an HTTP `Authorization` header. */
function writeMppHeader(challenge: object, signed: SignedAuthorization, { chainId }: Network): PaymentHeader {
  const credential = {
    challenge,
    payload: { type: 'authorization', ...toTexts(signed) },
    source: `did:pkh:eip155:${chainId}:${signed.from}`,
  }
  return { name: 'authorization', value: mppScheme + encodeBase64url(encodeUtf8(JSON.stringify(credential))) }
}

/** Reads the credential in an `Authorization` header. @returns undefined for any other scheme. */
export function readMppHeader(authorization: string): unknown {
  if (!authorization.startsWith(mppScheme)) return undefined
  return parseJson(new TextDecoder().decode(decodeBase64url(authorization.slice(mppScheme.length))))
}

function invalid(): ProtocolError {
  return new ProtocolError('invalid_payload', 'Payment: expected an MPP credential of evm charge')
}
