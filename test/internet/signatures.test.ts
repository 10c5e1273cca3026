import { createClient } from '@tollkeeper/sdk/client/createClient'
import { parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { decodePaymentHeader, encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { type Hex, hashTypedData } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { describe, expect, test } from 'vitest'
import { call, openShop, signedBody } from '../support/gateway.ts'
import { useSellers } from './sellers.ts'

// The forms in which wallets write the same signature. Every entry point converts them into the one that USDC
// accepts.

const sellers = useSellers()

/** Forms derived from a signature with v 27 or 28. */
const forms: Record<string, (signature: Hex) => string> = {
  'v 0 or 1': (signature) => `${signature.slice(0, -2)}0${signature.endsWith('1b') ? 0 : 1}`,
  'EIP-2098': (signature) => {
    const top = Number.parseInt(signature.charAt(66), 16) + (signature.endsWith('1b') ? 0 : 8)
    return signature.slice(0, 66) + top.toString(16) + signature.slice(67, -2)
  },
  'upper-case hex': (signature) => `0x${signature.slice(2).toUpperCase()}`,
}

const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n
/** Forms that USDC rejects, with the words that name the expected form. */
const refused: Record<string, [(signature: Hex) => string, string]> = {
  'a high s': [
    (signature) => {
      const s = (order - BigInt(`0x${signature.slice(66, 130)}`)).toString(16).padStart(64, '0')
      return signature.slice(0, 66) + s + (signature.endsWith('1b') ? '1c' : '1b')
    },
    'expected the low s',
  ],
  'v 29': [(signature) => `${signature.slice(0, -2)}1d`, 'expected 27 or 28'],
}

async function verify(body: { payloads: readonly string[] }, change: (signature: Hex) => string) {
  const payloads = body.payloads.map((payload) => {
    const { signature } = parsePayload(payload)
    return payload.replace(signature, change(signature))
  })
  return call(sellers.gateway.app, 'POST', '/verify', { json: { ...body, payloads } })
}

async function newPayment() {
  const { gateway } = sellers
  return signedBody(gateway, await openShop(gateway.app), await gateway.buyer(1_000_000n))
}

describe('POST /verify', () => {
  test.each(Object.entries(forms))('args: accepts %s, and stores it in USDC’s form', async (_, change) => {
    const body = await newPayment()
    const { status, body: answer } = await verify(body, change)
    expect([status, answer.verified]).toEqual([200, true])
    const [stored] = await sellers.gateway.database<{ signatures: Buffer[] }[]>`
      select array[signature, fee_signature] as signatures from presentation
      where payment_id = ${String(answer.paymentId)}`
    expect(stored?.signatures.map((signature) => `0x${signature.toString('hex')}`)).toEqual(
      body.payloads.map((payload) => parsePayload(payload).signature),
    )
  })

  test.each(Object.entries(refused))(
    'error: rejects %s and names the expected form',
    async (_, [change, words]) => {
      const { status, body } = await verify(await newPayment(), change)
      expect([status, body.code, body.detail]).toEqual([
        402,
        'invalid_signature',
        expect.stringContaining(words),
      ])
    },
  )
})

/** A wallet that writes its signatures in another form. */
const writing = (account: PrivateKeyAccount, change: (signature: Hex) => string) => ({
  address: account.address,
  signTypedData: async (typedData: Parameters<PrivateKeyAccount['signTypedData']>[0]) =>
    change(await account.signTypedData(typedData)) as Hex,
})

describe.each([true, false])('PAYMENT-SIGNATURE (tabs: %s)', (tabs) => {
  const pay = async (
    account: ReturnType<typeof writing>,
    change: (signature: Hex) => string = (same) => same,
  ) => {
    const seller = await sellers.open('express')
    const client = createClient({
      gatewayUrl: sellers.state.url,
      network: 'localhost',
      account,
      usdcAddress: sellers.gateway.served.token,
      limits: { perPayment: '1' },
      tabs,
      fetch: async (input, init) => {
        const headers = new Headers(init?.headers)
        const header = headers.get('payment-signature')
        if (header !== null) {
          const payment = decodePaymentHeader(header) as { payload: { signature: Hex } }
          payment.payload.signature = change(payment.payload.signature) as Hex
          headers.set('payment-signature', encodePaymentHeader(payment))
        }
        return fetch(input, { ...init, headers })
      },
    })
    // The request has its own Authorization header, so the client sends the payment in the PAYMENT-SIGNATURE header.
    return client.request(`${seller.url}/weather`, { headers: { authorization: 'Bearer 1' } })
  }

  test.each(Object.entries(forms))('args: accepts %s from a wallet and in the header', async (_, change) => {
    const account = await sellers.gateway.buyer(1_000_000n)
    expect((await pay(writing(account, change))).paymentId).toMatch(/^pay_/)
    expect(
      (
        await pay(
          writing(account, (same) => same),
          change,
        )
      ).paymentId,
    ).toMatch(/^pay_/)
  })

  test.each(Object.entries(refused))(
    'error: rejects %s and names the expected form',
    async (_, [change, words]) => {
      const account = await sellers.gateway.buyer(1_000_000n)
      await expect(
        pay(
          writing(account, (same) => same),
          change,
        ),
      ).rejects.toMatchObject({
        code: 'invalid_signature',
        message: expect.stringContaining(words),
      })
    },
  )
})

describe('a wallet that receives typed data as JSON', () => {
  /** A wallet that works like `eth_signTypedData_v4`: the typed data reaches it as JSON, so every value must be valid JSON. */
  const wallet = (account: PrivateKeyAccount, pass = (typedData: object) => typedData) => ({
    address: account.address,
    signTypedData: async (typedData: object) => {
      const text = JSON.stringify(pass(typedData))
      const { domain, types, primaryType, message } = JSON.parse(text)
      if (!types.EIP712Domain) throw new Error('missing EIP712Domain')
      if (Object.values(message).some((value) => typeof value !== 'string'))
        throw new Error('not a JSON value')
      return account.sign({ hash: hashTypedData({ domain, types, primaryType, message }) })
    },
  })

  test('behavior: a copy of the typed data also serializes to JSON, and can be cloned because it has no functions', async () => {
    const seller = await sellers.open('fetch')
    let isCloned = false
    const copy = (typedData: object) => {
      isCloned = 'message' in structuredClone(typedData)
      return { ...typedData }
    }
    const client = createClient({
      gatewayUrl: sellers.state.url,
      network: 'localhost',
      account: wallet(await sellers.gateway.buyer(1_000_000n), copy),
      usdcAddress: sellers.gateway.served.token,
      limits: { perPayment: '1' },
    })
    expect((await client.request(`${seller.url}/weather`)).paymentId).toMatch(/^pay_/)
    expect(isCloned).toBe(true)
  })

  test.each([true, false])(
    'behavior: typed data that is passed on as JSON is signed unchanged (tabs: %s)',
    async (tabs) => {
      const seller = await sellers.open('fetch')
      const client = createClient({
        gatewayUrl: sellers.state.url,
        network: 'localhost',
        account: wallet(await sellers.gateway.buyer(1_000_000n)),
        usdcAddress: sellers.gateway.served.token,
        limits: { perPayment: '1' },
        tabs,
      })
      expect((await client.request(`${seller.url}/weather`)).paymentId).toMatch(/^pay_/)
    },
  )
})
