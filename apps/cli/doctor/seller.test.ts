import { describe, expect, onTestFinished, test } from 'vitest'
import { useCliGateway } from '../../../test/support/cliGateway.ts'
import { call, openShop } from '../../../test/support/gateway.ts'
import {
  badSellers,
  goodSeller,
  requiredBy,
  type SellerKind,
  startSeller,
} from '../../../test/support/sellers.ts'

const cli = useCliGateway()

async function start(kind: SellerKind, payTo = `0x${'ab'.repeat(20)}`): Promise<string> {
  const { network, token } = cli.gateway.served
  const seller = await startSeller(kind, { network: network.caip2, asset: token, payTo })
  onTestFinished(seller.close)
  return `${seller.url}/today`
}

/**
 * Returns the status and the code of each printed finding. Omits `url_refused`, which is found for every seller of these tests
 * because they have private addresses.
 */
async function look(args: string[], env: Record<string, string> = {}) {
  const { status, stdout, stderr } = await cli.run(['doctor', ...args], env)
  const lines = stdout.split('\n').filter((line) => /^[✓!✗]/.test(line) && !line.includes('url_refused'))
  return { status, stdout, stderr, lines: lines.map((line) => line.split(/\s+/).slice(0, 2).join(' ')) }
}
const json = async (args: string[], env?: Record<string, string>) =>
  JSON.parse((await look([...args, '--json'], env)).stdout)

describe('tollkeeper doctor --seller', () => {
  test('needs no environment and no gateway, and warns that catalogs refuse a private address', async () => {
    const url = await start(goodSeller())
    const { status, stdout, lines } = await look(['--seller', url])
    expect(lines).toEqual([
      '✓ answers_402',
      '✓ challenge_readable',
      '✓ offer_usable',
      '✓ described',
      '✓ browsers_can_pay',
    ])
    expect(stdout).toMatch(/✗ url_refused +Catalogs refuse the URL: expected an https: URL, got http:/)
    expect([status, stdout]).toEqual([1, expect.stringContaining('A catalog does not list this URL')])
  })

  test.each(['serves_unpaid', 'blocked', 'unknown_network', 'headers_too_large'] as const)(
    'reports what is wrong, with advice: %s',
    async (code) => {
      const { status, stdout, lines } = await look(['--seller', await start(badSellers[code])])
      expect(lines.some((line) => line === `✗ ${code}` || line === `! ${code}`)).toBe(true)
      expect([status, stdout]).toEqual([1, expect.stringMatching(new RegExp(`${code} .*\\n +→ \\S`))])
    },
  )

  test('uses the given method', async () => {
    const url = await start((terms, at) => (request, response) => {
      if (request.method !== 'POST') response.writeHead(405).end()
      else goodSeller()(terms, at)(request, response)
    })
    expect((await look(['--seller', url])).lines).toEqual(['✗ method_not_allowed'])
    expect((await look(['--seller', url, '--method', 'PUT'])).lines).toContain('✓ answers_402')
  })

  test('prints JSON', async () => {
    const url = await start(badSellers.not_described)
    expect(await json(['--seller', url])).toMatchObject({
      well: false,
      url,
      method: 'GET',
      sent: 'GET',
      httpStatus: 402,
      isListableByX402: false,
      offers: [{ network: 'localhost', price_usdc: '0.010000' }],
      gateway: null,
      findings: expect.arrayContaining([
        {
          code: 'not_described',
          severity: 'warning',
          message: expect.any(String),
          advice: expect.any(String),
        },
      ]),
    })
  })

  test('escapes terminal control characters in the texts of a seller', async () => {
    const url = await start(
      (terms, at) => (_, response) =>
        void response
          .writeHead(402)
          .end(JSON.stringify({ ...requiredBy(terms, at()), accepts: [{ scheme: '\u001b[2Jgone' }] })),
    )
    const { stdout } = await look(['--seller', url])
    expect(stdout).not.toContain('\u001b[2J')
  })

  test.each([
    [['--method', 'POST'], /--seller: required with --method and --gateway/],
    [['--seller', 'tides'], /--seller.*expected an http\(s\) URL/],
    [['--seller', 'https://a.example', '--method', 'TRACE'], /--method/],
  ])('rejects %j', async (args, said) => {
    const { status, stderr } = await look(args)
    expect([status, stderr]).toEqual([2, expect.stringMatching(said)])
  })
})

describe('tollkeeper doctor --seller --gateway', () => {
  test('warns if the catalog does not list the URL', async () => {
    const url = await start(goodSeller())
    const { lines } = await look(['--seller', url, '--gateway', cli.url])
    expect(lines.at(-1)).toBe('! catalog')
  })

  test('reports whether the URL is listed and proven, and when it is checked next; with the provider’s key, also why the URL is hidden', async () => {
    const shop = await openShop(cli.gateway.app)
    const url = await start(goodSeller(), shop.wallet)
    const path = `/providers/${shop.providerId}/endpoints`
    const { body } = await call<{ endpointId: string }>(cli.gateway.app, 'POST', path, {
      key: shop.key,
      json: { url, method: 'GET', pricing: { usdcPerUnit: '0.01' }, walletId: shop.walletId },
    })
    await call(cli.gateway.app, 'POST', `${path}/${body.endpointId}/check`, { key: shop.key })
    const listed = async (env?: Record<string, string>) =>
      (await look(['--seller', url, '--gateway', cli.url], env)).stdout
    await expect
      .poll(() => listed(), { timeout: 12_000, interval: 500 })
      .toMatch(
        new RegExp(
          `✓ catalog +${body.endpointId} is listed at 0.010000 USDC, never paid in 30 days.\\n✓ proof +${body.endpointId} is proven: checked \\d\\S+, next \\d\\S+\\.`,
        ),
      )
    await call(cli.gateway.app, 'PATCH', `${path}/${body.endpointId}`, {
      key: shop.key,
      headers: { 'if-match': '*' },
      json: { listed: false },
    })
    const hidden = await listed({ TOLLKEEPER_API_KEY: shop.key })
    expect(hidden).toMatch(/✗ catalog +ep_\S+ is not listed: .* \(endpoint_unlisted\)\n +→ Run `tollkeeper/)
    expect(await listed()).toContain('does not have this URL')
  })

  test('reports a gateway that cannot be reached', async () => {
    const url = await start(goodSeller())
    const { status, stderr } = await look(['--seller', url, '--gateway', 'http://127.0.0.1:1'])
    expect([status, stderr]).toEqual([2, expect.stringMatching(/gateway_unreachable/)])
  })
})

describe('tollkeeper provider endpoint', () => {
  test('lists endpoints with their state in the catalog, checks a given endpoint, and names endpoints that share a path', async () => {
    const shop = await openShop(cli.gateway.app)
    const url = await start(badSellers.serves_unpaid, shop.wallet)
    const flags = ['--provider', shop.providerId, '--gateway', cli.url]
    const env = { TOLLKEEPER_API_KEY: shop.key }
    const run = async (args: string[]) => {
      const { status, stdout, stderr } = await cli.run(['provider', 'endpoint', ...args, ...flags], env)
      expect([status, stderr]).toEqual([0, ''])
      return stdout
    }
    const terms = ['--price', '0.01', '--method', 'GET', '--wallet', shop.walletId]
    const added = await run(['add', '--url', url, ...terms])
    const [id = ''] = /ep_\w+/.exec(added) ?? []
    expect(added).not.toContain('Other endpoints have')
    const other = await run(['add', '--url', url.replace('127.0.0.1', 'other.example'), ...terms])
    expect(other).toContain(
      `Other endpoints have the same path on another host: ${id} (${url}). Set publicUrl or endpointId`,
    )

    const checked = await run(['check', id])
    expect(checked).toMatch(
      /^✗ It answered 200 to a request without a payment, expected 402\.\n {2}→ Put the middleware/,
    )
    const list = await run(['list'])
    expect(list).toMatch(new RegExp(`${id} .*(listed last|not listed)`))
    expect(list).toMatch(
      new RegExp(`\\n${id}: (It answered 200 .* Put the middleware|It was changed just now)`),
    )
  })
})
