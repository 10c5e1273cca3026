import { splitterFactoryAbi } from '@tollkeeper/sdk/protocol/abi/splitterFactory'
import { encodeSettle, type SettlementItem, triggerCodes } from '@tollkeeper/sdk/protocol/batchSettlement'
import { feeNonce } from '@tollkeeper/sdk/protocol/challenge'
import { domainSeparator, eip712Domain, hashAuthorization } from '@tollkeeper/sdk/protocol/eip3009'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { type ReceiptClaims, zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import { encodeSplit, splitterAddress, splitterShares } from '@tollkeeper/sdk/protocol/splitter'
import { tabAuthorization, tabNonce, tabSplit, toWord } from '@tollkeeper/sdk/protocol/tab'
import { encodeSettleTabs, type SignedTab } from '@tollkeeper/sdk/protocol/tabSettlement'
import { effectiveRate, splitAnyPrice, splitPrice } from '@tollkeeper/sdk/protocol/tier'
import { exportJWK, generateKeyPair, type JSONWebKeySet, SignJWT } from 'jose'
import secp256k1 from 'secp256k1'
import {
  type Address,
  createWalletClient,
  defineChain,
  type Hash,
  type Hex,
  http,
  publicActions,
  toHex,
} from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import type { LocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { randomHex, tokenOf } from './usdc.ts'

/** A gateway's signing key and JWKS, without the gateway. */
export type TestIssuer = {
  issuer: string
  jwks: JSONWebKeySet
  sign: (claims: ReceiptClaims) => Promise<string>
}

export async function createTestIssuer(
  issuer = 'https://gateway.example',
  kid = 'test',
): Promise<TestIssuer> {
  const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true })
  return {
    issuer,
    jwks: { keys: [{ ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' }] },
    sign: (claims) =>
      new SignJWT({ ...claims, iss: issuer })
        .setProtectedHeader({ alg: 'ES256', kid, typ: 'JWT' })
        .sign(privateKey),
  }
}

export type TestPayment = { item: SettlementItem & { fee: SignedAuthorization }; claims: ReceiptClaims }

export type PaymentTerms = {
  buyer: Hex
  payTo: Address
  platform: Address
  price?: bigint
  paymentId: string
  providerId?: string
  /** Unix seconds of acceptance. */
  acceptedAt: number
  validSeconds?: number
  nonce?: Hex
}

/** Signs the two authorizations of a buyer, and returns them with the receipt that a gateway would issue. */
export function createPayment(chain: LocalChain, terms: PaymentTerms): TestPayment {
  const { buyer, payTo, platform, price = 10_000n, paymentId, acceptedAt, validSeconds = 93_600 } = terms
  const network = networkByName(chain.network)
  const usdc = tokenOf(chain)
  const separator = domainSeparator(eip712Domain(network, usdc))
  const { tier, providerAmount, feeAmount } = splitPrice(price)
  const nonce = terms.nonce ?? randomHex(32)
  const sign = (to: Address, value: bigint, ownNonce: Hex): SignedAuthorization => {
    const unsigned = {
      from: lower(privateKeyToAddressOnce(buyer)),
      to: lower(to),
      value,
      validAfter: 0n,
      validBefore: BigInt(acceptedAt + validSeconds),
      nonce: ownNonce,
    }
    const digest = hashAuthorization(separator, unsigned)
    const { signature, recid } = secp256k1.ecdsaSign(digest, Buffer.from(buyer.slice(2), 'hex'))
    return { ...unsigned, signature: `${toHex(signature)}${recid === 0 ? '1b' : '1c'}` }
  }
  const authorization = sign(payTo, providerAmount, nonce)
  const fee = sign(platform, feeAmount, feeNonce(nonce))
  return {
    item: { authorization, fee },
    claims: {
      paymentId,
      providerId: terms.providerId ?? 'prov_test',
      endpointId: 'ep_test',
      totalUsdc: price.toString(),
      providerUsdc: providerAmount.toString(),
      platformUsdc: feeAmount.toString(),
      tier,
      effectiveRate: effectiveRate(price, feeAmount),
      timestamp: new Date(acceptedAt * 1000).toISOString(),
      transactionHash: zeroHash,
      iss: 'https://gateway.example',
      iat: acceptedAt,
      status: 'verified',
      network: chain.network,
      testnet: network.testnet,
      asset: usdc,
      payer: authorization.from,
      resource: 'https://provider.example/weather',
      validBefore: authorization.validBefore.toString(),
      authorizations: [authorization, fee].map(({ to, value, nonce }) => ({
        to,
        value: value.toString(),
        nonce,
      })) as ReceiptClaims['authorizations'],
    },
  }
}

/** Creates a payment with one signature, to the splitter of both wallets. */
export function createSplitPayment(
  chain: LocalChain,
  terms: PaymentTerms,
): { item: SettlementItem; claims: ReceiptClaims; split: bigint } {
  const price = terms.price ?? 10_000n
  const { feeAmount } = splitPrice(price)
  const factory = chain.deployments[chain.network]?.splitterFactory
  if (!factory) throw new Error('no SplitterFactory')
  const wallets = { provider: lower(terms.payTo), platform: lower(terms.platform) }
  const shares = splitterShares(price, feeAmount)
  const to = splitterAddress({ ...wallets, ...shares, factory })
  const { item, claims } = createPayment(chain, terms)
  const { from, validAfter, validBefore, nonce } = item.authorization
  const unsigned = { from, to, value: price, validAfter, validBefore, nonce }
  const separator = domainSeparator(eip712Domain(networkByName(chain.network), tokenOf(chain)))
  const digest = hashAuthorization(separator, unsigned)
  const { signature, recid } = secp256k1.ecdsaSign(digest, Buffer.from(terms.buyer.slice(2), 'hex'))
  return {
    item: { authorization: { ...unsigned, signature: `${toHex(signature)}${recid === 0 ? '1b' : '1c'}` } },
    claims: { ...claims, split: wallets, authorizations: [{ to, value: price.toString(), nonce }] },
    split: encodeSplit({ ...wallets, ...shares }),
  }
}

/** Signs a buyer's tab as of its last request, and returns it with the receipt of each request. */
export function createTab(
  chain: LocalChain,
  terms: Pick<PaymentTerms, 'buyer' | 'platform' | 'paymentId' | 'acceptedAt'> & {
    tabId: string
    requests: readonly { payTo: Address; price: bigint; providerId: string }[]
    /** Terms that the buyer signs instead of those that the gateway accepted. */
    signs?: { platform?: Address; rewardShare?: number; payTo?: Address }
  },
): { tab: SignedTab; claims: ReceiptClaims[] } {
  const { buyer, platform, paymentId, acceptedAt, tabId, requests, signs = {} } = terms
  const contract = chain.deployments[chain.network]?.tabSettlement
  if (!contract) throw new Error('no TabSettlement')
  const payer = lower(privateKeyToAddressOnce(buyer))
  const expiry = acceptedAt + 93_600
  const lines = new Map<bigint, bigint>()
  const issuer = 'https://gateway.example'
  const claims = requests.map(({ payTo, price, providerId }, index): ReceiptClaims => {
    const { tier, providerAmount, feeAmount } = splitAnyPrice(price)
    const wallets = { provider: lower(payTo), platform: lower(platform) }
    const shares = tabSplit(wallets, price)
    if (!shares) throw new Error(`no tab can have the price ${price}`)
    const split = encodeSplit(shares)
    const lineTotal = (lines.get(split) ?? 0n) + price
    lines.set(split, lineTotal)
    return {
      paymentId,
      providerId,
      endpointId: 'ep_test',
      totalUsdc: price.toString(),
      tier,
      providerUsdc: providerAmount.toString(),
      platformUsdc: feeAmount.toString(),
      effectiveRate: effectiveRate(price, feeAmount),
      timestamp: new Date(acceptedAt * 1000 + index).toISOString(),
      transactionHash: zeroHash,
      iss: issuer,
      iat: acceptedAt,
      status: 'verified',
      network: chain.network,
      testnet: networkByName(chain.network).testnet,
      asset: tokenOf(chain),
      payer,
      resource: 'https://provider.example/weather',
      validBefore: expiry.toString(),
      split: wallets,
      authorizations: [{ to: contract, value: price.toString(), nonce: tabNonce(issuer, tabId) }],
      tab: {
        id: tabId,
        sequence: index + 1,
        split: toWord(split),
        rewardShare: 1_000,
        lineTotal: lineTotal.toString(),
      },
    }
  })
  const state = {
    tabId,
    payer,
    sequence: requests.length,
    expiry,
    lines: [...lines].map(([split, amount]) => ({
      split: signs.payTo ? (BigInt(signs.payTo) << 96n) | (split & (2n ** 96n - 1n)) : split,
      amount,
    })),
  }
  const unsigned = tabAuthorization(
    {
      issuer,
      chainId: networkByName(chain.network).chainId,
      contract,
      platform: lower(signs.platform ?? platform),
      rewardShare: signs.rewardShare ?? 1_000,
    },
    state,
  )
  const separator = domainSeparator(eip712Domain(networkByName(chain.network), tokenOf(chain)))
  const digest = hashAuthorization(separator, unsigned)
  const { signature, recid } = secp256k1.ecdsaSign(digest, Buffer.from(buyer.slice(2), 'hex'))
  return {
    claims,
    tab: { ...state, nonce: unsigned.nonce, signature: `${toHex(signature)}${recid === 0 ? '1b' : '1c'}` },
  }
}

/** Encodes the call that settles tabs; by default in USDC, with a reward of a tenth. */
export function encodeTabs(
  chain: LocalChain,
  platform: Address,
  tabs: readonly SignedTab[],
  { token = tokenOf(chain), rewardShare = 1_000, callGasLimit = 200_000n } = {},
): Hex {
  const { calldata } = encodeSettleTabs(
    {
      token,
      feeRecipient: platform,
      rewardShare,
      batchId: randomHex(32),
      trigger: triggerCodes.count,
      callGasLimit,
    },
    tabs,
  )
  return calldata
}

export function tabSettlementOf(chain: LocalChain): Address {
  const address = chain.deployments[chain.network]?.tabSettlement
  if (!address) throw new Error('no TabSettlement')
  return address
}

/** Settles tabs in one transaction of TabSettlement. */
export function settleTabs(
  chain: LocalChain,
  platform: Address,
  tabs: readonly SignedTab[],
  options: Parameters<typeof encodeTabs>[3] = {},
): Promise<Hash> {
  return sendTabs(chain, encodeTabs(chain, platform, tabs, options))
}

/** @param to Default: TabSettlement. */
export async function sendTabs(
  chain: LocalChain,
  calldata: Hex,
  to: Address = tabSettlementOf(chain),
): Promise<Hash> {
  const wallet = createWallet(chain)
  const hash = await wallet.sendTransaction({ to, data: calldata, gas: 5_000_000n })
  const { status } = await wallet.waitForTransactionReceipt({ hash, pollingInterval: 20 })
  if (status !== 'success') throw new Error(`settle reverted: ${hash}`)
  return hash
}

/** Sweeps splitters of a platform, as anyone can. */
export async function sweep(chain: LocalChain, platform: Address, splits: readonly bigint[]): Promise<Hash> {
  const deployment = chain.deployments[chain.network]
  if (!deployment) throw new Error('no SplitterFactory')
  const wallet = createWallet(chain, devAccount(8))
  const hash = await wallet.writeContract({
    address: deployment.splitterFactory,
    abi: splitterFactoryAbi,
    functionName: 'sweep',
    args: [deployment.usdc, platform, splits],
  })
  await wallet.waitForTransactionReceipt({ hash, pollingInterval: 20 })
  return hash
}

/** Creates a client that reads a chain and sends transactions from a keeper's wallet. */
export function createWallet(chain: LocalChain, account = devAccount(1)) {
  const local = defineChain({
    id: chain.chainId,
    name: 'local chain',
    nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: { default: { http: [chain.url] } },
  })
  return createWalletClient({ account, chain: local, transport: http(chain.url) }).extend(publicActions)
}

/** Settles payments in one transaction of BatchSettlement. */
export async function settle(
  chain: LocalChain,
  items: readonly SettlementItem[],
  account = devAccount(1),
): Promise<Hash> {
  const wallet = createWallet(chain, account)
  const feeRecipient = items.find(({ fee }) => fee)?.fee?.to ?? items[0]?.authorization.to
  if (!feeRecipient) throw new Error('nothing to settle')
  const { calldata } = encodeSettle(
    {
      token: tokenOf(chain),
      feeRecipient,
      batchId: randomHex(32),
      trigger: triggerCodes.count,
      callGasLimit: 200_000n,
    },
    items,
  )
  const to = chain.deployments[chain.network]?.batchSettlement
  if (!to) throw new Error('no BatchSettlement')
  const hash = await wallet.sendTransaction({ to, data: calldata, gas: 15_500_000n })
  const { status } = await wallet.waitForTransactionReceipt({ hash, pollingInterval: 20 })
  if (status !== 'success') throw new Error(`settle reverted: ${hash}`)
  return hash
}

const addresses = new Map<Hex, Address>()

// Cached, because a thousand buyers sign ten payments each, and viem's derivation of keys is slow.
function privateKeyToAddressOnce(key: Hex): Address {
  const address = addresses.get(key) ?? privateKeyToAddress(key)
  addresses.set(key, address)
  return address
}

function lower(address: Address): Address {
  return address.toLowerCase() as Address
}
