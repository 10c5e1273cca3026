import { expect, onTestFinished, test } from 'vitest'
import { registerProvider } from '../../../apps/devstack/stack/registerProvider.ts'
import { desktop, phone, violationsInBothSchemes } from '../../support/browser.ts'
import { badSellers, goodSeller, type SellerKind, startSeller } from '../../support/sellers.ts'
import { call, type DeskTools } from './desk.ts'

const address = `0x${'7c'.repeat(20)}` as const

/** Adds tests of what a provider sees about its endpoints in the catalog. */
export function addCatalogTests(
  { gatewayUrl, signIn }: Pick<DeskTools, 'gatewayUrl' | 'signIn'>,
  token: () => string,
): void {
  /** Opens a provider with one endpoint, at a seller that the test can replace. */
  async function open(kind: SellerKind) {
    let current = kind
    const terms = { network: 'eip155:31337', asset: token(), payTo: address }
    const seller = await startSeller(
      (...options) =>
        (...exchange) =>
          current(...options)(...exchange),
      terms,
    )
    onTestFinished(seller.close)
    const provider = await registerProvider({
      gatewayUrl: gatewayUrl(),
      name: 'Tides',
      network: 'localhost',
      address,
      endpoints: [{ url: `${seller.url}/today`, usdcPerUnit: '0.01' }],
    })
    const [endpointId = ''] = provider.endpointIds
    return {
      ...provider,
      endpointId,
      become: (next: SellerKind) => {
        current = next
      },
    }
  }

  test.each([
    ['desktop', desktop],
    ['phone', phone],
  ])(
    'an endpoint’s page shows why the endpoint is listed last, and has a button that checks the endpoint again (%s)',
    async (_, options) => {
      const { apiKey, endpointId, become } = await open(badSellers.serves_unpaid)
      const page = await signIn(options, apiKey)
      await page.goto(`${gatewayUrl()}/dashboard/#/endpoints/${endpointId}`)
      const panel = page.getByRole('region', { name: 'In the catalog' })
      const check = panel.getByRole('button', { name: 'Check again' })
      await check.click()
      await panel.getByRole('status').getByText('Checked: 1 error, 0 warnings.').waitFor()
      await panel.getByText('Listed last').waitFor()
      await panel.getByText('Put the middleware in front of this route').first().waitFor()
      expect(await violationsInBothSchemes(page)).toEqual([])
      expect(
        await page.evaluate(
          () => document.documentElement.scrollWidth <= document.documentElement.clientWidth,
        ),
      ).toBe(true)

      become(goodSeller())
      await check.click()
      await panel.getByRole('status').getByText('Checked: no problems found.').waitFor()
      await panel.getByText('Listed', { exact: true }).waitFor()

      become(goodSeller({ offer: { amount: '20000' } }))
      await check.click()
      await panel.getByText(/Its 402 asks for 0.02 USDC, which the catalog shows/).waitFor()
    },
  )

  test('the list and the overview show why an endpoint is listed last, and a read-only key gets no button for a check', async () => {
    const { providerId, apiKey, endpointId } = await open(badSellers.blocked)
    const at = `${gatewayUrl()}/providers/${providerId}`
    await call(`${at}/endpoints/${endpointId}/check`, apiKey, 'POST')
    const { apiKey: reading } = await call<{ apiKey: string }>(`${at}/keys`, apiKey, 'POST', {
      scope: 'read',
    })
    const page = await signIn(desktop, reading)
    await page.getByText(/\/today is listed last in the catalog\. It answered 403/).waitFor()
    await page.getByRole('link', { name: 'Check again' }).click()
    const panel = page.getByRole('region', { name: 'In the catalog' })
    await panel.getByText('agents cannot solve its challenge pages').waitFor()
    expect(await panel.getByRole('button').count()).toBe(0)
    await page.goto(`${gatewayUrl()}/dashboard/#/endpoints`)
    await page.getByRole('row').filter({ hasText: '/today' }).getByText('Listed last').waitFor()
  })

  test('shows that the provider keeps an endpoint out of the catalog', async () => {
    const { providerId, apiKey, endpointId } = await open(goodSeller())
    const at = `${gatewayUrl()}/providers/${providerId}/endpoints/${endpointId}`
    await call(at, apiKey, 'PATCH', { listed: false }, '*')
    const page = await signIn(desktop, apiKey)
    await page.goto(`${gatewayUrl()}/dashboard/#/endpoints/${endpointId}`)
    const panel = page.getByRole('region', { name: 'In the catalog' })
    await panel.getByText('Not listed').waitFor()
    await panel.getByText('The endpoint is kept out of the catalog.').waitFor()
  })
}
