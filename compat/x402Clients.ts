import type { PaymentResponse } from '@tollkeeper/sdk/protocol/x402'
import { wrapAxiosWithPayment, x402Client as x402ClientOfAxios } from '@x402/axios'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from '@x402/fetch'
import axios from 'axios'
import { evm, Mppx } from 'mppx/client'
import type { PrivateKeyAccount } from 'viem'
import { wrapFetchWithPayment as wrapFetchWithPaymentV1 } from 'x402-fetch'

// Third-party x402 clients, unmodified, with the settings of their examples.

export type Bought = { status: number; body: unknown; headers: Headers }
export type X402Buyer = (account: PrivateKeyAccount, url: string) => Promise<Bought>

async function read(response: Response): Promise<Bought> {
  const { status, headers } = response
  const text = await response.text()
  const isJson = headers.get('content-type')?.includes('json')
  return { status, headers, body: isJson ? JSON.parse(text) : text }
}

export const x402Buyers = {
  '@x402/fetch': async (account, url) => {
    const client = new x402Client().register('eip155:*', new ExactEvmScheme(account))
    return read(await wrapFetchWithPayment(fetch, client)(url))
  },
  '@x402/axios': async (account, url) => {
    const client = new x402ClientOfAxios().register('eip155:*', new ExactEvmScheme(account) as never)
    const { status, data, headers } = await wrapAxiosWithPayment(axios.create(), client).get(url)
    return { status, body: data, headers: new Headers(headers as never) }
  },
  mppx: async (account, url) => {
    const mppx = Mppx.create({ polyfill: false, methods: [evm.charge({ account })] })
    return read(await mppx.fetch(url))
  },
} satisfies Record<string, X402Buyer>

/** A client of x402 v1, which pays only if the body of the provider's 402 has v1's format. */
export const x402FetchV1: X402Buyer = async (account, url) =>
  read(await wrapFetchWithPaymentV1(fetch, account as never)(url))

/** Returns what the answer reports about the payment, decoded by the reference. */
export function paymentResponseOf({ headers }: Bought): PaymentResponse {
  const header = headers.get('payment-response') ?? headers.get('x-payment-response') ?? ''
  return decodePaymentResponseHeader(header) as never
}
