import type { IncomingMessage, ServerResponse } from 'node:http'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import receipts from '../../test/vectors/receipts.json' with { type: 'json' }
import { type Client, type ClientOptions, createClient } from '../src/client/createClient.ts'
import { ClientError } from '../src/client/errors.ts'
import { type Challenge, createChallenge } from '../src/protocol/challenge.ts'
import { networks } from '../src/protocol/networks.ts'
import { serve } from './serve.ts'

// A provider's server, faults included, and a client that pays it. That the gateway accepts what the client signs is
// shown by test/e2e, against the real one.

export const gatewayUrl = 'https://gateway.example'
export const walletPrivateKey = generatePrivateKey()
export const account = privateKeyToAccount(walletPrivateKey)
export const receipt = receipts.receipts[0]?.jws ?? ''
export const settledReceipt = receipts.receipts[1]?.jws ?? ''
const usdc = networks.base.usdc as `0x${string}`

type Handler = (request: IncomingMessage, response: ServerResponse, attempt: number) => void

export function challengeFor(resource: string, changes: Partial<Challenge> = {}): Challenge {
  const challenge = createChallenge({
    issuer: gatewayUrl,
    requestId: `req_${'0'.repeat(32)}`,
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

export function answerJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}

/** A provider that challenges what comes without payment and leaves the paid requests to the test. */
export async function playProvider(
  paid: Handler,
  change: (challenge: Challenge) => unknown = (challenge) => challenge,
) {
  const paidHeaders: string[] = []
  let requests = 0
  const url = await serve((request, response) => {
    requests++
    const { authorization } = request.headers
    if (authorization === undefined) {
      answerJson(response, 402, change(challengeFor(`http://${request.headers.host}${request.url}`)))
      return
    }
    paidHeaders.push(authorization)
    paid(request, response, paidHeaders.length)
  })
  return { url, paidHeaders, requests: () => requests }
}

export const serveReceipt: Handler = (_, response) =>
  answerJson(response, 200, { sunny: true }, { 'Service-Receipt': receipt })

export function clientOf(options: Partial<ClientOptions> = {}): Client {
  return createClient({ gatewayUrl, walletPrivateKey, network: 'base', ...options })
}

export async function errorOf(promise: Promise<unknown>): Promise<ClientError> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  if (!(error instanceof ClientError)) throw new Error(`Expected a ClientError, got ${error}`)
  return error
}
