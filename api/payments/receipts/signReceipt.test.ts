import { generateKeyPairSync, sign, verify } from 'node:crypto'
import { expect, test } from 'vitest'
import { toP1363 } from './signReceipt.ts'

test('behavior: converts every DER signature to its JOSE form', () => {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const lengths = new Set<number>()
  // In one signature of 128, r or s has 31 bytes or less. So 2,000 signatures contain about 16 such cases.
  for (let i = 0; i < 2_000; i++) {
    const data = Buffer.from(`receipt ${i}`)
    const der = sign('sha256', data, privateKey)
    lengths.add(der.length)
    expect(verify('sha256', data, { key: publicKey, dsaEncoding: 'ieee-p1363' }, toP1363(der))).toBe(true)
  }
  expect(lengths.size).toBeGreaterThan(2)
})
