import type { IncomingMessage, ServerResponse } from 'node:http'
import { CompactSign, exportJWK, generateKeyPair } from 'jose'
import { recoverTypedDataAddress } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import receipts from '../../test/vectors/receipts.json' with { type: 'json' }
import { type Client, type ClientOptions, createClient } from '../src/client/createClient.ts'
import { ClientError } from '../src/client/errors.ts'
import { parseAuthorizationHeader } from '../src/protocol/authorizationHeader.ts'
import { boundNonce, type Challenge, createChallenge, feeNonce } from '../src/protocol/challenge.ts'
import { eip712Domain, transferWithAuthorizationTypes } from '../src/protocol/eip3009.ts'
import { networks } from '../src/protocol/networks.ts'
import { parsePayload, type SignedAuthorization } from '../src/protocol/payload.ts'
import { parsePaymentHeader } from '../src/protocol/x402.ts'
import { serve } from './serve.ts'

// A provider's server that can simulate faults, and a client that pays it. test/e2e shows that a real gateway accepts what the client signs.

export const gatewayUrl = 'https://gateway.example'
export const walletPrivateKey = generatePrivateKey()
export const account = privateKeyToAccount(walletPrivateKey)
const requestId = `req_${'0'.repeat(32)}`

async function createSigner() {
  const { publicKey, privateKey } = await generateKeyPair('ES256')
  const key = { ...(await exportJWK(publicKey)), kid: 'test', alg: 'ES256', use: 'sig' }
  const sign = (claims: object) =>
    new CompactSign(new TextEncoder().encode(JSON.stringify(claims)))
      .setProtectedHeader({ alg: 'ES256', kid: 'test' })
      .sign(privateKey)
  return { jwks: { keys: [key] }, sign }
}

const { jwks, sign } = await createSigner()
/** Signs claims as the gateway does. */
export const signReceipt = sign
const [accepted, settled] = receipts.receipts.map(({ claims }) => claims)
const nonce = boundNonce(gatewayUrl, requestId)
/** The authorizations that a client signs for {@link challengeFor}. */
const authorizations = accepted?.authorizations?.map((half, index) => ({
  ...half,
  nonce: index === 0 ? nonce : feeNonce(nonce),
}))

/** A receipt, signed by the gateway. */
export const receipt = await sign({ ...accepted, authorizations })
export const settledReceipt = await sign({ ...settled, authorizations })
export const receiptOfAnother = await sign(accepted ?? {})
/** The claims of `settledReceipt`, signed with another key under the gateway's key id. */
export const forgedReceipt = await (await createSigner()).sign({ ...settled, authorizations })
const usdc = networks.base.usdc as `0x${string}`

export type Handler = (request: IncomingMessage, response: ServerResponse, attempt: number) => void

export function challengeFor(resource: string, changes: Partial<Challenge> = {}): Challenge {
  const challenge = createChallenge({
    issuer: gatewayUrl,
    requestId,
    providerId: `prov_${'1'.repeat(32)}`,
    endpointId: `ep_${'2'.repeat(32)}`,
    macaroon: 'AgEA',
    network: networks.base,
    asset: usdc,
    resource,
    description: '',
    payTo: `0x${'b'.repeat(40)}`,
    feePayTo: `0x${'c'.repeat(40)}`,
    amount: 47_500n,
    feeAmount: 2_500n,
    tier: 'micropayment',
  })
  return { ...challenge, ...changes }
}

/** Returns a challenge with only the fields of conformance 2.1 and 2.2. */
export function onlySpecFields({ accepts, ...challenge }: Challenge) {
  const { x402Version, macaroon, providerId, endpointId, requestId } = challenge
  return {
    x402Version,
    accepts: accepts.map(({ mimeType, outputSchema, maxTimeoutSeconds, extra, ...entry }) => entry),
    macaroon,
    providerId,
    endpointId,
    requestId,
  }
}

export function answerJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}

/** Starts a provider that sends a challenge to unpaid requests, and lets the test respond to paid requests. */
export async function playProvider(
  paid: Handler,
  change: (challenge: Challenge) => unknown = (challenge) => challenge,
) {
  const paidHeaders: string[] = []
  let requests = 0
  const url = await serve((request, response) => {
    requests++
    const { authorization, 'payment-signature': paymentSignature } = request.headers
    const payment = paymentSignature ?? authorization?.match(/^x402 .*/i)?.[0]
    if (typeof payment !== 'string') {
      answerJson(response, 402, change(challengeFor(`http://${request.headers.host}${request.url}`)))
      return
    }
    paidHeaders.push(payment)
    paid(request, response, paidHeaders.length)
  })
  return { url, paidHeaders, requests: () => requests }
}

/** Returns the authorizations in a request's headers: two in `Authorization`, or one in `PAYMENT-SIGNATURE`. */
export function presentedIn(header: string | undefined): SignedAuthorization[] {
  const parsed = parseAuthorizationHeader(header)
  if (parsed.kind === 'absent' && header !== undefined) {
    const payment = parsePaymentHeader(header)
    if (payment.scheme === 'exact') return [parsePayload(payment.payload)]
  }
  if (parsed.kind !== 'payment') throw new Error('Expected a payment')
  return parsed.payloads.map(parsePayload)
}

/** Returns the address that signed an authorization of USDC on base. */
export function signerOf({ signature, ...message }: SignedAuthorization) {
  const typed = { domain: eip712Domain(networks.base), types: transferWithAuthorizationTypes, message }
  return recoverTypedDataAddress({ ...typed, primaryType: 'TransferWithAuthorization', signature })
}

export const serveReceipt: Handler = (_, response) =>
  answerJson(response, 200, { sunny: true }, { 'Service-Receipt': receipt })

/** The response of a gateway that has accepted nothing. */
export const playedGateway: { report: { status: number; body: object } } = {
  report: { status: 404, body: { code: 'unknown_payment' } },
}

/** Responds as the gateway, with its keys and its report on a payment. Forwards other requests to the network. */
export const fetchWithKeys: typeof fetch = async (input, init) => {
  if (String(input) === `${gatewayUrl}/.well-known/jwks.json`) return Response.json(jwks)
  if (!String(input).startsWith(`${gatewayUrl}/authorizations/`)) return fetch(input, init)
  const { status, body } = playedGateway.report
  return Response.json(body, { status })
}

export function clientOf(options: Partial<ClientOptions> = {}): Client {
  const shared = { gatewayUrl, network: 'base', limits: { perPayment: '1' }, fetch: fetchWithKeys } as const
  return createClient({ ...shared, walletPrivateKey, ...options })
}

export async function errorOf(promise: Promise<unknown>): Promise<ClientError> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  if (!(error instanceof ClientError)) throw new Error(`Expected a ClientError, got ${error}`)
  return error
}
