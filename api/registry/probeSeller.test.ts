import { type FindingCode, sellerFindings } from '@tollkeeper/ledger/discovery/sellerFindings'
import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { describe, expect, onTestFinished, test } from 'vitest'
import {
  badSellers,
  goodSeller,
  type RunningSeller,
  startExpiredSeller,
  startNoHttp,
  startSeller,
  startSlowSeller,
} from '../../test/support/sellers.ts'
import { probeThoroughly } from './probeSeller.ts'

const { base } = networks
const terms = { network: base.caip2, asset: base.usdc ?? '', payTo: `0x${'ab'.repeat(20)}` }
const options = {
  guard: createAddressGuard({ allowPrivate: true }),
  networks: [{ network: base, token: base.usdc }],
  timeoutMs: 1_000,
}
async function probe(starting: Promise<RunningSeller>, path = '/today', method = 'GET') {
  const seller = await starting
  onTestFinished(seller.close)
  const { httpStatus, report } = await probeThoroughly({ url: seller.url + path, method }, options)
  return { httpStatus, report, codes: report.findings.map(({ code }) => code) }
}
const severities = (codes: readonly FindingCode[]) =>
  new Set(codes.map((code) => sellerFindings[code].severity))

test('finds nothing wrong with a good seller', async () => {
  const { httpStatus, codes, report } = await probe(startSeller(goodSeller(), terms))
  expect(codes).toEqual([
    'answers_402',
    'challenge_readable',
    'offer_usable',
    'described',
    'browsers_can_pay',
  ])
  expect(httpStatus).toBe(402)
  expect(report.offers).toMatchObject([{ amount: 10_000n, payTo: terms.payTo, isPayable: true }])
  expect(report.declaration).toMatchObject({ description: 'The tides of today' })
})

test.each(Object.entries(badSellers))('finds %s', async (code, kind) => {
  const { codes, report } = await probe(startSeller(kind, terms))
  expect(codes).toContain(code)
  const { severity, message, advice } = report.findings.find((one) => one.code === code) ?? {}
  expect([severity, advice]).toEqual([sellerFindings[code as FindingCode].severity, expect.any(String)])
  expect(message).toMatch(/^[A-Za-z].*\.$/s)
})

test.each([
  'not_usdc',
  'unknown_network',
  'invalid_amount',
  'invalid_pay_to',
  'wrong_domain',
  'other_scheme',
] as const)('finds that no offer can be paid if the only offer is %s', async (code) => {
  const { codes } = await probe(startSeller(badSellers[code], terms))
  expect(codes).toEqual(expect.arrayContaining([code, 'no_usable_offer']))
})

test('reports a broken offer only as a warning if another offer can be paid', async () => {
  const good = { ...terms, scheme: 'exact', amount: '1', maxTimeoutSeconds: 60, extra: base.eip712 }
  const accepts = [{ ...good, network: 'solana:5eykt' }, good]
  const { codes } = await probe(startSeller(goodSeller({ required: { accepts } }), terms))
  expect(codes).toEqual(expect.arrayContaining(['unknown_network', 'offer_usable']))
  expect(severities(codes)).not.toContain('error')
})

describe('servers that misbehave', () => {
  test('times out on headers that arrive byte by byte', async () => {
    const { codes } = await probe(
      startSlowSeller(`HTTP/1.1 402 Payment Required\r\nX-A: ${'x'.repeat(10_000)}`),
    )
    expect(codes).toEqual(['timeout'])
  })

  test('uses the received part of a body that never ends', async () => {
    const slow = await startSlowSeller('HTTP/1.1 200 OK\r\n\r\n')
    const { codes } = await probe(Promise.resolve(slow))
    expect(codes).toEqual(['serves_unpaid'])
  })

  test('reports a server that doesn’t speak HTTP', async () => {
    expect((await probe(startNoHttp())).codes).toEqual(['not_http'])
  })

  test('reports a port without a listener', async () => {
    const seller = await startSeller(goodSeller(), terms)
    await seller.close()
    const { report } = await probeThoroughly({ url: seller.url, method: 'GET' }, options)
    expect(report.findings).toMatchObject([
      { code: 'unreachable', message: expect.stringContaining('ECONNREFUSED') },
    ])
  })

  test('reports a host without an address', async () => {
    const { report } = await probeThoroughly({ url: 'https://nowhere.invalid/', method: 'GET' }, options)
    expect(report.findings.map(({ code }) => code)).toEqual(['unresolved'])
  })

  test('reports an expired certificate', async () => {
    const { codes, report } = await probe(startExpiredSeller(terms))
    expect(codes).toEqual(['tls_failed'])
    expect(report.findings[0]?.message).toContain('CERT_HAS_EXPIRED')
  })
})

test('connects to no private address, in any notation', async () => {
  let connections = 0
  const seller = await startSeller(() => () => void connections++, terms)
  onTestFinished(seller.close)
  const guard = createAddressGuard({
    allowPrivate: false,
    resolve: async () => [{ address: '127.0.0.1', family: 4 }],
  })
  const port = new URL(seller.url).port
  for (const url of [seller.url, `https://127.0.0.1:${port}`, `https://rebound.example:${port}/`]) {
    const { report } = await probeThoroughly({ url, method: 'GET' }, { ...options, guard })
    expect(report.findings.map(({ code }) => code)).toEqual(['url_refused'])
  }
  expect(connections).toBe(0)
})

test('sends only GET, POST, OPTIONS and HEAD, with no body except an empty object', async () => {
  const seen: string[] = []
  const bodies: string[] = []
  const seller = await startSeller(
    (terms_, url) => (request, response) => {
      seen.push(request.method ?? '')
      request.setEncoding('utf8').on('data', (part: string) => bodies.push(part))
      goodSeller()(terms_, url)(request, response)
    },
    terms,
  )
  onTestFinished(seller.close)
  for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'])
    await probeThoroughly({ url: seller.url, method }, options)
  expect([...new Set(seen)].toSorted()).toEqual(['GET', 'HEAD', 'OPTIONS', 'POST'])
  expect(new Set(bodies)).toEqual(new Set(['{}']))
})
