import { judgeTabLine } from '@tollkeeper/sdk/audit/judgeTabLine'
import { verifyReceipt } from '@tollkeeper/sdk/audit/verifyReceipt'
import { verifyTabLine } from '@tollkeeper/sdk/audit/verifyTabLine'
import { zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import type { JSONWebKeySet } from 'jose'
import { beforeEach, expect, test } from 'vitest'
import { call, openShop, type Shop } from '../../test/support/gateway.ts'
import { seedPayment, seedPlatform, seedToken } from '../../test/support/seedPayments.ts'
import {
  type SeedTab,
  seedOlderState,
  seedTab,
  seedTabSettlement,
  settleTab,
} from '../../test/support/seedTabs.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)
const other = {} as Shop
let issuer: string
let jwks: JSONWebKeySet
beforeEach(async () => {
  Object.assign(other, await openShop(gateway.app))
  jwks = (await call<JSONWebKeySet>(gateway.app, 'GET', '/.well-known/jwks.json')).body
  issuer = gateway.settings.issuer
})

const seller = (of: Shop) => ({ ...of, endpointIds: [of.endpointId] })
const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000)

/** Seeds two sales of the shop, and one of another shop. */
const seed = (options: Partial<SeedTab> = {}) =>
  seedTab(gateway.database, {
    issuer,
    closedAt: minutesAgo(10),
    sales: [
      { provider: seller(shop), requests: 12, acceptedAt: minutesAgo(100) },
      { provider: seller(other), requests: 5 },
      { provider: seller(shop), requests: 8, acceptedAt: minutesAgo(11) },
    ],
    ...options,
  })

type Line = { paymentId: string; tabLine?: string; receipt?: string; cursor: string }
async function download(query = '', of = shop, tabLines = '&tabLines=true'): Promise<Line[]> {
  gateway.setNow(Date.now() + 60_000)
  const path = `/providers/${of.providerId}/receipts?${query.slice(1)}${tabLines}`
  const { body } = await call<string>(gateway.app, 'GET', path, { key: of.key })
  return body
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line)
}
const claimsOf = ({ tabLine = '' }: Line) => verifyTabLine(tabLine, jwks, { issuer })

test('behavior: a signed tab line contains what a provider sold on a tab, even though the tab’s requests are deleted', async () => {
  const tab = await seed()
  const [line, ...others] = await download()
  expect(others).toEqual([])
  if (!line) throw new Error('no tab line')
  expect(await claimsOf(line)).toMatchObject({
    iss: issuer,
    status: 'verified',
    network: 'localhost',
    asset: seedToken,
    contract: seedTabSettlement,
    paymentId: tab.paymentId,
    providerId: shop.providerId,
    payer: tab.payer,
    payee: shop.wallet,
    platform: seedPlatform,
    tab: { id: tab.tabId, rewardShare: 500, sequence: 25 },
    requests: 20,
    totalUsdc: '2000',
    providerUsdc: '1800',
    platformUsdc: '200',
    sales: [
      {
        endpointId: shop.endpointId,
        requests: 12,
        totalUsdc: '1200',
        providerUsdc: '1080',
        platformUsdc: '120',
      },
      { endpointId: shop.endpointId, requests: 8, totalUsdc: '800' },
    ],
    line: { signedUsdc: '2000', chargedUsdc: '2000', creditUsdc: '0', othersUsdc: '0' },
    transactionHash: zeroHash,
  })
  const [theirs] = await download('', other)
  if (!theirs) throw new Error('no tab line')
  expect(await claimsOf(theirs)).toMatchObject({
    providerId: other.providerId,
    requests: 5,
    totalUsdc: '500',
  })
})

test('behavior: leaves tab lines out unless they are requested, so that older readers keep working', async () => {
  await seed()
  expect(await download('', shop, '')).toEqual([])
})

test('behavior: a tab line does not verify as a receipt, and a receipt does not verify as a tab line', async () => {
  await seed()
  await seedPayment(gateway.database, { provider: seller(shop), acceptedAt: minutesAgo(30) })
  const lines = await download()
  const receipt = lines.find((line) => line.receipt !== undefined)?.receipt ?? ''
  const tabLine = lines.find((line) => line.tabLine !== undefined)?.tabLine ?? ''
  await expect(verifyReceipt(tabLine, jwks)).rejects.toMatchObject({ code: 'invalid_receipt' })
  await expect(verifyTabLine(receipt, jwks)).rejects.toMatchObject({ code: 'invalid_receipt' })
})

const splitOf = (provider: `0x${string}`) => encodeSplit({ provider, providerShare: 9n, platformShare: 1n })

/** Returns an auditor's verdict on a tab line after this state settled. */
function judge(
  claims: Awaited<ReturnType<typeof claimsOf>>,
  moved: [bigint, bigint],
  sequence: number,
  nonce: `0x${string}`,
) {
  const tab = {
    platform: seedPlatform,
    rewardShare: 500,
    sequence,
    lines: [
      { split: splitOf(shop.wallet), amount: moved[0] },
      { split: splitOf(other.wallet), amount: moved[1] },
    ],
  }
  const evidence = {
    kind: 'used' as const,
    authorizer: claims.payer,
    nonce,
    transfer: { to: seedTabSettlement, value: moved[0] + moved[1] },
    transactionHash: zeroHash,
    blockNumber: 1n,
    blockHash: zeroHash,
    blockTime: 1n,
    logIndex: 0,
    tab,
  }
  const facts = { token: seedToken, splitterFactory: seedToken, tabSettlement: seedTabSettlement }
  const head = { number: 100n, time: 1n }
  return judgeTabLine(claims, new Map([[nonce, [evidence]]]), { ...facts, confirmations: 1, head })
}

test('behavior: a tab line names the transaction that settled the tab, so that an auditor can compare the line with TabSettlement’s event', async () => {
  const tab = await seed()
  const txHash = await settleTab(gateway.database, tab)
  await gateway.database`insert into record_head (chain_id, block_number, read_number, block_time) values (31337, 200, 200, 1)
    on conflict (chain_id) do update set block_number = 200, read_number = 200`
  const [line] = await download()
  if (!line) throw new Error('no tab line')
  const claims = await claimsOf(line)
  expect(claims).toMatchObject({ status: 'settled', transactionHash: txHash })
  expect(claims.line.movedUsdc).toBeUndefined()
  expect(judge(claims, [2_000n, 500n], 25, tab.nonces[0])).toMatchObject({
    state: 'settled',
    reconciled: true,
  })
  expect(judge(claims, [1_999n, 500n], 25, tab.nonces[0])).toMatchObject({
    state: 'mismatch',
    reason: 'line',
  })
})

test('behavior: if another state of the tab was settled, a tab line has the amount that this state moved', async () => {
  const tab = await seed()
  await seedOlderState(gateway.database, tab, [1_600n, 0n])
  const [line] = await download()
  if (!line) throw new Error('no tab line')
  const claims = await claimsOf(line)
  expect(claims.line).toMatchObject({ signedUsdc: '2000', movedUsdc: '1600' })
  expect(judge(claims, [1_600n, 0n], 20, tab.nonces[0])).toMatchObject({
    state: 'mismatch',
    reason: 'line',
    isOtherState: true,
  })
})

test('behavior: a download continues after the cursor of any line, and contains each line once', async () => {
  const all = []
  for (let i = 0; i < 3; i++) all.push((await seed()).paymentId)
  await seedPayment(gateway.database, { provider: seller(shop), acceptedAt: minutesAgo(5) })
  const whole = await download()
  expect(new Set(whole.map(({ paymentId }) => paymentId)).size).toBe(4)
  for (const [index, { cursor }] of whole.entries())
    expect((await download(`&cursor=${cursor}`)).map(({ paymentId }) => paymentId)).toEqual(
      whole.slice(index + 1).map(({ paymentId }) => paymentId),
    )
})

test('behavior: lists a tab line in each period with sales on it, but not if filtered by endpoint or another status', async () => {
  await seed()
  const count = async (query: string) => (await download(query)).length
  expect(await count(`&to=${minutesAgo(50).toISOString()}`)).toBe(1)
  expect(await count(`&from=${minutesAgo(50).toISOString()}`)).toBe(1)
  expect(await count(`&to=${minutesAgo(150).toISOString()}`)).toBe(0)
  expect(await count(`&endpointId=${shop.endpointId}`)).toBe(0)
  expect(await count('&status=settled')).toBe(0)
  expect(await count('&status=verified')).toBe(1)
})

test('behavior: if another provider has the same wallet and shares, a tab line has both providers’ charges, and how much of them is the other provider’s', async () => {
  const twin = { ...seller(other), wallet: shop.wallet }
  await seed({
    sales: [
      { provider: seller(shop), requests: 10 },
      { provider: twin, requests: 5 },
    ],
  })
  const [line] = await download()
  const [theirs] = await download('', other)
  if (!line || !theirs) throw new Error('no tab line')
  expect(await claimsOf(line)).toMatchObject({
    totalUsdc: '1000',
    line: { chargedUsdc: '1500', othersUsdc: '500' },
  })
  expect(await claimsOf(theirs)).toMatchObject({
    totalUsdc: '500',
    line: { chargedUsdc: '1500', othersUsdc: '1000' },
  })
})
