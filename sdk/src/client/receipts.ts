import { type ReceiptKeys, verifyReceipt } from '../audit/verifyReceipt.ts'
import { parsePayload } from '../protocol/payload.ts'
import type { ReceiptClaims } from '../protocol/receipt.ts'
import { tabNonce } from '../protocol/tab.ts'
import type { SignedPayment } from './signedPayment.ts'
import { type Answer, type Deadline, waitFor } from './transport.ts'

/** The receipt that a provider sent for a payment. */
export type PaidReceipt = {
  /** JWS compact. */
  receipt: string
  /**
   * Id of the payment, from the receipt's verified claims. Undefined if the gateway's keys can't be fetched, or if the gateway didn't sign the
   * receipt for this payment.
   */
  paymentId: string | undefined
  /** The URL that the client paid for. */
  url: string
}

type ReceiptSettings = {
  receiptKeys: ReceiptKeys
  onReceipt: (paid: PaidReceipt) => void | Promise<void>
  log: (message: string) => void
}

/** Creates a function that processes the receipts of paid responses. */
export function createReceiptTaker({ receiptKeys, onReceipt, log }: ReceiptSettings) {
  /** Reads a response's receipt, and passes it to `onReceipt`. */
  async function takeReceipt(
    { url, headers }: Answer,
    signed: SignedPayment | undefined,
    deadline: Deadline,
  ): Promise<{ receipt?: string; claims?: ReceiptClaims | undefined; receiptError?: unknown }> {
    const receipt = headers.get('service-receipt')
    if (!receipt) return {}
    const claims = await readReceipt(receipt, signed, deadline)
    try {
      if (signed) await onReceipt({ receipt, paymentId: claims?.paymentId, url })
      return { receipt, claims }
    } catch (receiptError) {
      log('onReceipt failed')
      return { receipt, claims, receiptError }
    }
  }

  /** Returns the claims of a receipt that the gateway signed for the sent payment. Returns undefined for any other receipt. */
  async function readReceipt(
    receipt: string,
    signed: SignedPayment | undefined,
    deadline: Deadline,
  ): Promise<ReceiptClaims | undefined> {
    try {
      const claims = await waitFor(verifyReceipt(receipt, receiptKeys), deadline)
      if (!signed || isReceiptOf(claims, signed)) return claims
      log('the receipt is for another payment')
    } catch (error) {
      log(`the receipt could not be verified: ${error instanceof Error ? error.message : error}`)
    }
    return undefined
  }

  return takeReceipt
}

function isReceiptOf({ iss, tab, authorizations }: ReceiptClaims, signed: SignedPayment): boolean {
  if (!signed.tab)
    return signed.payloads.every(
      (payload, half) => parsePayload(payload).nonce === authorizations[half]?.nonce,
    )
  const { tab: id, sequence } = signed.tab
  return tab?.id === id && tab.sequence === sequence && authorizations[0].nonce === tabNonce(iss, id)
}
