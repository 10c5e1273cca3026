import { createPublicClient, createWalletClient, custom, type Hex, http, zeroAddress } from 'viem'
import { toCoinbaseSmartAccount, toSimple7702SmartAccount } from 'viem/account-abstraction'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { base, mainnet } from 'viem/chains'
import { describe, expect, test, vi } from 'vitest'
import {
  account,
  clientOf,
  errorOf,
  playProvider,
  presentedIn,
  serveReceipt,
  signerOf,
} from '../../test/playProvider.ts'
import { networks } from '../protocol/networks.ts'
import type { ClientOptions } from './createClient.ts'
import { signerOf as payerOf, type Signer, signAuthorization } from './payer.ts'

type Account = NonNullable<ClientOptions['account']>
type Asked = { method: string; params?: unknown }

/** A wallet as a page sees it (EIP-1193). It calls `sign` after it has read the typed data. */
function playWallet(chainId: number, sign: () => void = () => {}) {
  const asked: string[] = []
  const request = async ({ method, params }: Asked): Promise<unknown> => {
    asked.push(method)
    if (method === 'eth_chainId') return `0x${chainId.toString(16)}`
    if (method !== 'eth_signTypedData_v4') throw Object.assign(new Error(method), { code: 4200 })
    const [address, json] = params as [string, string]
    if (address !== account.address) throw Object.assign(new Error('not connected'), { code: 4100 })
    sign()
    return account.signTypedData(JSON.parse(json))
  }
  const wallet = createWalletClient({ account: account.address, transport: custom({ request }) })
  return { wallet, asked }
}

/** Pays from an account. Returns the address that signed. */
async function payFrom(payer: Account) {
  const { url, paidHeaders } = await playProvider(serveReceipt)
  await clientOf({ account: payer }).request(url)
  return Promise.all(presentedIn(paidHeaders[0]).map(signerOf))
}

async function refusalOf(payer: Account) {
  const { url, paidHeaders } = await playProvider(serveReceipt)
  const error = await errorOf(clientOf({ account: payer }).request(url))
  expect(error.name).toBe('ChallengeRefusedError')
  expect(paidHeaders).toEqual([])
  return error
}

const both = [account.address, account.address]

test('default: pays from a viem account, and from a wallet client with a viem account', async () => {
  const wallet = createWalletClient({ account, chain: base, transport: http('http://127.0.0.1:1') })
  expect(await payFrom(account)).toEqual(both)
  expect(await payFrom(wallet)).toEqual(both)
})

test('default: sends only two signature requests to a browser’s wallet', async () => {
  const { wallet, asked } = playWallet(base.id)
  expect(clientOf({ account: wallet }).address).toBe(account.address)
  expect(await payFrom(wallet)).toEqual(both)
  expect(asked).toEqual(['eth_signTypedData_v4', 'eth_signTypedData_v4'])
})

test('behavior: pays from a wallet on another chain if the wallet signs anyway, and otherwise names both chains in the error', async () => {
  expect(await payFrom(playWallet(mainnet.id).wallet)).toEqual(both)
  // MetaMask responds with this error.
  const { wallet } = playWallet(mainnet.id, () => {
    const message = 'Provided chainId "8453" must match the active chainId "1"'
    throw Object.assign(new Error(message), { code: -32603 })
  })
  const error = await refusalOf(wallet)
  expect(error.code).toBe('wallet_on_another_chain')
  expect(error.message).toContain('on chain 1 and did not sign for base (8453)')
  expect(error.message).toContain('switchChain({ id: 8453 })')
})

test('error: reports that the wallet’s owner refused, or that the wallet failed', async () => {
  const { wallet, asked } = playWallet(mainnet.id, () => {
    throw Object.assign(new Error('User rejected the request.'), { code: 4001 })
  })
  expect((await refusalOf(wallet)).code).toBe('payment_declined')
  expect(asked).toEqual(['eth_signTypedData_v4'])
  const broken = playWallet(base.id, () => {
    throw new Error('the device is locked')
  })
  const error = await refusalOf(broken.wallet)
  expect(error.code).toBe('signing_failed')
  expect(error.cause).toBeInstanceOf(Error)
  const throwing = {
    address: account.address,
    signTypedData: () => {
      throw new Error('no key')
    },
  }
  expect((await refusalOf(throwing)).message).toContain('could not sign: no key')
})

test('behavior: pays with the key of an account that isn’t delegated yet (EIP-7702), but not from a smart account that isn’t deployed', async () => {
  const request = async ({ method }: Asked) => {
    if (method !== 'eth_getCode') throw new Error(method)
    return '0x'
  }
  const client = createPublicClient({ transport: custom({ request }) })
  const signTypedData = vi.fn(account.signTypedData) as typeof account.signTypedData
  const owner = { ...account, signTypedData }
  expect(await payFrom(await toSimple7702SmartAccount({ client, owner }))).toEqual(both)
  expect(signTypedData).toHaveBeenCalledTimes(2)
  const smart = await toCoinbaseSmartAccount({
    client,
    owners: [owner],
    version: '1.1',
    address: account.address,
  })
  const wallet = createWalletClient({ account: smart, transport: custom({ request }) })
  for (const payer of [smart, wallet]) {
    expect((await refusalOf(payer)).code).toBe('smart_account_not_deployed')
  }
  expect(signTypedData).toHaveBeenCalledTimes(2)
})

test('error: rejects an account that can’t sign', () => {
  const address = account.address
  const jsonRpc = { address, type: 'json-rpc' } as unknown as typeof account
  expect(() => clientOf({ account: jsonRpc })).toThrow(/pass the wallet client/)
  const without = createWalletClient({ transport: http('http://127.0.0.1:1') })
  expect(() => clientOf({ account: without })).toThrow(/needs an account/)
})

test.each([
  [
    'that also contains the deployment of its account (ERC-6492)',
    `0x${'1'.repeat(300)}${'6492'.repeat(16)}`,
    'smart_account_not_deployed',
  ],
  ['longer than 1,024 bytes', `0x${'1'.repeat(2_050)}`, 'signature_not_supported'],
  ['shorter than 64 bytes', `0x${'1'.repeat(126)}`, 'signature_not_supported'],
  ['of 64 bytes that no key produced', `0x${'0'.repeat(128)}`, 'signature_not_supported'],
  ['that is not hex', 'signed', 'signature_not_supported'],
] as const)(
  'error: never sends a signature %s, and requests no second signature',
  async (_, signature, code) => {
    const signTypedData = vi.fn(async () => signature as Hex)
    expect((await refusalOf({ address: account.address, signTypedData })).code).toBe(code)
    expect(signTypedData).toHaveBeenCalledOnce()
  },
)

describe('a signature of another key', () => {
  const other = privateKeyToAccount(generatePrivateKey())
  const signTypedData: typeof account.signTypedData = (typedData) => other.signTypedData(typedData)

  test('error: is never sent, and no second signature is requested', async () => {
    const sign = vi.fn(signTypedData)
    const error = await refusalOf({ address: account.address, signTypedData: sign as typeof signTypedData })
    expect(error).toMatchObject({
      code: 'signed_by_another_key',
      message: expect.stringContaining(`the signature is from ${other.address}, not from ${account.address}`),
    })
    expect(sign).toHaveBeenCalledOnce()
  })

  test('error: rejects 65 bytes that are not a signature of any key', async () => {
    const nothing = async (): Promise<Hex> => `0x${'00'.repeat(65)}`
    expect((await refusalOf({ address: account.address, signTypedData: nothing })).code).toBe(
      'signed_by_another_key',
    )
  })

  test('args: is accepted if the account is marked as a contract, or if the wallet reports code at the account’s address', async () => {
    const contract = { address: account.address, signTypedData, isContract: true }
    expect(await payFrom(contract)).toEqual([other.address, other.address])
    const request = async ({ method, params }: Asked) => {
      if (method === 'eth_chainId') return '0x2105'
      if (method === 'eth_getCode') return '0x6001'
      return other.signTypedData(JSON.parse((params as [string, string])[1]))
    }
    const wallet = createWalletClient({ account: account.address, transport: custom({ request }) })
    expect(await payFrom(wallet)).toEqual([other.address, other.address])
  })
})

test('args: accepts a contract’s signature of 1,024 bytes', async () => {
  const { url, paidHeaders } = await playProvider(serveReceipt)
  const signature: Hex = `0x${'5a'.repeat(1_024)}`
  await clientOf({ account: { address: account.address, signTypedData: async () => signature } }).request(url)
  expect(paidHeaders[0]).toContain(signature.slice(2))
})

test.each(['TransferWithAuthorization', 'ReceiveWithAuthorization'] as const)(
  'behavior: signs a %s with a key exactly as viem does',
  async (primaryType) => {
    const key = generatePrivateKey()
    const [own, theirs] = [payerOf({ walletPrivateKey: key }), payerOf({ account: privateKeyToAccount(key) })]
    const authorization = {
      primaryType,
      from: own.address,
      to: zeroAddress,
      value: 47_500n,
      validAfter: 0n,
      validBefore: 2n ** 255n + 1_800_093_600n,
      nonce: `0x${'ab'.repeat(32)}`,
    } as const
    // Our own digest only supports values of 64 bits.
    for (const value of [1n, 2n ** 64n - 1n, 2n ** 64n]) {
      const signed = (payer: Signer) =>
        signAuthorization(payer, networks.base, zeroAddress, { ...authorization, value })
      expect(await signed(own)).toBe(await signed(theirs))
    }
  },
)
