import { fileURLToPath } from 'node:url'
import { serve } from '@tollkeeper/runtime/serve'
import { build } from 'esbuild'
import type { Page } from 'playwright-core'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { expect, onTestFinished, test } from 'vitest'
import { injectWallet } from '../../support/injectWallet.ts'
import { openShop, type Shop } from '../../support/shop.ts'
import type { TestStack } from '../../support/stack.ts'
import { tokenOf } from '../../support/usdc.ts'
import type { PayingPage, Terms } from './payingPage.ts'

export type PayingPageTools = {
  stack: () => TestStack
  /** Opens a tab on a page that is neither the gateway's nor the seller's. */
  visit: (url: string) => Promise<Page>
  expectErrors: (lines: RegExp) => void
}

async function bundlePage(): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL('payingPage.ts', import.meta.url))],
    bundle: true,
    format: 'iife',
    platform: 'browser',
    conditions: ['@tollkeeper/source'],
    write: false,
  })
  return outputFiles[0]?.text ?? ''
}

/**
 * Adds tests of a buyer's page, whose origin differs from those of the gateway, the facilitator and the
 * seller.
 */
export function addPayingPageTests({ stack, visit, expectErrors }: PayingPageTools): void {
  const account = privateKeyToAccount(generatePrivateKey())
  let script: Promise<string> | undefined

  async function openPage() {
    const { chain, api, keeper } = stack()
    script ??= bundlePage()
    const [content, site] = await Promise.all([
      script,
      serve(
        { fetch: () => new Response('', { headers: { 'content-type': 'text/html' } }) },
        { host: '127.0.0.1', port: 0, portVariable: 'PORT' },
      ),
      chain.mintUsdc([account.address], 1_000_000n),
    ])
    onTestFinished(() => site.close())
    const page = await visit(`http://127.0.0.1:${site.port}`)
    const wallet = await injectWallet(page, account, chain.chainId)
    await page.addScriptTag({ content })
    // The browser's console reports each 402.
    expectErrors(/status of 402/)
    const terms: Terms = {
      gatewayUrl: api.url,
      facilitatorUrl: keeper.url,
      network: chain.network,
      chainId: chain.chainId,
      usdcAddress: tokenOf(chain),
    }
    const run = <Method extends keyof PayingPage>(method: Method, { url }: Shop) =>
      page.evaluate(`page.${method}(${JSON.stringify(url)}, ${JSON.stringify(terms)})`) as ReturnType<
        PayingPage[Method]
      >
    return { run, wallet }
  }

  async function openShopFor(framework: 'hono' | 'express' | 'fetch', crossOrigin = true): Promise<Shop> {
    const shop = await openShop(stack(), { usdcPerUnit: '0.02', framework, crossOrigin })
    onTestFinished(() => shop.close())
    return shop
  }

  test('behavior: a page of another origin can pay with its user’s wallet and request settlement', async () => {
    const { run, wallet } = await openPage()
    const shop = await openShopFor('hono')
    const bought = await run('buy', shop)
    // The page verified the receipt with the keys that the gateway publishes.
    expect(bought).toEqual({
      refused: 'wallet_on_another_chain',
      data: expect.objectContaining({ verified: true, paymentId: bought.paymentId }),
      paymentId: expect.stringMatching(/^pay_/),
      signatures: 2,
    })
    expect(wallet.asked.filter((method) => method === 'wallet_switchEthereumChain').length).toBe(1)
    const { body } = await stack().get(`/payments/${bought.paymentId}`)
    expect(body).toMatchObject({ payment_status: 'verified', payer: account.address.toLowerCase() })

    const { paymentId, paymentTxHash } = await run('settle', shop)
    expect(paymentTxHash).toMatch(/^0x[0-9a-f]{64}$/)
    await expect
      .poll(async () => (await stack().get(`/payments/${paymentId}`)).body.payment_status)
      .toBe('settled')
    expect(shop.served()).toBe(2)
  })

  test('behavior: the page can read the paid response and its receipt from each middleware that allows its origin', async () => {
    const { run, wallet } = await openPage()
    const frameworks = ['hono', 'express', 'fetch'] as const
    const shops = await Promise.all(frameworks.map((framework) => openShopFor(framework)))
    await run('buy', shops[0] as Shop)
    for (const [index, framework] of frameworks.entries()) {
      const { status, body, headers } = await run('fetch', shops[index] as Shop)
      expect([framework, status, body]).toEqual([framework, 200, expect.objectContaining({ verified: true })])
      expect(headers).toEqual(
        expect.arrayContaining(['service-payment-id', 'service-payment-status', 'service-receipt']),
      )
    }
    const signed = wallet.asked.length
    expectErrors(/status of 402|CORS|ERR_FAILED/)
    await expect(run('fetch', await openShopFor('express', false))).rejects.toThrow(/Failed to fetch/)
    // The page couldn't read the challenge, so it signed nothing.
    expect(wallet.asked.slice(signed)).toEqual(['eth_requestAccounts'])
  })
}
