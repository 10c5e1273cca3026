import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { newBuyer, openShop, type Shop, type TestBuyer } from '../support/shop.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { randomHex, readBalance, sendDirectly, signAuthorization, tokenOf } from '../support/usdc.ts'

// Measures figures that docs/tabs.md publishes: the time until a tab closes after its wallet is emptied, and the amount bought in
// that time.

const rounds = 5

let stack: TestStack
let shop: Shop
beforeAll(async () => {
  stack = await startTestStack({ chain: { network: 'base-sepolia' } })
  shop = await openShop(stack, { usdcPerUnit: '0.005' })
})
afterAll(async () => {
  await shop?.close()
  await stack?.close()
})

test('behavior: if a buyer empties its wallet, the gateway allows purchases within the tab’s credit and then closes the tab', async () => {
  const measured: { closedAfterMs: number; boughtMeanwhile: bigint; lost: bigint }[] = []
  for (let round = 0; round < rounds; round++) {
    const buyer = await newBuyer(stack, '5', { tabs: true })
    const { client, address } = buyer
    await client.request(shop.url)
    const [tab] = await client.tabs()
    const read = async () => {
      const { body } = await stack.get(`/tabs/${tab?.id}`)
      return body as { chargedUsdc: string; closedAt: string | null }
    }
    const before = await read()
    const emptiedAt = await empty(buyer)
    // The buyer sends one request after another, as fast as it can, until it is refused or gets another tab.
    let refusal: unknown
    while (refusal === undefined && (await read()).closedAt === null) {
      await client.request(shop.url).catch((error: unknown) => {
        refusal = error
      })
    }
    await until('the tab is closed', async () => (await read()).closedAt !== null)
    const after = await read()
    const lost = parseUsdc(after.chargedUsdc)
    measured.push({
      closedAfterMs: Math.max(0, Date.parse(after.closedAt as string) - emptiedAt),
      boughtMeanwhile: lost - parseUsdc(before.chargedUsdc),
      lost,
    })
    expect(await readBalance(stack.rpc, tokenOf(stack.chain), address)).toBe(0n)
    expect(lost).toBeLessThanOrEqual(1_000_000n)
  }
  for (const { closedAfterMs, boughtMeanwhile, lost } of measured)
    process.stdout.write(
      `closed after ${closedAfterMs} ms; ${formatUsdc(boughtMeanwhile)} USDC bought in that time, ${formatUsdc(lost)} lost\n`,
    )
})

/**
 * The buyer transfers its whole balance to another account. A stranger submits the authorization, so the
 * buyer needs no gas money. @returns Unix milliseconds.
 */
async function empty({ address, privateKey }: TestBuyer): Promise<number> {
  const at = { network: networkByName(stack.chain.network), token: tokenOf(stack.chain) }
  const authorization = await signAuthorization(at, privateKeyToAccount(privateKey), {
    from: address,
    to: devAccount(14).address,
    value: await readBalance(stack.rpc, at.token, address),
    validAfter: 0n,
    validBefore: 4_000_000_000n,
    nonce: randomHex(32),
  })
  const hash = await sendDirectly(stack, authorization)
  await stack.rpc.waitForTransactionReceipt({ hash })
  return Date.now()
}
