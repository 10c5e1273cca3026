import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { createReachable } from './reachable.ts'

async function serveHere(): Promise<string> {
  const server = createServer((_, response) => response.end('here')).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

function reach(allowed: string[], own: string[] = []) {
  const reachable = createReachable(allowed, own)
  onTestFinished(() => reachable.close())
  return reachable
}

test('default: reaches the hosts on the list and the hosts in the settings, even if they are private', async () => {
  const url = await serveHere()
  expect(await (await reach([url]).fetch(url)).text()).toBe('here')
  expect(await (await reach([], [`${url}/path`]).fetch(url)).text()).toBe('here')
  expect(() => reach(['api.example']).require(new URL('https://API.example./x'))).not.toThrow()
})

test.each([
  'http://127.0.0.1:1/',
  'https://127.0.0.1/',
  'https://[::1]/',
  'https://[::ffff:7f00:1]/',
  'https://169.254.169.254/latest/meta-data',
  'https://10.0.0.1/',
  'https://192.168.1.1/',
  'https://2130706433/',
  'http://api.example/',
])('error: rejects private hosts and hosts without TLS if there is no list: %s', async (url) => {
  const { require, fetch } = reach([])
  expect(() => require(new URL(url))).toThrow(/the owner can allow it with --allow-host/)
  await expect(fetch(url)).rejects.toThrow('fetch failed')
})

test('error: rejects a name that resolves to this machine, and a port or host that is not on the list', async () => {
  await expect(reach([]).fetch('https://localhost:9443/')).rejects.toThrow('fetch failed')
  const url = await serveHere()
  const other = await serveHere()
  await expect(reach([url]).fetch(other)).rejects.toThrow('fetch failed')
  expect(() => reach(['api.example']).require(new URL('https://other.example'))).toThrow(
    'https://other.example is not one of the hosts of --allow-host',
  )
  expect(() => reach(['api.example/path'])).toThrow(TypeError)
})
