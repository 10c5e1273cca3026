import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { type Hex, parseTransaction, recoverTransactionAddress } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { killAll, type RunningCommand, root, runCommand } from '../../test/support/processes.ts'
import { type SignerMood, startSigner, type TestSigner } from '../../test/support/signer.ts'
import { until } from '../../test/support/until.ts'
import { createRemoteAccount, createRemoteSigner, type RemoteSignerOptions } from './remoteSigner.ts'
import { signTransaction } from './signTransaction.ts'

const chainId = 31_337
const key = generatePrivateKey()
const { address } = privateKeyToAccount(key)
const to = `0x${'c0'.repeat(20)}` as const
const transaction = {
  ...({ type: 'eip1559', chainId, to, nonce: 7, gas: 1_000_000n } as const),
  maxFeePerGas: 2_000_000_000n,
  maxPriorityFeePerGas: 1_000n,
  data: `0x${'5a'.repeat(5_000)}` as Hex,
}

let signer: TestSigner
beforeAll(async () => {
  signer = await startSigner({ keys: [key], chainId })
})
beforeEach(() => signer.set({}))
afterAll(() => signer?.kill())

const accountOf = (options: RemoteSignerOptions, of = address) => {
  const one = createRemoteSigner(options)
  return createRemoteAccount(of, () => one)
}
const sign = (change: Partial<RemoteSignerOptions> = {}) =>
  signTransaction(accountOf({ url: signer.url, ...change }), transaction)

test('default: returns the requested transaction, signed by the key of the address', async () => {
  // The simulated signer reports each request through a separate channel, which may be slower than its response.
  const asked = signer.nextAsked()
  const raw = await sign()
  expect(parseTransaction(raw)).toMatchObject({ ...transaction, to })
  expect(await recoverTransactionAddress({ serializedTransaction: raw as `0x02${string}` })).toBe(address)
  expect(await asked).toMatchObject({ from: address, chainId: '0x7a69', nonce: '0x7', value: '0x0' })
  await accountOf({ url: signer.url }).check(chainId)
})

const otherKey = generatePrivateKey()
const otherAccount = privateKeyToAccount(otherKey)
const mismatches: [string, SignerMood, RegExp][] = [
  ['another chain', { changes: { chainId: 8453 } }, /for chain 8453, not 31337/],
  ['another key', { withKey: otherKey }, /not signed by the key of 0x/],
  ['another nonce', { changes: { nonce: 8 } }, /differs in nonce/],
  ['another recipient', { changes: { to: otherAccount.address } }, /differs in to/],
  ['other data', { changes: { data: '0x5a' } }, /differs in data/],
  ['a value', { value: '1' }, /differs in value/],
  ['another type', { isLegacy: true }, /differs in type/],
  ['an object instead of a text', { answers: { tx: {} } }, /it is not a transaction/],
  ['an HTML page', { text: '<html>' }, /it is not a transaction/],
  ['a text that is not hex', { answers: '0x02zz' }, /it is not a transaction/],
  ['an unsigned transaction', { answers: '0x02c0' }, /it is not a transaction/],
  ['an endless text', { text: 'x'.repeat(65_536), times: 64 }, /longer than 1048576 bytes/],
]

test.each(mismatches)('error: rejects a signer’s response with %s', async (_, mood, message) => {
  signer.set(mood)
  await expect(sign()).rejects.toMatchObject({
    name: 'SignerError',
    code: 'signer_mismatch',
    message: expect.stringMatching(message),
  })
})

test('error: rejects every change of one byte of a valid response', async () => {
  const good = await sign()
  const body = good.slice(2)
  // Change all bytes around the transaction's data, and some bytes of the data.
  const places = [
    ...Array.from({ length: 120 }, (_, i) => i),
    ...Array.from({ length: 140 }, (_, i) => body.length - 1 - i),
  ]
  for (const place of [...places, 5_000]) {
    const digit = ((Number.parseInt(body[place] ?? '0', 16) + 1) % 16).toString(16)
    const changed: Hex = `0x${body.slice(0, place)}${digit}${body.slice(place + 1)}`
    const account = { address, signTransaction: async () => changed }
    await expect(signTransaction(account as never, transaction), `digit ${place}`).rejects.toMatchObject({
      code: 'signer_mismatch',
    })
  }
})

const curveOrder = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n

test('error: rejects a signature whose `s` is in the upper half of the range, because no chain accepts it', async () => {
  const { serializeTransaction } = await import('viem')
  const { r, s, yParity } = parseTransaction(await sign()) as { r: Hex; s: Hex; yParity: number }
  const high: Hex = `0x${(curveOrder - BigInt(s)).toString(16).padStart(64, '0')}`
  const raw = serializeTransaction(transaction, { r, s: high, yParity: 1 - yParity })
  expect(await recoverTransactionAddress({ serializedTransaction: raw })).toBe(address)
  const account = { address, signTransaction: async () => raw }
  await expect(signTransaction(account as never, transaction)).rejects.toThrow(
    'no chain accepts its signature',
  )
})

describe('a signer that does not respond, or refuses', () => {
  test.each<[string, SignerMood, string, RegExp]>([
    ['slow', { holds: true }, 'signer_unavailable', /is not responding: no response in time/],
    ['failing', { status: 503 }, 'signer_unavailable', /HTTP status 503/],
    ['redirecting', { status: 302 }, 'signer_unavailable', /HTTP status 302/],
    ['refusing', { status: 403 }, 'signer_refused', /HTTP status 403/],
  ])('error: throws for a signer that is %s', async (_, mood, code, message) => {
    signer.set(mood)
    const options = mood.holds ? { timeoutMs: 200 } : {}
    await expect(sign(options)).rejects.toMatchObject({ code, message: expect.stringMatching(message) })
  })

  test('error: throws for a signer that is down', async () => {
    const url = `http://user:secret@${loopback}:${await reservePort()}`
    const failure = await sign({ url }).catch((error: Error) => error)
    expect(failure).toMatchObject({
      code: 'signer_unavailable',
      message: 'the signer is not responding: ECONNREFUSED',
    })
  })

  test('error: reports that the signer has no key for the address', async () => {
    const account = accountOf({ url: signer.url }, otherAccount.address)
    await expect(signTransaction(account, transaction)).rejects.toMatchObject({
      code: 'signer_refused',
      message: 'the signer refused: Signing from account is not an unlocked account (-32000)',
    })
    await expect(account.check(chainId)).rejects.toThrow(`the signer has no key of ${otherAccount.address}`)
    await expect(account.signMessage({ message: 'x' })).rejects.toMatchObject({ code: 'signer_refused' })
  })
})

describe('TLS, as in web3signer', () => {
  const file = (name: string) => join(root, 'test/support/tls', name)
  const pem = (name: string) => readFileSync(file(name), 'utf8')
  const tls = { certFile: file('server.pem'), keyFile: file('server.key') }
  const { fingerprint256 } = new X509Certificate(pem('server.pem'))
  const shown = { cert: pem('server.pem'), key: pem('server.key') }
  // Earlier tests in the same process may have added the test's authority, so trust only the bundled authorities during these tests.
  const trusted = getCACertificates('default')
  let closed: TestSigner
  beforeAll(async () => {
    setDefaultCACertificates(getCACertificates('bundled'))
    closed = await startSigner({ keys: [key], chainId, tls: { ...tls, clients: [fingerprint256] } })
  })
  afterAll(async () => {
    setDefaultCACertificates(trusted)
    await closed?.kill()
  })

  test('default: trusts the configured certificate authority, and presents a client certificate that the signer accepts', async () => {
    const raw = await sign({ url: closed.url, ca: pem('ca.pem'), ...shown })
    expect(parseTransaction(raw)).toMatchObject({ nonce: 7 })
    // The configured authority may also be the server's own certificate, which pins the server.
    await sign({ url: closed.url, ca: pem('server.pem'), ...shown })
    // Waits until the requests of the closed connection have arrived, so that the following tests don't count them.
    await expect.poll(() => closed.asked).toHaveLength(2)
  })

  test.each<[string, () => Partial<RemoteSignerOptions>, RegExp]>([
    [
      'the authority of the signer’s certificate is not configured',
      () => ({ url: closed.url, ...shown }),
      /UNABLE_TO_(GET_ISSUER_CERT_LOCALLY|VERIFY_LEAF_SIGNATURE)/,
    ],
    [
      'the signer’s certificate is for another host',
      () => ({ url: `https://${loopback}:${closed.port}`, ca: pem('ca.pem'), ...shown }),
      /ERR_TLS_CERT_ALTNAME_INVALID/,
    ],
    [
      'no client certificate is configured',
      () => ({ url: closed.url, ca: pem('ca.pem') }),
      /ECONNRESET|ECONNABORTED|EPIPE/,
    ],
  ])('error: sends no request if %s', async (_, options, message) => {
    const before = closed.asked.length
    await expect(sign(options())).rejects.toMatchObject({
      code: 'signer_unavailable',
      message: expect.stringMatching(message),
    })
    expect(closed.asked).toHaveLength(before)
  })
})

describe('a third-party signer', () => {
  let anvil: RunningCommand
  let url: string
  beforeAll(async () => {
    const port = await reservePort()
    url = `http://${loopback}:${port}`
    const flags = ['--port', `${port}`, '--host', loopback, '--chain-id', `${chainId}`, '--accounts', '2']
    anvil = runCommand([join(root, 'node_modules/.bin/anvil'), ...flags])
    await until('it answers', () =>
      fetch(url, { method: 'POST' }).then(
        () => true,
        () => false,
      ),
    )
  })
  afterAll(() => anvil && killAll(anvil))

  test("default: signs with anvil's eth_signTransaction and eth_accounts", async () => {
    const [known] = (await createRemoteSigner({ url }).listAddresses()) ?? []
    const account = accountOf({ url }, known as Hex)
    await account.check(chainId)
    const raw = await signTransaction(account, transaction)
    expect(parseTransaction(raw)).toMatchObject({ nonce: 7, chainId })
    await expect(signTransaction(accountOf({ url }), transaction)).rejects.toMatchObject({
      code: 'signer_refused',
    })
    await expect(accountOf({ url }).check(chainId)).rejects.toThrow('the signer has no key of')
  })
})
