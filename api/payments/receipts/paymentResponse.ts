import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import type { ReceiptClaims } from '@tollkeeper/sdk/protocol/receipt'
import type { PaymentResponse, TabResponse } from '@tollkeeper/sdk/protocol/x402'
import type { Hash } from 'viem'
import { didOf } from './did.ts'
import type { ReceiptKeys } from './keys.ts'
import { signJws } from './signReceipt.ts'

/**
 * Converts an accepted payment to x402's answer, with the standard's own receipt (the extension `offer-receipt`).
 *
 * @param receipt our own receipt, from which the fields are read. A repeated request gets the same receipt, and therefore the same fields.
 */
export function toPaymentResponse(
  receipt: string,
  {
    x402Version,
    transactionHash,
    tab,
    issuer,
    receiptKeys,
  }: {
    x402Version: 1 | 2
    transactionHash: Hash | undefined
    tab?: TabResponse | undefined
    issuer: string
    receiptKeys: ReceiptKeys
  },
): PaymentResponse {
  const { paymentId, payer, network, resource, iat } = claimsOf(receipt)
  const { caip2 } = networkByName(network)
  const { current } = receiptKeys
  const signature = signJws(
    { alg: 'ES256', kid: `${didOf(issuer)}#${current.kid}` },
    {
      version: 1,
      network: caip2,
      resourceUrl: resource,
      payer,
      issuedAt: iat,
      ...(transactionHash && { transaction: transactionHash }),
    },
    current,
  )
  return {
    success: true,
    payer,
    transaction: transactionHash ?? '',
    network: x402Version === 1 ? network : caip2,
    extra: { paymentId, ...(tab && { tab }) },
    extensions: { 'offer-receipt': { info: { receipt: { format: 'jws', signature } }, schema } },
  }
}

/** Reads the claims of a receipt that this gateway signed, without verifying it again. */
function claimsOf(receipt: string): ReceiptClaims {
  const [, payload = ''] = receipt.split('.')
  return JSON.parse(Buffer.from(payload, 'base64url').toString())
}

/** The schema of `info`, as the extension's reference implementation sends it. */
const schema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: {
    receipt: {
      type: 'object',
      properties: { format: { type: 'string' }, signature: { type: 'string' } },
      required: ['format', 'signature'],
    },
  },
  required: ['receipt'],
}
