import type { Page } from 'playwright-core'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { expect, test } from 'vitest'
import { desktop, seriousViolations, violationsInBothSchemes } from '../../support/browser.ts'
import { injectWallet } from '../../support/injectWallet.ts'
import type { TestStack } from '../../support/stack.ts'
import { call } from './desk.ts'
import type { Scene } from './scene.ts'

export type RefundTools = {
  stack: () => TestStack
  scene: () => Scene
  signIn: (options: object) => Promise<Page>
  expectErrors: (lines: RegExp) => void
}

const account = privateKeyToAccount(generatePrivateKey())

/** Adds tests of refunds from the provider's own wallet. */
export function addRefundTests({ stack, scene, signIn, expectErrors }: RefundTools): void {
  test('behavior: refunds a settled payment with the wallet in the browser, up to what was paid', async () => {
    const { chain, api } = stack()
    const { shop, settled } = scene()
    await chain.mintUsdc([account.address], 1_000_000n)
    const wallets = `${api.url}/providers/${shop.providerId}/wallets`
    await call(wallets, shop.apiKey, 'POST', { network: chain.network, address: account.address })
    const page = await signIn(desktop)
    const { asked } = await injectWallet(page, account, chain.chainId, 1)
    // A reload would remove the wallet from the page.
    await page.evaluate((id) => {
      location.hash = `#/payments/${id}`
    }, settled[0])
    const panel = page.getByRole('region', { name: 'Refunds' })
    await panel.getByText('No refunds.').waitFor()
    await panel.getByRole('button', { name: 'Refund' }).click()
    await page.getByLabel('Amount, in USDC').fill('0.0061234')
    await page.getByLabel('From your wallet').selectOption(account.address.toLowerCase())
    const refund = page.getByRole('button', { name: 'Sign and refund' })
    await refund.click()
    await expect.poll(() => page.getByLabel('Amount, in USDC').getAttribute('aria-invalid')).toBe('true')
    expect(asked).toEqual([])

    // The page doesn't check the amount; the gateway rejects an amount above the payment's.
    await page.getByLabel('Amount, in USDC').fill('0.02')
    await refund.click()
    await page.getByRole('alert').getByText('You declined in your wallet.').waitFor()
    expectErrors(/status of 422/)
    await refund.click()
    await page.getByRole('alert').getByText('Refunds would exceed the payment').waitFor()
    expect(await seriousViolations(page)).toEqual([])

    await page.getByLabel('Amount, in USDC').fill('0.006')
    await refund.click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await panel.getByText('0.006 USDC').waitFor()
    await panel.getByText('queued').waitFor()
    expect(asked).toContain('wallet_switchEthereumChain')
    const { body } = await stack().get(`/payments/${settled[0]}`)
    expect(body.refunds).toMatchObject([{ valueUsdc: '6000', from: account.address.toLowerCase() }])
    expect(await violationsInBothSchemes(page)).toEqual([])
  })

  test('args: shows the refund command if the browser has no wallet, and offers no refund for an unsettled payment', async () => {
    const { shop, settled, waiting } = scene()
    const page = await signIn(desktop)
    await page.goto(`${stack().api.url}/dashboard/#/payments/${settled[1]}`)
    await page.getByRole('region', { name: 'Refunds' }).getByRole('button', { name: 'Refund' }).click()
    const whose = `${settled[1]} --provider ${shop.providerId} --number 1 --gateway ${stack().api.url}`
    await page.getByText(`npx --no-install tollkeeper provider refund ${whose}`, { exact: true }).waitFor()
    const left =
      /^Gas: [\d.]+ USD of [\d.]+ USD is left today for your refunds, and this one reserves [\d.]+ USD\./
    await page.getByRole('dialog').getByText(left).waitFor()
    expect(await seriousViolations(page)).toEqual([])
    await page.keyboard.press('Escape')
    // A response as if earlier refunds of the day had used up the allowance.
    await page.route('**/refunds', async (route) => {
      const response = await route.fetch()
      const answer = await response.json()
      await route.fulfill({
        response,
        json: { ...answer, gas: { ...answer.gas, neededUsdc: '10000', leftUsdc: '9999' } },
      })
    })
    await page.reload()
    await page.getByRole('region', { name: 'Refunds' }).getByRole('button', { name: 'Refund' }).click()
    await page.getByRole('dialog').getByText('This refund would be refused. Try again').waitFor()
    expect(await seriousViolations(page)).toEqual([])
    await page.keyboard.press('Escape')
    await page.goto(`${stack().api.url}/dashboard/#/payments/${waiting[0]}`)
    await page.getByText('verified in this browser').waitFor()
    expect(await page.getByRole('region', { name: 'Refunds' }).count()).toBe(0)
  })
}
