import { loopback, reservePort } from '@tollkeeper/runtime/port'
import type { Page, Route } from 'playwright-core'
import { expect, test } from 'vitest'
import { type RegisteredProvider, registerProvider } from '../../../apps/devstack/stack/registerProvider.ts'
import { desktop, phone, seriousViolations, violationsInBothSchemes } from '../../support/browser.ts'
import { codeIn, type ReceivedMail } from '../../support/mailServer.ts'
import { runCommand } from '../../support/processes.ts'

export type DeskTools = {
  gatewayUrl: () => string
  /**
   * URLs of further api processes of the same gateway: one requires a token to register and sends no mail, and the other has
   * closed registration.
   */
  furtherApis: () => { withToken: string; closed: string }
  /** Pays for one request, and returns the response. */
  buy: (url: string) => Promise<unknown>
  /** Opens a new tab at the sign-in page of a gateway. */
  open: (options: object, url?: string) => Promise<Page>
  /** Opens a new tab, signed in. */
  signIn: (options: object, key: string) => Promise<Page>
  /** The mails that the gateway has sent, oldest first. */
  mails: () => readonly ReceivedMail[]
  /** Declares lines in the console that the test causes on purpose. */
  expectErrors: (lines: RegExp) => void
}

const smallPhone = { ...phone, viewport: { width: 360, height: 740 } }
export const registrationToken = 'let-me-in-16-characters'
const address = `0x${'7a'.repeat(20)}` as const

/** Calls the gateway as the provider's own scripts would, outside the browser. */
export async function call<T>(
  url: string,
  key: string,
  method = 'GET',
  body?: object,
  version?: number | '*',
): Promise<T> {
  const response = await fetch(url, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      ...(version !== undefined && { 'if-match': version === '*' ? version : `"${version}"` }),
    },
    ...(body && { body: JSON.stringify(body) }),
  })
  if (!response.ok) throw new Error(`${method} ${url} answered ${response.status}: ${await response.text()}`)
  return (response.status === 204 ? undefined : await response.json()) as T
}

/** Adds tests of a provider's settings. The tests share a browser and a gateway, and each test registers a separate provider. */
export function addDeskTests(tools: DeskTools): void {
  const { gatewayUrl, open, signIn, expectErrors } = tools
  const register = (name: string, paths: string[] = []): Promise<RegisteredProvider> =>
    registerProvider({
      gatewayUrl: gatewayUrl(),
      name,
      network: 'localhost',
      address,
      endpoints: paths.map((path) => ({ url: `https://api.example${path}`, usdcPerUnit: '0.01' })),
    })
  const go = async (page: Page, route: string, title: string) => {
    await page.goto(`${gatewayUrl()}/dashboard/#/${route}`)
    await page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor()
  }
  const button = (page: Page, name: string | RegExp) => page.getByRole('button', { name })
  const row = (page: Page, text: string) => page.getByRole('row').filter({ hasText: text })

  test('default: guides a provider from registration to the first payment, using the code shown on the page', async () => {
    const page = await open(smallPhone)
    await page.getByRole('link', { name: 'Sell your API.' }).click()
    await button(page, 'Register').click()
    expectErrors(/status of 4\d\d/)
    await expect.poll(() => page.getByLabel('Name').getAttribute('aria-invalid')).toBe('true')
    expect(await seriousViolations(page)).toEqual([])
    await page.getByLabel('Name').fill('Weather')
    await button(page, 'Register').click()
    const apiKey = (await page.getByText(/^tk_/).textContent()) ?? ''
    expect(await seriousViolations(page)).toEqual([])
    await button(page, 'I have stored it').click()

    await page.getByLabel('Address').fill(address)
    await button(page, 'Register the wallet').click()
    const port = await reservePort()
    const url = `http://${loopback}:${port}/cities/:city`
    await page.getByLabel('URL').fill(url)
    await page.getByLabel(/^Price/).fill('0.02')
    await button(page, 'Add the endpoint').click()
    await page.getByText('Waiting for the first payment').waitFor()
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360)
    expect(await violationsInBothSchemes(page)).toEqual([])

    const sellAs = async (framework: 'Hono' | 'Express') => {
      await page.getByRole('radio', { name: framework }).check()
      const code = (await page.getByRole('region', { name: 'Middleware' }).textContent()) ?? ''
      expect(code.toLowerCase()).toContain(framework.toLowerCase())
      const shop = runCommand(
        ['node', '--conditions=@tollkeeper/source', '--input-type=module', '--eval', code],
        { TOLLKEEPER_API_KEY: apiKey },
      )
      try {
        const sold = `http://${loopback}:${port}/cities/oslo`
        await expect.poll(async () => (await fetch(sold).catch(() => undefined))?.status).toBe(402)
        expect(await tools.buy(sold)).toEqual({ paid: expect.stringMatching(/^pay_/) })
      } finally {
        shop.child.kill()
        await shop.exited
      }
    }
    await sellAs('Hono')
    await page.getByText('You received your first payment').waitFor()
    await sellAs('Express')
    expect(
      await page.evaluate(() => [...document.querySelectorAll('.steps > li')].map((li) => li.className)),
    ).toEqual(Array(5).fill('done'))
  })

  test('args: supports registration with a token, and closed registration', async () => {
    const { withToken, closed } = tools.furtherApis()
    let page = await open(desktop, withToken)
    await page.getByRole('link', { name: 'Sell your API.' }).click()
    await page.getByLabel('Name').fill('Invited')
    await page.getByLabel('Registration token').fill('a-wrong-one')
    await button(page, 'Register').click()
    expectErrors(/status of 401/)
    await page.getByRole('alert').getByText('Send the operator’s token').waitFor()
    await page.getByLabel('Registration token').fill(registrationToken)
    await button(page, 'Register').click()
    const apiKey = (await page.getByText(/^tk_/).textContent()) ?? ''
    // This gateway sends no mail, so there is no code to ask for.
    const { providerId } = await call<{ providerId: string }>(`${withToken}/account`, apiKey)
    await call(`${withToken}/providers/${providerId}`, apiKey, 'PATCH', { contact: 'ops@invited.example' }, 1)
    await button(page, 'I have stored it').click()
    await page.goto(`${withToken}/dashboard/#/developers/provider`)
    await page.getByText('not confirmed, so no mail is sent').waitFor()
    expect(await button(page, 'Confirm the contact').count()).toBe(0)
    await page.context().close()

    page = await open(desktop, closed)
    await page.goto(`${closed}/dashboard/#/start`)
    await page.getByText('Registration is closed here').waitFor()
    expect(await seriousViolations(page)).toEqual([])
  })

  test('default: registers, changes and disables an endpoint by keyboard alone, and rejects a conflicting endpoint', async () => {
    const { apiKey } = await register('Weather', ['/taken'])
    const page = await signIn(desktop, apiKey)
    await go(page, 'endpoints', 'Endpoints')
    await row(page, '/taken').waitFor()
    const { keyboard } = page
    const focused = () =>
      page.evaluate(() => {
        const at = document.activeElement as HTMLInputElement
        return at.labels?.[0]?.textContent ?? at.textContent ?? ''
      })
    const tabTo = async (name: RegExp) => {
      for (let presses = 0; presses < 40; presses++) {
        if (name.test(await focused())) return
        await keyboard.press('Tab')
      }
      throw new Error(`Tab never came to ${name}`)
    }
    await tabTo(/^Add an endpoint$/)
    await keyboard.press('Enter')
    await page.getByRole('dialog', { name: 'Add an endpoint' }).waitFor()
    await tabTo(/^URL$/)
    await keyboard.type('https://api.example/taken')
    await tabTo(/^Price/)
    await keyboard.type('0.02')
    await keyboard.press('Enter')
    // The error is shown at the field that has the focus.
    expectErrors(/status of (409|422)/)
    await page.getByRole('alert').getByText('Endpoint is registered already').waitFor()
    await expect.poll(focused).toBe('URL')
    const described = await page.getByLabel('URL').getAttribute('aria-describedby')
    expect(await page.locator(`[id="${described?.split(' ')[0]}"]`).textContent()).toContain(
      'Endpoint is registered already',
    )
    expect(await seriousViolations(page)).toEqual([])
    await keyboard.press('ControlOrMeta+A')
    await keyboard.type('https://api.example/forecast/:city')
    await keyboard.press('Enter')
    await page.getByRole('status').getByText('The endpoint is registered.').waitFor()
    await row(page, '/forecast/:city').getByText('on sale').waitFor()
    await expect.poll(focused).toBe('Add an endpoint')

    await tabTo(/^Edit https:\/\/api.example\/forecast/)
    await keyboard.press('Enter')
    await tabTo(/^Price/)
    await keyboard.press('ControlOrMeta+A')
    await keyboard.type('0')
    await keyboard.press('Enter')
    await page.getByText('The minimum price on localhost is').waitFor()
    await expect.poll(focused).toMatch(/^Price/)
    await keyboard.press('ControlOrMeta+A')
    await keyboard.type('0.05')
    await keyboard.press('Enter')
    await row(page, '/forecast/:city').getByText('0.05', { exact: true }).waitFor()

    await tabTo(/^Disable https:\/\/api.example\/forecast/)
    await keyboard.press('Enter')
    await page.getByRole('dialog', { name: 'Disable this endpoint?' }).waitFor()
    await keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await expect.poll(focused).toMatch(/^Disable/)
    await keyboard.press('Enter')
    await tabTo(/^Disable it$/)
    await keyboard.press('Enter')
    await row(page, '/forecast/:city').getByText('disabled').waitFor()
  })

  test('behavior: if someone else has changed the endpoint in the meantime, shows that change and keeps both changes', async () => {
    const { providerId, endpointIds, apiKey } = await register('Two people', ['/shared'])
    const url = `${gatewayUrl()}/providers/${providerId}/endpoints/${endpointIds[0]}`
    const page = await signIn(desktop, apiKey)
    await go(page, 'endpoints', 'Endpoints')
    await button(page, /^Edit/).click()
    await page.getByLabel('Description').fill('Mine')
    await call(url, apiKey, 'PATCH', { pricing: { usdcPerUnit: '0.07' }, mimeType: 'text/csv' }, 1)
    expectErrors(/status of 412/)
    await button(page, 'Save').click()
    const meanwhile = page.getByRole('region', { name: 'Changed meanwhile' })
    await meanwhile.getByText('0.070000 USDC').waitFor()
    expect(await meanwhile.getByRole('term').allTextContents()).toEqual(['Content type', 'Price'])
    expect(await page.getByLabel(/^Price/).inputValue()).toBe('0.07')
    expect(await page.getByLabel('Description').inputValue()).toBe('Mine')
    expect(await seriousViolations(page)).toEqual([])
    await button(page, 'Save').click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(await call(url, apiKey)).toMatchObject({
      version: 3,
      pricing: { usdcPerUnit: '0.070000' },
      mimeType: 'text/csv',
      description: 'Mine',
    })
  })

  test('behavior: adds a wallet, replaces it in its endpoints, and retires it', async () => {
    const { apiKey } = await register('Payee', ['/paid'])
    const page = await signIn(desktop, apiKey)
    await go(page, 'developers/wallets', 'Wallets')
    await button(page, 'Add a wallet').click()
    await page.getByLabel('Address').fill('0x71C7656EC7ab88b098defB751B7401B5f6d8976f')
    expectErrors(/status of (409|422|400)/)
    await button(page, 'Add the wallet').click()
    await page.getByText('wrong EIP-55 checksum').waitFor()
    await page.getByLabel('Address').fill(`0x${'8b'.repeat(20)}`)
    await button(page, 'Add the wallet').click()
    await page.getByText('The wallet is registered.').waitFor()

    await row(page, '0x7a7a').getByRole('button', { name: 'Retire' }).click()
    await button(page, 'Retire it').click()
    await page.getByRole('alert').getByText('Replace it instead').waitFor()
    await button(page, 'Cancel').click()
    await row(page, '0x7a7a').getByRole('button', { name: 'Replace' }).click()
    await page.getByLabel('New address').fill(`0x${'8b'.repeat(20)}`)
    await button(page, 'Replace it').click()
    await page.getByText('The wallet is replaced in 1 endpoint.').waitFor()
    await row(page, '0x7a7a').getByText('retired').waitFor()
    await row(page, '0x8b8b').getByRole('cell', { name: '1', exact: true }).waitFor()
  })

  test('behavior: shows a new key only once, and asks before revoking the last key', async () => {
    const { providerId, apiKey } = await register('Keys')
    const page = await signIn(desktop, apiKey)
    await go(page, 'developers/keys', 'API keys')
    await button(page, 'Issue a key').click()
    await page.getByLabel('Label').fill('Server 2')
    await button(page, 'Issue it').click()
    const shown = page.getByRole('dialog', { name: 'Your new API key' })
    const secret = (await shown.getByText(/^tk_/).textContent()) ?? ''
    expect(await seriousViolations(page)).toEqual([])
    await page.keyboard.press('Escape')
    expect(await shown.isVisible()).toBe(true)
    expect(await call(`${gatewayUrl()}/account`, secret)).toMatchObject({ providerId })
    await button(page, 'I have stored it').click()
    await row(page, 'Server 2').waitFor()
    expect(await page.content()).not.toContain(secret.replace(/^tk_[0-9a-f]+_/, ''))

    await row(page, 'Server 2').getByRole('button', { name: 'Revoke' }).click()
    await button(page, 'Revoke it').click()
    await row(page, 'Server 2').getByText('revoked', { exact: true }).waitFor()
    await row(page, 'you are signed in with this key').getByRole('button', { name: 'Revoke' }).click()
    await page.getByRole('dialog', { name: 'Revoke your last key?' }).waitFor()
    await button(page, 'Revoke it and lock myself out').click()
    await page.getByText('You revoked the API key that you were signed in with.').waitFor()
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0)
  })

  test('behavior: adds a webhook with a secret that is shown once, rotates the secret and deletes the webhook', async () => {
    const { apiKey } = await register('Told')
    const page = await signIn(desktop, apiKey)
    await go(page, 'developers/webhooks', 'Webhooks')
    await button(page, 'Add a webhook').click()
    await page.getByLabel('URL').fill('ftp://api.example/hook')
    expectErrors(/status of 422/)
    await button(page, 'Add the webhook').click()
    await page.getByRole('alert').getByText('This URL cannot receive webhooks').waitFor()
    await page.getByLabel('URL').fill('https://1.1.1.1/hook')
    await page.getByLabel('A batch is final').uncheck()
    await button(page, 'Add the webhook').click()
    const secretOf = async () => {
      const shown = page.getByRole('dialog', { name: 'The webhook’s secret' })
      const secret = await shown.getByText(/^whsec_/).textContent()
      await button(page, 'I have stored it').click()
      return secret
    }
    const first = await secretOf()
    const events = row(page, 'https://1.1.1.1/hook').getByRole('cell').nth(1)
    expect(await events.textContent()).toMatch(/^payment.settled, payment.reverted, .*, settlement.failing, /)
    expect(await events.textContent()).not.toContain('batch.confirmed')
    await button(page, /^Rotate the secret of/).click()
    await button(page, 'Rotate it').click()
    expect(await secretOf()).not.toBe(first)
    await page.getByRole('link', { name: 'https://1.1.1.1/hook' }).click()
    await page.getByText('Previous secret expires').waitFor()
    await page.getByText('No messages yet.').waitFor()
    await page.getByRole('link', { name: 'Webhooks' }).click()
    await button(page, /^Delete/).click()
    await button(page, 'Delete it').click()
    await page.getByRole('heading', { name: 'No webhook yet' }).waitFor()
  })

  test('behavior: shows a change at once, although an earlier read is still in progress', async () => {
    const { apiKey } = await register('Slow to read')
    const page = await signIn(desktop, apiKey)
    await page.clock.install()
    await go(page, 'developers/webhooks', 'Webhooks')
    await page.getByText('No webhook yet').waitFor()
    const begun = new Promise<Route>((resolve) => {
      let isFirst = true
      page.route('**/webhooks', (route) => {
        if (route.request().method() !== 'GET' || !isFirst) return route.continue()
        isFirst = false
        resolve(route)
      })
    })
    await page.clock.fastForward(5_000)
    const read = await begun
    const answer = await read.fetch()
    await button(page, 'Add a webhook').click()
    await page.getByLabel('URL').fill('https://1.1.1.1/hook')
    await button(page, 'Add the webhook').click()
    await button(page, 'I have stored it').click()
    // From here on, the page reads only after a change, not because time passes.
    await page.clock.pauseAt((await page.evaluate(() => Date.now())) + 60_000)
    await read.fulfill({ response: answer })
    await row(page, 'https://1.1.1.1/hook').waitFor()
  })

  test('behavior: registers a server to sell without code, and shows its secret only once', async () => {
    const { apiKey } = await register('No code')
    const page = await signIn(desktop, apiKey)
    await go(page, 'developers/upstream', 'Without code')
    expectErrors(/status of (404|422)/)
    await button(page, 'Register your server').click()
    await page.getByLabel('URL').fill('https://1.1.1.1/v2?key=1')
    await button(page, 'Save').click()
    await page.getByText('expected a URL without query or fragment').waitFor()
    await page.getByLabel('URL').fill('https://1.1.1.1/v2')
    await button(page, 'Save').click()
    const shown = page.getByRole('dialog', { name: 'Your server’s secret' })
    await shown.getByText(/^upsec_/).waitFor()
    await button(page, 'I have stored it').click()
    await page.getByText('https://1.1.1.1/v2', { exact: true }).waitFor()
    expect(await seriousViolations(page)).toEqual([])

    await go(page, 'endpoints', 'Endpoints')
    await button(page, 'Add an endpoint').click()
    await page.getByLabel('URL').fill('/forecast')
    await page.getByLabel(/^Price/).fill('0.01')
    await button(page, 'Add the endpoint').click()
    await page
      .getByText(/\/p\/prov_[0-9a-f]{32}\/forecast$/)
      .first()
      .waitFor()
    await go(page, 'start', 'First steps')
    await page.getByText('Nothing to install').waitFor()

    await go(page, 'developers/upstream', 'Without code')
    await button(page, 'Remove it').click()
    await page.getByRole('dialog').getByRole('button', { name: 'Remove it' }).click()
    await page.getByText('No server yet').waitFor()
  })

  test('behavior: changes and disables the provider, and shows in the history who changed what', async () => {
    const { apiKey } = await register('Old name', ['/one'])
    const page = await signIn(desktop, apiKey)
    await go(page, 'developers/provider', 'Provider')
    await button(page, 'Change').click()
    await page.getByLabel('Name', { exact: true }).fill('New name')
    await page.getByLabel('Contact').fill('ops@weather.example')
    await button(page, 'Save').click()
    await page.getByText('not confirmed, so no mail is sent').waitFor()
    await page.getByRole('banner').getByText('New name').waitFor()
    await button(page, 'Confirm the contact').click()
    const code = page.getByLabel('Code', { exact: true })
    const confirm = page.getByRole('dialog').getByRole('button', { name: 'Confirm', exact: true })
    await code.fill('a-guess')
    expectErrors(/status of 422/)
    await confirm.click()
    await expect.poll(() => code.getAttribute('aria-invalid')).toBe('true')
    await button(page, 'Send me a code').click()
    await page.getByRole('status').getByText('A code was mailed.').waitFor()
    expect(await seriousViolations(page)).toEqual([])
    const mail = tools.mails().at(-1)
    expect(mail?.to).toEqual(['ops@weather.example'])
    await code.fill(codeIn(mail))
    await confirm.click()
    await page.getByRole('status').getByText('The contact is confirmed.').waitFor()
    await page.getByText('confirmed', { exact: true }).waitFor()
    expect(await button(page, 'Confirm the contact').count()).toBe(0)
    await button(page, 'Disable everything').click()
    await page.getByRole('dialog').getByRole('button', { name: 'Disable everything' }).click()
    await page.getByText('All your endpoints are disabled.').waitFor()
    await button(page, 'Enable again').click()
    await page.getByRole('dialog').getByRole('button', { name: 'Enable again' }).click()
    await page.getByText('on sale', { exact: true }).waitFor()
    await page.getByRole('link', { name: 'History' }).click()
    const items = page.getByRole('listitem')
    await expect.poll(() => items.count()).toBe(8)
    const texts = await items.allTextContents()
    expect(texts[2]).toMatch(/^Provider changed.*Contact confirmed– → {2}became \w/)
    expect(texts[3]).toMatch(
      /^Provider changed.*by key_.*NameOld name → {2}became New nameContact– → {2}became ops@weather.example$/,
    )
    expect(texts[7]).toMatch(/^Provider registered/)
  })

  test('error: shows markup in names, URLs and descriptions as text in every settings view, also on a small phone', async () => {
    const markup = '<img src=x onerror="globalThis.broken=1">'
    const { providerId, apiKey, endpointIds } = await register(`Evil ${markup}`, ['/x'])
    const at = `${gatewayUrl()}/providers/${providerId}`
    await call(
      `${at}/endpoints/${endpointIds[0]}`,
      apiKey,
      'PATCH',
      { description: markup, url: `https://api.example/${'very-long-'.repeat(12)}` },
      1,
    )
    await call(`${at}/keys`, apiKey, 'POST', { label: `${markup}${'w'.repeat(80)}` })
    await call(at, apiKey, 'PATCH', { contact: `javascript:alert(1)//${markup}` }, 1)
    const { webhookId } = await call<{ webhookId: string }>(`${at}/webhooks`, apiKey, 'POST', {
      url: `https://1.1.1.1/?q=${encodeURIComponent(markup)}`,
      description: markup,
    })
    const page = await signIn(smallPhone, apiKey)
    // No server is registered.
    expectErrors(/status of 404/)
    for (const [route, title] of [
      ['endpoints', 'Endpoints'],
      ['wallets', 'Wallets'],
      ['keys', 'API keys'],
      ['upstream', 'Without code'],
      ['hook', 'Acceptance hook'],
      ['webhooks', 'Webhooks'],
      [`webhooks/${webhookId}`, 'Webhook'],
      ['provider', 'Provider'],
      ['history', 'History'],
    ] as const) {
      await go(page, route === 'endpoints' ? route : `developers/${route}`, title)
      await page.getByText('Live', { exact: true }).waitFor()
      if (route === 'history') {
        await page.locator('main details').evaluateAll((all) => {
          for (const one of all) (one as HTMLDetailsElement).open = true
        })
      }
      if (!['wallets', 'upstream', 'hook'].includes(route))
        await page.getByText(markup).filter({ visible: true }).first().waitFor()
      expect([route, await page.evaluate(() => document.documentElement.scrollWidth)]).toEqual([route, 360])
      expect([route, await violationsInBothSchemes(page)]).toEqual([route, []])
    }
    expect(await page.locator('img, a[href^="javascript:"]').count()).toBe(0)
    expect(await page.evaluate(() => 'broken' in globalThis)).toBe(false)
  })
}
