import { type AuditOptions, audit } from '@tollkeeper/sdk/audit/audit'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { type ReceiptClaims, zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import { refundNonce } from '@tollkeeper/sdk/protocol/refund'
import {
  type Address,
  createPublicClient,
  createTestClient,
  custom,
  encodeFunctionData,
  type Hash,
  type Hex,
  http,
  type RpcTransactionReceipt,
  toHex,
} from 'viem'
import { privateKeyToAccount, privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { devAccount, devPrivateKey } from '../../apps/devstack/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { startChaosRpc } from '../support/chaosRpc.ts'
import {
  createPayment,
  createSplitPayment,
  createTab,
  createTestIssuer,
  createWallet,
  encodeTabs,
  sendTabs,
  settle,
  settleTabs,
  sweep,
  type TestIssuer,
  type TestPayment,
  tabSettlementOf,
} from '../support/paidReceipts.ts'
import { randomHex, setBlacklisted, tokenOf } from '../support/usdc.ts'

const provider: Address = '0x1000000000000000000000000000000000000001'
const otherProvider: Address = '0x1000000000000000000000000000000000000002'
const platform: Address = '0x2000000000000000000000000000000000000001'
const buyers = [3, 4, 5, 6].map(devPrivateKey)

let chain: LocalChain
let gateway: TestIssuer
let count = 0

beforeAll(async () => {
  // The auditor knows Base's USDC, so it needs no option about the chain.
  chain = await startLocalChain({ network: 'base', blockTimeMs: 0 })
  gateway = await createTestIssuer()
  await chain.mintUsdc(buyers.map(privateKeyToAddress), 1_000_000_000n)
})
afterAll(() => chain.close())

const now = () => Math.floor(Date.now() / 1000)

function pay(terms: Partial<Parameters<typeof createPayment>[1]> = {}): TestPayment {
  count += 1
  const buyer = buyers[count % buyers.length] as Hex
  const paymentId = `pay_${count}`
  return createPayment(chain, { buyer, payTo: provider, platform, paymentId, acceptedAt: now(), ...terms })
}

const sign = ({ claims }: TestPayment, change: Partial<ReceiptClaims> = {}) =>
  gateway.sign({ ...claims, ...change })

const settled = (transactionHash: Hash): Partial<ReceiptClaims> => ({ status: 'settled', transactionHash })

/** Audits with `confirmations: 0`, because the local chain mines no blocks on its own. */
const run = async (receipts: (string | Promise<string>)[], options: Partial<AuditOptions> = {}) =>
  audit({
    receipts: await Promise.all(receipts),
    jwks: gateway.jwks,
    ...(!options.rpcUrls && !options.clients && { rpcUrls: [chain.url] }),
    deployments: chain.deployments,
    confirmations: 0,
    ...options,
  })

const verdicts = (report: Awaited<ReturnType<typeof run>>) =>
  report.receipts.map(({ state, reason }) => (reason ? `${state}: ${reason}` : state))

async function settleAll(...payments: TestPayment[]): Promise<Hash> {
  return settle(
    chain,
    payments.map(({ item }) => item),
  )
}

/** Calls USDC directly, from a buyer's account or a stranger's. */
async function callUsdc(data: Hex, account = devAccount(7)): Promise<Hash> {
  const wallet = createWallet(chain, account)
  const hash = await wallet.sendTransaction({ to: tokenOf(chain), data, gas: 200_000n })
  const { status } = await wallet.waitForTransactionReceipt({ hash, pollingInterval: 20 })
  if (status !== 'success') throw new Error('reverted')
  return hash
}

function transferStraight({
  from,
  to,
  value,
  validAfter,
  validBefore,
  nonce,
  signature,
}: TestPayment['item']['fee']) {
  const args = [from, to, value, validAfter, validBefore, nonce, signature] as const
  return callUsdc(encodeFunctionData({ abi: usdcAbi, functionName: 'transferWithAuthorization', args }))
}

/** Sets the code at an address. */
async function setCode(address: Address, bytecode: Hex): Promise<void> {
  const client = createTestClient({ mode: 'hardhat', transport: http(chain.url) })
  await client.setCode({ address, bytecode })
}

/** Returns code that forwards every call to `to`, like a relayer's contract. */
const forwarderTo = (to: Address): Hex => `0x365f5f375f5f365f5f73${to.slice(2)}5af100`

/**
 * Returns the code of a token that calls `to` with `data` when TabSettlement asks it to pull a payment. The code recognizes that
 * call by its calldata, which is longer than that of the token's other functions. Every call returns nothing.
 */
function callerOf(to: Address, data: Hex): Hex {
  const onlyIfLong = '36604410600857005b'
  const length = ((data.length - 2) / 2).toString(16).padStart(4, '0')
  const copy = (offset: string) => `61${length}61${offset}5f39`
  const call = `5f5f61${length}5f5f73${to.slice(2)}5af15000`
  const offset = ((onlyIfLong + copy('0000') + call).length / 2).toString(16).padStart(4, '0')
  return `0x${onlyIfLong}${copy(offset)}${call}${data.slice(2)}`
}

const balanceOf = (owner: Address) =>
  createWallet(chain).readContract({
    address: tokenOf(chain),
    abi: usdcAbi,
    functionName: 'balanceOf',
    args: [owner],
  })

describe('audit', () => {
  test('default: reconciles receipts of real batches, with and without a transaction hash', async () => {
    const payments = Array.from({ length: 30 }, (_, i) =>
      pay({ payTo: i < 20 ? provider : otherProvider, providerId: i < 20 ? 'prov_a' : 'prov_b' }),
    )
    const first = await settleAll(...payments.slice(0, 10))
    const second = await settleAll(...payments.slice(10))
    const report = await run(payments.map((one, i) => sign(one, i < 5 ? settled(first) : {})))
    expect(report.reconciled).toBe(true)
    expect(report.states).toMatchObject({ settled: 30, pending: 0 })
    expect(report.providers).toMatchObject([
      { providerId: 'prov_a', payments: 20, settled: 20, providerAmount: 190_000n, platformAmount: 10_000n },
      { providerId: 'prov_b', payments: 10, settled: 10, providerAmount: 95_000n, platformAmount: 5_000n },
    ])
    expect(report.batches).toMatchObject([
      { transactionHash: first, payments: 10, authorizations: 20, providerAmount: 95_000n },
      { transactionHash: second, payments: 20, authorizations: 40, providerAmount: 190_000n },
    ])
  })

  test('behavior: reports all requests on a tab as settled by one transaction, except requests that the tab’s line did not cover', async () => {
    const tabId = `tab_${'1'.repeat(32)}`
    const bought = [
      { payTo: provider, price: 1_000n, providerId: 'prov_a' },
      { payTo: otherProvider, price: 50_000n, providerId: 'prov_b' },
      { payTo: provider, price: 7n, providerId: 'prov_a' },
      { payTo: provider, price: 2_000n, providerId: 'prov_a' },
    ]
    const terms = {
      buyer: buyers[0] as Hex,
      platform,
      paymentId: 'pay_tab',
      acceptedAt: now(),
      tabId,
    } as const
    const whole = createTab(chain, { ...terms, requests: bought })
    const before = await run(whole.claims.map((claims) => gateway.sign(claims)))
    expect(verdicts(before)).toEqual(Array(4).fill('pending: waiting'))
    expect(before.tabs).toMatchObject([
      { id: tabId, requests: 4, lines: [{ requests: 3, gap: 0n }, { requests: 1 }] },
    ])

    // The settled state is the one after the third request, so the fourth request stays unsettled.
    const { tab } = createTab(chain, { ...terms, requests: bought.slice(0, 3) })
    const other = createTab(chain, {
      ...terms,
      buyer: buyers[1] as Hex,
      paymentId: 'pay_other',
      tabId: `tab_${'2'.repeat(32)}`,
      requests: [{ payTo: provider, price: 30_000n, providerId: 'prov_a' }],
    })
    const hash = await settleTabs(chain, platform, [other.tab, tab])
    const receipts = [...whole.claims, ...other.claims].map((claims) => gateway.sign(claims))
    const report = await run(receipts)
    expect(verdicts(report)).toEqual(['settled', 'settled', 'settled', 'mismatch: line', 'settled'])
    expect(report.receipts[3]?.detail).toContain('settled with only 0.001007 USDC on its line')
    expect(report.tabs).toMatchObject([
      {
        id: tabId,
        transactionHash: hash,
        movedAmount: 51_007n,
        requests: 4,
        lines: [
          {
            provider,
            requests: 3,
            boughtAmount: 3_007n,
            lineTotal: 3_007n,
            movedAmount: 1_007n,
            gap: 2_000n,
          },
          { provider: otherProvider, requests: 1, lineTotal: 50_000n, movedAmount: 50_000n, gap: 0n },
        ],
      },
      { requests: 1, movedAmount: 30_000n },
    ])
    expect(report.batches).toMatchObject([{ transactionHash: hash, payments: 4, authorizations: 2 }])
    expect(
      report.providers.map(({ settled, failing, waitingAmount }) => [settled, failing, waitingAmount]),
    ).toEqual([
      [3, 1, 0n],
      [1, 0, 0n],
    ])
  })

  /** Returns a tab with one request for 0.01 USDC, and the request's receipt. */
  const oneRequest = (number: number, signs: Parameters<typeof createTab>[1]['signs'] = {}) =>
    createTab(chain, {
      buyer: buyers[number % 4] as Hex,
      platform,
      paymentId: `pay_tab_${number}`,
      acceptedAt: now(),
      tabId: `tab_${number.toString(16).padStart(32, '0')}`,
      requests: [{ payTo: provider, price: 10_000n, providerId: 'prov_terms' }],
      signs,
    })

  test('behavior: if a buyer settles a tab under other terms, reports that the provider was paid and the platform wasn’t', async () => {
    const own = privateKeyToAddress(buyers[0] as Hex).toLowerCase() as Address
    const [self, greedy, modest] = [
      oneRequest(16, { platform: own }),
      oneRequest(17, { rewardShare: 6_000 }),
      oneRequest(18, { rewardShare: 0 }),
    ]
    await settleTabs(chain, own, [self.tab])
    await settleTabs(chain, platform, [greedy.tab], { rewardShare: 6_000 })
    await settleTabs(chain, platform, [modest.tab], { rewardShare: 0 })
    const claims = [self, greedy, modest].flatMap((one) => one.claims)
    const report = await run(claims.map((one) => gateway.sign(one)))
    expect(verdicts(report)).toEqual(['mismatch: terms', 'mismatch: terms', 'settled'])
    expect(report.reconciled).toBe(false)
    expect(report.tabs.map(({ platform, rewardShare }) => [platform, rewardShare])).toEqual([
      [own, 1_000],
      [platform, 6_000],
      [platform, 0],
    ])
    // The platform's share of each tab is 0.0005 USDC. It got nothing from the first tab, half from the second, and all from the third.
    expect(report.providers).toMatchObject([{ settled: 1, providerAmount: 28_500n, platformAmount: 750n }])
  })

  test('behavior: reconciles a tab’s honest lines if they settled through a wrapper contract, no matter who called the wrapper', async () => {
    const { tab, claims } = oneRequest(20)
    const wrapper = randomHex(20)
    await setCode(wrapper, forwarderTo(tabSettlementOf(chain)))
    const hash = await sendTabs(chain, encodeTabs(chain, platform, [tab]), wrapper)
    const report = await run(claims.map((one) => gateway.sign(one)))
    expect(verdicts(report)).toEqual(['settled'])
    expect(report.tabs).toMatchObject([{ transactionHash: hash, lines: [{ movedAmount: 10_000n, gap: 0n }] }])
  })

  test('behavior: doesn’t accept a tab’s honest lines as proof if they appear in the calldata of another token’s batch', async () => {
    const own = privateKeyToAddress(buyers[0] as Hex).toLowerCase() as Address
    const [honest, stolen] = [oneRequest(24), oneRequest(24, { payTo: own, platform: own })]
    expect(stolen.tab.nonce).toBe(honest.tab.nonce)
    // When TabSettlement asks the token to pull the payment, the token calls TabSettlement with another batch, whose state pays the buyer.
    const token = randomHex(20)
    await setCode(token, callerOf(tabSettlementOf(chain), encodeTabs(chain, own, [stolen.tab])))
    const before = await balanceOf(own)
    await settleTabs(chain, platform, [honest.tab], { token, callGasLimit: 2_000_000n })
    // The buyer lost only the reward (a tenth of the platform's 5%), which went to the token.
    expect(await balanceOf(own)).toBe(before - 50n)
    const report = await run(honest.claims.map((one) => gateway.sign(one)))
    expect(verdicts(report)).toEqual(['mismatch: line'])
    expect(report.tabs).toMatchObject([{ lines: [{ movedAmount: 0n, gap: 10_000n }] }])
  })

  test('behavior: reports every line as unpaid if a direct transfer to TabSettlement used the tab’s nonce', async () => {
    const { tab, claims } = oneRequest(28)
    const { item } = pay({ buyer: buyers[0] as Hex, payTo: tabSettlementOf(chain), nonce: tab.nonce })
    await transferStraight(item.authorization as TestPayment['item']['fee'])
    const report = await run(claims.map((one) => gateway.sign(one)))
    expect(verdicts(report)).toEqual(['mismatch: line'])
  })

  test('behavior: if two receipts of a tab have the same number, reports the later receipt as a duplicate, but accepts a receipt that the gateway only signed again', async () => {
    const { tab, claims } = createTab(chain, {
      buyer: buyers[2] as Hex,
      platform,
      paymentId: 'pay_twice',
      acceptedAt: now(),
      tabId: `tab_${'3'.repeat(32)}`,
      requests: [1, 2, 3].map(() => ({ payTo: provider, price: 1_000n, providerId: 'prov_a' })),
    })
    await settleTabs(chain, platform, [tab])
    const [first, second, third] = claims as [ReceiptClaims, ReceiptClaims, ReceiptClaims]
    const shared = {
      ...second,
      tab: third.tab,
      timestamp: third.timestamp,
      endpointId: 'ep_other',
    } as ReceiptClaims
    const again = { ...first, iat: first.iat + 60 }
    // The receipt of the second request is missing. That doesn't count as a gap.
    const report = await run(
      [first, again, third, { ...shared, iat: third.iat + 1 }].map((one) => gateway.sign(one)),
    )
    expect(verdicts(report)).toEqual(['settled', 'settled', 'settled', 'duplicate: sequence_shared'])
    expect(report.tabs).toMatchObject([
      { requests: 2, lines: [{ boughtAmount: 2_000n, lineTotal: 3_000n, gap: 0n }] },
    ])
  })

  test('behavior: reports a payment to a splitter as settled and waiting until the next sweep, and then as paid out', async () => {
    const payOne = (payTo: Address, providerId: string) => {
      count += 1
      const paymentId = `pay_${count}`
      const buyer = buyers[count % buyers.length] as Hex
      return createSplitPayment(chain, { buyer, payTo, platform, paymentId, providerId, acceptedAt: now() })
    }
    const [early, other] = [payOne(provider, 'prov_split'), payOne(otherProvider, 'prov_other')]
    await settle(chain, [early.item, other.item])
    const first = await sweep(chain, platform, [early.split])
    const late = payOne(provider, 'prov_split')
    await settle(chain, [late.item])
    const receipts = [early, other, late].map(({ claims }) => gateway.sign(claims))
    const report = await run(receipts)
    expect(verdicts(report)).toEqual(['settled', 'settled', 'settled'])
    expect(report.receipts.map(({ payout }) => payout?.transactionHash)).toEqual([
      first,
      undefined,
      undefined,
    ])
    expect(report.receipts[0]?.detail).toMatch(`paid out in ${first}`)
    expect(report.receipts[2]?.detail).toMatch('both parts wait in the splitter')
    expect(report.providers).toMatchObject([
      { providerId: 'prov_other', providerAmount: 9_500n, platformAmount: 500n, waitingAmount: 9_500n },
      { providerId: 'prov_split', providerAmount: 19_000n, platformAmount: 1_000n, waitingAmount: 9_500n },
    ])

    await setBlacklisted(chain, platform, true)
    const second = await sweep(chain, platform, [early.split, other.split])
    await setBlacklisted(chain, platform, false)
    const after = await run(receipts)
    expect(after.receipts.map(({ payout }) => [payout?.transactionHash, payout?.isPlatformPaid])).toEqual([
      [first, true],
      [second, false],
      [second, false],
    ])
    expect(after.providers.map(({ waitingAmount }) => waitingAmount)).toEqual([0n, 0n])
  })

  test('error: reports a mismatch if a receipt names wallets that its splitter doesn’t pay', async () => {
    const { item, claims } = createSplitPayment(chain, {
      buyer: buyers[0] as Hex,
      payTo: provider,
      platform,
      paymentId: 'pay_split',
      acceptedAt: now(),
    })
    await settle(chain, [item])
    const split = { provider: otherProvider, platform } as const
    expect(verdicts(await run([gateway.sign({ ...claims, split })]))).toEqual(['mismatch: splitter'])
  })

  test('behavior: if a stranger sends one authorization of a payment straight to USDC, reports the authorization as settled and the payment as pending', async () => {
    const payment = pay()
    const fee = await transferStraight(payment.item.fee)
    const half = await run([sign(payment)])
    expect(verdicts(half)).toEqual(['pending: waiting'])
    expect(half.receipts[0]?.halves?.map(({ state }) => state)).toEqual(['pending', 'settled'])
    const rest = await settleAll(payment)
    const whole = await run([sign(payment, settled(rest))])
    expect(verdicts(whole)).toEqual(['settled'])
    expect(whole.receipts[0]?.halves?.map(({ onChain }) => onChain?.transactionHash)).toEqual([rest, fee])
  })

  test('behavior: reports an unsettled payment as pending, or as missing if it has expired or its receipt says that it settled', async () => {
    const open = pay()
    const expired = pay({ acceptedAt: now() - 7200, validSeconds: 3600 })
    const report = await run([sign(open), sign(expired), sign(open, settled(`0x${'5'.repeat(64)}`))])
    expect(verdicts(report)).toEqual(['pending: waiting', 'missing: expired', 'missing: said_to_be_settled'])
    expect(report.reconciled).toBe(false)
  })

  test('behavior: reports a payment as pending until it is confirmed', async () => {
    const payment = pay()
    await settleAll(payment)
    expect(verdicts(await run([sign(payment)], { confirmations: 1 }))).toEqual(['pending: confirming'])
    await settleAll(pay())
    expect(verdicts(await run([sign(payment)], { confirmations: 1 }))).toEqual(['settled'])
  })

  test('behavior: reports a mismatch if the chain contradicts the amount, recipient, payer or token in a receipt that the gateway signed', async () => {
    const payment = pay()
    const hash = await settleAll(payment)
    const { claims } = payment
    const [half, fee = half] = claims.authorizations
    const changes: Partial<ReceiptClaims>[] = [
      { totalUsdc: '10001', providerUsdc: '9501', authorizations: [{ ...half, value: '9501' }, fee] },
      { authorizations: [{ ...half, to: otherProvider }, fee] },
      { authorizations: [half, { ...fee, to: otherProvider }] },
      { payer: privateKeyToAddress(buyers[(count + 1) % 4] as Hex).toLowerCase() as Hex },
      { asset: '0x036cbd53842c5426634e7929541ec2318f3dcf7e' },
    ]
    const reasons = ['amount', 'recipient', 'recipient', 'payer', 'token'].map(
      (reason) => `mismatch: ${reason}`,
    )
    expect(verdicts(await run(changes.map((change) => sign(payment, change))))).toEqual(reasons)
    const named = changes.map((change) => sign(payment, { ...change, ...settled(hash) }))
    expect(verdicts(await run(named))).toEqual(reasons)
  })

  test('behavior: reports a mismatch if the logs show that an authorization paid someone else', async () => {
    // The buyer signs two authorizations with the same nonce. The receipt is for one payee, and the authorization for the other payee settles.
    const nonce = toHex(7n, { size: 32 })
    const buyer = buyers[0] as Hex
    const promised = pay({ buyer, nonce })
    await settleAll(pay({ buyer, nonce, payTo: otherProvider, price: 20_000n }))
    const report = await run([sign(promised)])
    expect(verdicts(report)).toEqual(['mismatch: recipient'])
    expect(report.receipts[0]?.detail).toMatch(otherProvider)
  })

  test('behavior: reports a payment as cancelled if its payer cancelled it, or if it was voided and never settled', async () => {
    const buyer = buyers[1] as Hex
    const cancelled = pay({ buyer })
    const { from, nonce } = cancelled.item.authorization
    const account = privateKeyToAccount(buyer)
    const signature = await account.signTypedData({
      domain: { name: 'USD Coin', version: '2', chainId: chain.chainId, verifyingContract: tokenOf(chain) },
      types: {
        CancelAuthorization: [
          { name: 'authorizer', type: 'address' },
          { name: 'nonce', type: 'bytes32' },
        ],
      },
      primaryType: 'CancelAuthorization',
      message: { authorizer: from, nonce },
    })
    // usdcAbi has only the functions that the product calls, and the product never cancels.
    const abi = [
      {
        type: 'function',
        name: 'cancelAuthorization',
        stateMutability: 'nonpayable',
        inputs: ['address', 'bytes32', 'bytes'].map((type) => ({ type, name: '' })),
        outputs: [],
      },
    ] as const
    await callUsdc(encodeFunctionData({ abi, args: [from, nonce, signature] }))
    const report = await run([sign(cancelled), sign(pay(), { status: 'voided' })])
    expect(verdicts(report)).toEqual(['cancelled: cancelled_on_chain', 'cancelled: voided'])
    expect(report.receipts.map(({ reconciled }) => reconciled)).toEqual([false, true])
  })

  test('behavior: reports a receipt as forged if no key of the gateway signed it', async () => {
    const payment = pay()
    await settleAll(payment)
    const impostor = await createTestIssuer()
    const genuine = await sign(payment)
    const [header = '', body = '', signature = ''] = genuine.split('.')
    const altered = Buffer.from(body, 'base64url').toString().replace('pay_', 'pay_x')
    const unsigned = Buffer.from(JSON.stringify({ alg: 'none' })).toString('base64url')
    const report = await run([
      impostor.sign(payment.claims),
      `${header}.${Buffer.from(altered).toString('base64url')}.${signature}`,
      `${unsigned}.${body}.x`,
      'not a receipt',
      sign(payment, { totalUsdc: '1' }),
      genuine,
    ])
    expect(verdicts(report)).toEqual([
      'forged: bad_signature',
      'forged: bad_signature',
      'forged: bad_signature',
      'forged: not_a_jws',
      'forged: bad_claims',
      'settled',
    ])
    expect(verdicts(await run([genuine], { issuer: 'https://other.example' }))).toEqual([
      'forged: other_issuer',
    ])
  })

  test('behavior: reports a duplicate if two payments have the same authorization, but not if the gateway signed a payment’s receipt again', async () => {
    const payment = pay()
    const hash = await settleAll(payment)
    const report = await run([
      sign(payment),
      sign(payment, { ...settled(hash), iat: payment.claims.iat + 60 }),
      sign(payment, { paymentId: 'pay_again', timestamp: new Date((now() + 5) * 1000).toISOString() }),
    ])
    expect(verdicts(report)).toEqual(['settled', 'settled', 'duplicate: authorization_shared'])
    expect(report.receipts[2]).toMatchObject({ duplicateOf: payment.claims.paymentId, reconciled: false })
    // The money is counted only once.
    expect(report.providers[0]).toMatchObject({ payments: 2, settled: 1, failing: 1, providerAmount: 9500n })
    expect(report.batches[0]).toMatchObject({ payments: 1, authorizations: 2 })
  })

  test('behavior: lists a wallet’s incoming and outgoing transfers that have no receipt', async () => {
    const payTo = '0x1000000000000000000000000000000000000009'
    const buyer = devPrivateKey(8)
    await chain.mintUsdc([privateKeyToAddress(buyer)], 1_000_000n)
    const payments = [pay({ payTo, buyer }), pay({ payTo, buyer })] as const
    const hash = await settleAll(...payments)
    await callUsdc(
      encodeFunctionData({ abi: usdcAbi, functionName: 'transfer', args: [payTo, 1n] }),
      devAccount(8),
    )
    const known = sign(payments[0])
    const [, unreceipted] = payments
    const incoming = await run([known], { wallets: [payTo] })
    expect(incoming.reconciled).toBe(false)
    expect(incoming.wallets).toMatchObject([
      {
        transfers: 2,
        plainTransfers: 1,
        unreceipted: [
          {
            direction: 'in',
            value: 9500n,
            nonce: unreceipted.item.authorization.nonce,
            transactionHash: hash,
          },
        ],
      },
    ])
    // The audit of the buyer's wallet lists both authorizations as outgoing. It doesn't list the minting of the buyer's USDC, a plain transfer.
    const outgoing = await run([known], { wallets: [privateKeyToAddress(buyer)] })
    expect(outgoing.wallets[0]?.unreceipted.map(({ direction, value }) => [direction, value])).toEqual([
      ['out', 9500n],
      ['out', 500n],
    ])
    const all = await run([known, sign(unreceipted)], { wallets: [payTo] })
    expect(all).toMatchObject({ reconciled: true, wallets: [{ unreceipted: [] }] })
    const before = await run([known], { wallets: [payTo], to: BigInt(now() - 3600) })
    expect(before).toMatchObject({ reconciled: true, wallets: [{ transfers: 0 }] })
  })

  test('behavior: finds a refund from the receipt that names it, and from an earlier receipt of the same payment', async () => {
    const shop = devPrivateKey(7)
    const payTo = privateKeyToAddress(shop)
    await chain.mintUsdc([payTo], 1_000_000n)
    const paid = pay({ payTo })
    await settleAll(paid)
    const { iss, paymentId, payer } = paid.claims
    const nonce = refundNonce(iss, paymentId, 1)
    const { item } = pay({ buyer: shop, payTo: payer, nonce })
    const refund = {
      number: 1,
      from: item.authorization.from,
      value: item.authorization.value.toString(),
      nonce,
      transactionHash: zeroHash,
    }
    const asked = { refunds: [refund] }
    expect(await run([sign(paid, asked)])).toMatchObject({
      reconciled: true,
      receipts: [{ refunds: [{ state: 'pending' }] }],
      providers: [{ providerAmount: 9_500n, refundedAmount: 0n }],
    })
    const hash = await settle(chain, [{ authorization: item.authorization }])
    const arrived = { refunds: [{ ...refund, transactionHash: hash }] }
    for (const receipt of [sign(paid, asked), sign(paid, arrived)])
      expect(await run([receipt])).toMatchObject({
        reconciled: true,
        receipts: [{ refunds: [{ state: 'settled', transactionHash: hash }] }],
        providers: [{ providerAmount: 9_500n, refundedAmount: 9_500n }],
      })
    // The payment's receipt covers the wallet's outgoing transfer. It doesn't matter when the receipt was signed.
    expect(await run([sign(paid)], { wallets: [payTo] })).toMatchObject({
      reconciled: true,
      wallets: [{ transfers: 2, unreceipted: [] }],
    })
  })

  test('behavior: no longer reports a payment as settled after a reorg', async () => {
    const payment = pay()
    const request = createPublicClient({ transport: http(chain.url) }).request as (call: {
      method: string
      params: unknown[]
    }) => Promise<unknown>
    const snapshot = await request({ method: 'evm_snapshot', params: [] })
    const receipt = await sign(payment, settled(await settleAll(payment)))
    expect(verdicts(await run([receipt]))).toEqual(['settled'])
    await request({ method: 'evm_revert', params: [snapshot] })
    await request({ method: 'hardhat_mine', params: ['0x5'] })
    expect(verdicts(await run([receipt, sign(payment)]))).toEqual([
      'missing: said_to_be_settled',
      'pending: waiting',
    ])
    await settleAll(payment)
    const again = await run([receipt])
    expect(again.receipts[0]).toMatchObject({ state: 'settled', isSuperseded: true })
  })

  test('behavior: reads a block again if a reorg replaces it during the audit', async () => {
    const payment = pay()
    const receipts = [sign(payment, settled(await settleAll(payment)))]
    const node = createPublicClient({ transport: http(chain.url) })
    let left = 0
    const client = createPublicClient({
      transport: custom({
        request: async (call) => {
          const answer = await node.request(call)
          if (call.method !== 'eth_getTransactionReceipt' || left-- <= 0) return answer
          const { logs, ...receipt } = answer as RpcTransactionReceipt
          const blockHash = `0x${'d'.repeat(64)}`
          return { ...receipt, blockHash, logs: logs.map((log) => ({ ...log, blockHash })) }
        },
      }),
    })
    left = 2
    expect(verdicts(await run(receipts, { clients: [client] }))).toEqual(['settled'])
    left = Number.POSITIVE_INFINITY
    await expect(run(receipts, { clients: [client] })).rejects.toMatchObject({
      code: 'dependency_unavailable',
    })
  })

  test('args: the audit reports each of its steps to onProgress, up to the last step', async () => {
    const payments = [pay(), pay()]
    await settleAll(...payments)
    const steps: string[] = []
    await run(
      payments.map((one) => sign(one)),
      {
        wallets: [provider],
        onProgress: ({ step, done, total }) =>
          steps.push(`${step} ${step === 'wallet' ? '' : `${done}/${total}`}`),
      },
    )
    expect(steps).toContain('signatures 2/2')
    expect(steps).toContain('chain 4/4')
    expect(steps.at(-1)).toBe('wallet ')
  })

  test('error: rejects a receipt on a chain for which no node is configured', async () => {
    const receipts = [sign(pay(), { network: 'polygon' })]
    await expect(run(receipts)).rejects.toMatchObject({
      code: 'unknown_network',
      message: /polygon.*got base/,
    })
  })

  test('error: rejects when a chain cannot be read', async () => {
    const receipts = [sign(pay())]
    await using chaos = await startChaosRpc({ target: chain.url })
    chaos.always('eth_getLogs', 'refuse')
    await expect(run(receipts, { rpcUrls: [chaos.url] })).rejects.toThrow()
    const gone = run(receipts, { rpcUrls: ['http://127.0.0.1:9'] })
    await expect(gone).rejects.toMatchObject({ code: 'dependency_unavailable' })
  })

  test('behavior: returns the same results if a node fails intermittently', async () => {
    const payments = Array.from({ length: 12 }, () => pay())
    const hash = await settleAll(...payments.slice(0, 8))
    const receipts = payments.map((one, i) => sign(one, i < 4 ? settled(hash) : {}))
    const calm = verdicts(await run(receipts))
    await using chaos = await startChaosRpc({ target: chain.url, delayMs: 20 })
    chaos.random({ seed: 6, rate: 0.15, faults: ['drop-reply', '429', '500', 'delay'] })
    expect(verdicts(await run(receipts, { rpcUrls: [chaos.url] }))).toEqual(calm)
    expect(chaos.calls.some(({ fault }) => fault !== undefined)).toBe(true)
  })
})

describe('audit on a long chain', () => {
  test('behavior: reads only blocks near those of the receipts if the node’s provider limits eth_getLogs', async () => {
    await using long = await startLocalChain({ network: 'ethereum-sepolia', blockTimeMs: 0 })
    const test = createPublicClient({ transport: http(long.url) })
    const mine = (blocks: number) =>
      test.request({ method: 'hardhat_mine', params: [toHex(blocks), toHex(2)] } as never)
    await long.mintUsdc(buyers.map(privateKeyToAddress), 1_000_000_000n)
    const at = async () => Number((await test.getBlock()).timestamp)
    const accept = async (paymentId: string, earlierSeconds = 0) =>
      createPayment(long, {
        buyer: buyers[0] as Hex,
        payTo: provider,
        platform,
        paymentId,
        acceptedAt: (await at()) - earlierSeconds,
        validSeconds: 93_600 + earlierSeconds,
      })
    await mine(30_000)
    const early = await accept('early')
    await settle(long, [early.item])
    await mine(60_000)
    const late = await accept('late')
    await settle(long, [late.item])
    await mine(60_000)
    // According to its receipt, the payment was accepted, and expired, a day before the money moved.
    const astray = await accept('astray')
    await settle(long, [astray.item])
    await mine(20)

    await using chaos = await startChaosRpc({ target: long.url, logRangeLimit: 2_000 })
    const claims = [early, late].map((one) => one.claims)
    const wrong = {
      ...astray.claims,
      timestamp: new Date(Date.parse(early.claims.timestamp) - 20_000_000).toISOString(),
      validBefore: String(BigInt(early.claims.validBefore) - 90_000n),
    }
    const options = { jwks: gateway.jwks, rpcUrls: [chaos.url] }
    const receipts = await Promise.all(claims.map((one) => gateway.sign(one)))
    const report = await audit({ ...options, receipts: receipts.slice(1) })
    expect(report.states.settled).toBe(1)
    const calls = chaos.calls.filter(({ method }) => method === 'eth_getLogs').length
    // The margin of three hours is 5,400 blocks; reading the whole chain would take 75 calls.
    expect(calls).toBeLessThan(20)

    const both = await audit({ ...options, receipts: [...receipts, await gateway.sign(wrong)] })
    expect(both.receipts.map(({ state }) => state)).toEqual(['settled', 'settled', 'settled'])
    const narrow = await audit({ ...options, receipts: receipts.slice(0, 1), fromBlock: 100_000n })
    expect(narrow.receipts[0]?.state).toBe('missing')
  })
})

describe('audit of many receipts', () => {
  test('behavior: needs fewer than 90 calls for 900 receipts without a transaction hash', async () => {
    await using busy = await startLocalChain({ blockTimeMs: 0 })
    await busy.mintUsdc(buyers.map(privateKeyToAddress), 1_000_000_000n)
    const acceptedAt = now()
    const payments = Array.from({ length: 900 }, (_, i) =>
      createPayment(busy, {
        buyer: buyers[i % buyers.length] as Hex,
        payTo: i % 2 ? provider : otherProvider,
        platform,
        paymentId: `pay_${i}`,
        acceptedAt,
      }),
    )
    for (let start = 0; start < payments.length; start += 150) {
      await settle(
        busy,
        payments.slice(start, start + 150).map(({ item }) => item),
      )
    }
    const receipts = await Promise.all(payments.map(({ claims }) => gateway.sign(claims)))
    const node = await startChaosRpc({ target: busy.url })
    const report = await audit({ receipts, jwks: gateway.jwks, rpcUrls: [node.url], confirmations: 0 })
    await node.close()
    expect(node.calls.length).toBeLessThan(90)
    expect(report).toMatchObject({ reconciled: true, states: { settled: 900 } })
    expect(report.batches).toHaveLength(6)
  })
})
