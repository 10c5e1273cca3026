import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { describe, expect, test } from 'vitest'
import {
  AddressRefusedError,
  createAddressGuard,
  isPublicAddress,
  type ResolvedAddress,
  resolvePublicly,
} from './addressGuard.ts'

describe('isPublicAddress', () => {
  test.each([
    '8.8.8.8',
    '1.1.1.1',
    '172.15.255.255',
    '172.32.0.1',
    '100.63.255.255',
    '100.128.0.1',
    '2606:4700:4700::1111',
    '::ffff:8.8.8.8',
  ])('default: accepts %s', (address) => {
    expect(isPublicAddress(address)).toBe(true)
  })

  test.each([
    ['this network', '0.0.0.0'],
    ['private', '10.0.0.1'],
    ['private', '172.16.0.1'],
    ['private', '192.168.1.1'],
    ['loopback', '127.0.0.1'],
    ['loopback', '127.255.255.254'],
    ['link-local, metadata of AWS, GCP, Azure', '169.254.169.254'],
    ['carrier-grade NAT', '100.64.0.1'],
    ['carrier-grade NAT, metadata of Alibaba', '100.100.100.200'],
    ['metadata of Oracle', '192.0.0.192'],
    ['wire server of Azure', '168.63.129.16'],
    ['documentation', '192.0.2.1'],
    ['benchmarking', '198.18.0.1'],
    ['multicast', '224.0.0.1'],
    ['reserved', '240.0.0.1'],
    ['broadcast', '255.255.255.255'],
    ['unspecified', '::'],
    ['loopback', '::1'],
    ['unique local', 'fd00::1'],
    ['metadata of AWS', 'fd00:ec2::254'],
    ['link-local', 'fe80::1'],
    ['link-local with a zone', 'fe80::1%lo'],
    ['public with a zone', '2606:4700::1%lo'],
    ['site-local', 'fec0::1'],
    ['IPv4-mapped loopback', '::ffff:127.0.0.1'],
    ['IPv4-mapped private, in hex', '::ffff:a00:1'],
    ['IPv4-compatible loopback', '::127.0.0.1'],
    ['NAT64 of a private address', '64:ff9b::a00:1'],
    ['local NAT64', '64:ff9b:1::a00:1'],
    ['6to4 of loopback', '2002:7f00:1::'],
    ['Teredo', '2001::1'],
    ['documentation', '2001:db8::1'],
    ['multicast', 'ff02::1'],
    ['not assigned', '4000::1'],
    ['not an address', 'localhost'],
    ['empty', ''],
  ])('behavior: rejects an address of the kind “%s”: %s', (_, address) => {
    expect(isPublicAddress(address)).toBe(false)
  })
})

function guardWith(addresses: Record<string, string[]>, allowPrivate = false) {
  return createAddressGuard({
    allowPrivate,
    resolve: async (hostname): Promise<ResolvedAddress[]> => {
      const found = addresses[hostname]
      if (!found) throw Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), { code: 'ENOTFOUND' })
      return found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }))
    },
  })
}

describe('check', () => {
  const guard = guardWith({
    'good.example': ['93.184.215.14', '2606:2800:21f::1'],
    'inside.example': ['10.1.2.3'],
    'mixed.example': ['93.184.215.14', '127.0.0.1'],
    'none.example': [],
  })

  test('default: accepts https URLs with a public name or address', async () => {
    await expect(guard.check(new URL('https://good.example/hook'))).resolves.toBeUndefined()
    await expect(guard.check(new URL('https://93.184.215.14:8443/hook'))).resolves.toBeUndefined()
  })

  test.each([
    ['a name that resolves to a private address', 'https://inside.example/'],
    ['a name that resolves to public and private addresses', 'https://mixed.example/'],
    ['a name without addresses', 'https://none.example/'],
    ['an unknown name', 'https://missing.example/'],
    ['the scheme http', 'http://good.example/'],
    ['another scheme', 'file:///etc/passwd'],
    ['a user name and a password', 'https://user:secret@good.example/'],
    ['the loopback address', 'https://127.0.0.1/'],
    ['the loopback address as one number', 'https://2130706433/'],
    ['the loopback address in octal', 'https://0177.0.0.1/'],
    ['the loopback address in hex', 'https://0x7f.1/'],
    ['the loopback address in full-width digits', 'https://１２７.0.0.1/'],
    ['the IPv6 loopback address', 'https://[::1]/'],
    ['the IPv4-mapped loopback address', 'https://[::ffff:127.0.0.1]/'],
  ])('error: rejects a URL with %s', async (_, url) => {
    await expect(guard.check(new URL(url))).rejects.toThrow('')
    await expect(guard.check(new URL(url))).rejects.toMatchObject({ name: 'AddressRefusedError' })
  })

  test('error: doesn’t reveal a name’s private address in the message', async () => {
    await expect(guard.check(new URL('https://inside.example/'))).rejects.toThrow(
      'inside.example is not a public address, or resolves to one that is not',
    )
  })

  test('args: allowPrivate permits private addresses and http, but no other scheme', async () => {
    const open = guardWith({ 'inside.example': ['10.1.2.3'] }, true)
    await expect(open.check(new URL('http://inside.example/'))).resolves.toBeUndefined()
    await expect(open.check(new URL('http://127.0.0.1:4000/'))).resolves.toBeUndefined()
    await expect(open.check(new URL('file:///etc/passwd'))).rejects.toThrow('expected an https: URL')
  })
})

test('error: rejects names on a name server that never responds, without blocking the look-up of other names', async () => {
  const nameServer = createSocket('udp4').bind(0, '127.0.0.1')
  await once(nameServer, 'listening')
  let questions = 0
  nameServer.on('message', () => questions++)
  const servers = [`127.0.0.1:${nameServer.address().port}`]
  const guard = createAddressGuard({
    allowPrivate: false,
    resolve: (hostname) => resolvePublicly(hostname, 200, servers),
  })
  try {
    // The system's own look-up would block four of these twelve at a time, because it has only four threads.
    const checks = Array.from({ length: 12 }, (_, i) => guard.check(new URL(`https://h${i}.example/`)))
    for (const check of await Promise.allSettled(checks)) {
      expect(check).toMatchObject({ status: 'rejected', reason: expect.any(AddressRefusedError) })
    }
    // Each name was looked up immediately, once for IPv4 and once for IPv6 addresses.
    await expect.poll(() => questions).toBe(24)
  } finally {
    nameServer.close()
  }
})
