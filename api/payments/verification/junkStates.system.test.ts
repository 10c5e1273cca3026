import { expect, test } from 'vitest'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../../test/support/tabUpkeep.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway)

const junkStates = 10_000
const atOnce = 50

test('behavior: after 10,000 junk states of its tab, an honest request is served, and the tab settles exactly what was bought', async () => {
  const tab = openTab(gateway, await gateway.buyer(5_000_000n))
  expect((await tab.buy(shop)).status).toBe(200)
  const honest = await tab.sign(shop)
  const stored = await tab.sign(shop, { sequence: 1 })
  // Each kind of junk is refused for a different reason.
  const junk = [
    () => ({ ...honest, tab: { ...honest.tab, signature: randomHex(65) } }),
    (n: number) => ({ ...honest, tab: { ...honest.tab, sequence: 1_000 + n } }),
    () => ({ ...honest, tab: { ...honest.tab, splits: [randomHex(32)] } }),
    () => stored,
  ]
  const codes = new Map<string, number>()
  for (let sent = 0; sent < junkStates; sent += atOnce) {
    const answers = await Promise.all(
      Array.from({ length: atOnce }, (_, n) =>
        tab.present((junk[(sent + n) % junk.length] as (typeof junk)[number])(sent + n)),
      ),
    )
    for (const { body } of answers) {
      const code = body.code ?? 'verified'
      codes.set(code, (codes.get(code) ?? 0) + 1)
    }
  }
  expect(codes.get('verified')).toBeUndefined()
  expect((await tab.present(honest)).status).toBe(200)
  const { body } = await tab.read()
  expect(body).toMatchObject({ requests: 2, chargedUsdc: '0.100000' })
  await openTabUpkeep(gateway, Date.now() + 360_000).closeAndTake()
  const [payment] = await gateway.database`select price from payment where id = ${body.paymentId as string}`
  expect(payment).toEqual({ price: 100_000n })
}, 300_000)
