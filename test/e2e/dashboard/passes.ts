import { expect, onTestFinished, test } from 'vitest'
import { desktop, phone, violationsInBothSchemes } from '../../support/browser.ts'
import { newBuyer, openShop } from '../../support/shop.ts'
import type { PaymentTools } from './payments.ts'

/** Tests the panels in which a provider sees the passes that it sold. */
export function addPassTests({ stack, signIn }: Pick<PaymentTools, 'stack' | 'signIn'>): void {
  test.each([
    ['desktop', desktop],
    ['phone', phone],
  ])('lists the passes of an endpoint, and shows the pass that a payment bought: %s', async (_, options) => {
    const pricing = { usdcPerUnit: '0.05', pass: { requests: 3, within: '1h' } } as const
    // Don't name this shop `Test API`: the operator's tests search for that name and expect only the scene's
    // provider.
    const shop = await openShop(stack(), { name: 'Sells passes', usdcPerUnit: '0.05', gate: { pricing } })
    onTestFinished(shop.close)
    const { client, address } = await newBuyer(stack(), '1')
    const { paymentId } = await client.request(shop.url)
    await client.request(shop.url)

    const page = await signIn(options, shop.apiKey)
    const at = (route: string) => `${stack().api.url}/dashboard/#/${route}`
    const requireFit = async () => {
      expect(await violationsInBothSchemes(page)).toEqual([])
      expect(
        await page.evaluate(
          () => document.documentElement.scrollWidth <= document.documentElement.clientWidth,
        ),
      ).toBe(true)
    }
    await page.goto(at(`endpoints/${shop.endpointIds[0]}`))
    const row = page.getByRole('region', { name: 'Recent passes' }).getByRole('row').nth(1)
    for (const text of ['valid', '2 of 3']) await row.getByText(text, { exact: true }).waitFor()
    await row.getByTitle(address.toLowerCase()).waitFor()
    await requireFit()

    await row.locator(`a[href="#/payments/${paymentId}"]`).click()
    const panel = page.getByRole('region', { name: 'Pass', exact: true })
    for (const text of ['valid', '2 of 3', 'the wallet that paid'])
      await panel.getByText(text, { exact: true }).waitFor()
    await requireFit()

    // This request is the last one that the pass covers.
    await client.request(shop.url)
    await page.reload()
    for (const text of ['used up', '3 of 3']) await panel.getByText(text, { exact: true }).waitFor()
  })
}
