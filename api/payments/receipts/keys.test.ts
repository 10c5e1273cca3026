import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import { compactVerify, createLocalJWKSet } from 'jose'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  loadReceiptKeys,
  readReceiptKeys,
  rotateReceiptKeys,
  rotationLeadSeconds,
  toReceiptKeys,
  writeReceiptKeys,
} from './keys.ts'
import { receiptClaims } from './receiptClaims.ts'
import { signReceipt } from './signReceipt.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keys-'))
})
afterAll(() => rm(folder, { recursive: true }))

const half = { recipient: `0x${'1'.repeat(40)}`, value: 1n, nonce: zeroHash } as const
const claims = receiptClaims(
  {
    paymentId: 'pay_1',
    providerId: 'prov_1',
    endpointId: 'ep_1',
    tier: 'micropayment',
    effectiveRate: '0.05',
    acceptedAt: 0,
    network: networks.localhost,
    token: half.recipient,
    payer: half.recipient,
    resource: 'https://a.example/ü',
    payee: half.recipient,
    feeRecipient: half.recipient,
    providerAmount: 1n,
    feeAmount: 1n,
    splitter: null,
    validBefore: 9n,
    provider: half,
    fee: half,
  },
  { issuer: 'https://gateway.example', signedAt: 0, status: 'verified' },
)

test('default: a missing file is created once, readable only by its owner, even if many processes start at once', async () => {
  const path = join(folder, 'new', 'keys.json')
  const loaded = await Promise.all(Array.from({ length: 5 }, () => loadReceiptKeys(path, true)))
  expect(new Set(loaded.map(({ current }) => current.kid)).size).toBe(1)
  expect((await stat(path)).mode & 0o777).toBe(0o600)
})

test('error: rejects a missing file in production, and files that are not key sets', async () => {
  await expect(loadReceiptKeys(join(folder, 'none.json'), false)).rejects.toThrow(/RECEIPT_KEY_FILE/)
  for (const text of ['', '{}', '{"keys":[]}', '{"keys":[{"kty":"RSA","d":"c2VjcmV0"}]}']) {
    const path = join(folder, 'bad.json')
    await writeFile(path, text)
    const error = await loadReceiptKeys(path, true).then(
      () => undefined,
      (reason: Error) => reason,
    )
    expect(error?.message).toMatch(/^RECEIPT_KEY_FILE: /)
    expect(error?.message).not.toContain('c2VjcmV0')
  }
})

test('behavior: a rotation publishes a key before it signs; earlier signatures still verify', async () => {
  let now = 1_000_000
  const path = join(folder, 'rotated.json')
  const first = rotateReceiptKeys(undefined)
  const keys = toReceiptKeys(first, () => now * 1000)
  const verify = async (jws: string) =>
    (await compactVerify(jws, createLocalJWKSet(keys.jwks))).protectedHeader.kid

  const receipts = [signReceipt(claims, keys.current)]
  let file = first
  for (let round = 1; round <= 3; round++) {
    file = rotateReceiptKeys(file, now)
    await writeReceiptKeys(path, file)
    keys.replace((await readReceiptKeys(path)) as typeof file)
    const coming = keys.jwks.keys[0]?.kid
    expect(keys.jwks.keys.length).toBe(round + 1)
    expect(keys.current.kid).not.toBe(coming)
    receipts.push(signReceipt(claims, keys.current))
    now += rotationLeadSeconds
    expect(keys.current.kid).toBe(coming)
    receipts.push(signReceipt(claims, keys.current))
    for (const receipt of receipts) await verify(receipt)
  }
  const stored = JSON.parse(await readFile(path, 'utf8')) as typeof file
  expect(stored.keys.map(({ d }) => d !== undefined)).toEqual([true, true, false, false])
  expect(JSON.stringify(keys.jwks)).not.toContain('"d"')
})
