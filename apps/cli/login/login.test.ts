import { once } from 'node:events'
import { chmod, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeAll, expect, test } from 'vitest'
import { useCliGateway } from '../../../test/support/cliGateway.ts'
import { openShop, type Shop } from '../../../test/support/gateway.ts'

const cli = useCliGateway()
let shop: Shop

beforeAll(async () => {
  shop = await openShop(cli.gateway.app)
})
afterEach(() =>
  Promise.all([
    rm(join(cli.folder, 'config'), { recursive: true, force: true }),
    rm(join(cli.folder, '.env'), { force: true }),
  ]),
)

const profilesFile = () => join(cli.folder, 'config', 'tollkeeper', 'profiles.json')

/** Logs in with answers from a pipe. */
async function login(args: string[] = [], { providerId, key } = shop) {
  const result = await cli.run(['login', ...args], {}, `${cli.url}\n${providerId}\n${key}\n`)
  expect([result.status, result.stderr.includes('(')]).toEqual([0, true])
  return result
}

/** Starts a server that isn't a gateway, and records the requests that it receives. */
async function startStranger() {
  const authorizations: (string | undefined)[] = []
  const server = createServer(({ headers }, response) => {
    authorizations.push(headers.authorization)
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, authorizations, [Symbol.dispose]: () => void server.close() }
}

test('stores gateway, provider and key in a file that only its owner can read, and never prints the key', async () => {
  const { stdout, stderr } = await login()
  expect(stdout).toContain(`Logged in to ${cli.url} as ${shop.providerId} (key: full)`)
  expect(stdout).toContain('Next: `tollkeeper provider show`')
  expect((await stat(profilesFile())).mode & 0o777).toBe(0o600)
  expect((await stat(join(profilesFile(), '..'))).mode & 0o777).toBe(0o700)
  const shown = await cli.run(['provider', 'show', '--json'])
  expect(JSON.parse(shown.stdout)).toMatchObject({ providerId: shop.providerId })
  const listed = await cli.run(['profiles'])
  expect(listed.stdout).toContain(shop.providerId)
  const outputs = [stdout, stderr, listed.stdout, (await cli.run(['profiles', '--json'])).stdout]
  for (const output of outputs) expect(output).not.toContain(shop.key)
})

test('rejects a wrong key and a key of another provider, and stores neither of these keys', async () => {
  const wrong = await cli.run(['login'], {}, `${cli.url}\n${shop.providerId}\ntk_wrong\n`)
  expect([wrong.status, wrong.stderr]).toEqual([2, expect.stringMatching(/\(unauthorized\)/)])
  const other = await openShop(cli.gateway.app)
  const mixed = await cli.run(['login'], {}, `${cli.url}\n${shop.providerId}\n${other.key}\n`)
  expect([mixed.status, mixed.stderr]).toEqual([
    2,
    expect.stringMatching(/--provider: the key belongs to prov_.*\(other_provider\)/),
  ])
  expect(mixed.stderr + wrong.stderr).not.toContain(other.key)
  await expect(stat(profilesFile())).rejects.toThrow()
  const cut = await cli.run(['login', '--gateway', cli.url], {}, '')
  expect(cut.stderr).toMatch(/standard input ended.*\(no_answer\)/)
  const invalid = await cli.run(['login'], {}, 'gateway.example\n')
  expect(invalid.stderr).toContain('URL of the gateway [http://127.0.0.1:4020]: ')
  expect(invalid.stderr).toMatch(
    /URL of the gateway: expected an http\(s\) URL.*for example https:.*\(invalid_answer\)/,
  )
})

test('keeps several profiles, and prefers a flag to a variable and a variable to the profile', async () => {
  const other = await openShop(cli.gateway.app)
  await login()
  await login(['--profile', 'second'], other)
  const show = async (args: string[], env: Record<string, string> = {}) => {
    const { status, stdout, stderr } = await cli.run(['provider', 'show', '--json', ...args], env)
    return status === 0 ? JSON.parse(stdout).providerId : stderr
  }
  expect(await show([])).toBe(shop.providerId)
  expect(await show(['--profile', 'second'])).toBe(other.providerId)
  expect(await show([], { TOLLKEEPER_PROFILE: 'second' })).toBe(other.providerId)
  expect(await show(['--profile', 'default'], { TOLLKEEPER_PROFILE: 'second' })).toBe(shop.providerId)
  // Each setting is resolved separately: provider and key from variables, gateway from the profile.
  const variables = { TOLLKEEPER_PROVIDER_ID: other.providerId, TOLLKEEPER_API_KEY: other.key }
  expect(await show([], variables)).toBe(other.providerId)
  expect(await show(['--provider', shop.providerId, '--api-key', shop.key], variables)).toBe(shop.providerId)
  expect(await show(['--profile', 'third'])).toMatch(
    /--profile: there is no profile "third". Stored: default, second \(unknown_profile\)/,
  )

  expect((await cli.run(['logout', '--profile', 'second'])).stdout).toMatch(/^Removed the profile second/)
  expect(await readFile(profilesFile(), 'utf8')).not.toContain(other.key)
  expect(await show(['--profile', 'second'])).toMatch(/unknown_profile/)
  expect(await show([])).toBe(shop.providerId)
  expect((await cli.run(['logout', '--profile', 'second'])).stderr).toMatch(/unknown_profile/)
})

test.each([
  ['a variable of the .env in the folder', [], 'TOLLKEEPER_GATEWAY_URL=STRANGER'],
  ['a flag', ['--gateway', 'STRANGER'], ''],
])('never sends a stored key to another gateway that %s names', async (_, flags, env) => {
  await login()
  using stranger = await startStranger()
  const fill = (text: string) => text.replace('STRANGER', stranger.url)
  await writeFile(join(cli.folder, '.env'), fill(env))
  for (const command of [
    ['provider', 'show'],
    ['payments', 'list'],
    ['payments', 'list', '--csv'],
    ['payments', 'watch'],
    ['receipts'],
    ['statement'],
    ['tabs', 'list'],
    ['webhook', 'test'],
  ]) {
    const { status, stderr } = await cli.run([...command, ...flags.map(fill)])
    expect([command, status, stderr]).toEqual([
      command,
      2,
      expect.stringMatching(/the key of profile "default" is sent to http:\S+ only.*\(other_gateway\)/),
    ])
  }
  expect(stranger.authorizations).toEqual([])
  // A request that needs no key may be sent to the other gateway, without the key.
  await cli.run(['provider', 'create', '--name', 'x', ...flags.map(fill)])
  expect(stranger.authorizations).toEqual([undefined])
})

test('ignores a .env that names another file of profiles or switches off certificate checks', async () => {
  await login()
  const planted = join(cli.folder, 'planted', 'tollkeeper')
  await mkdir(planted, { recursive: true, mode: 0o700 })
  using stranger = await startStranger()
  const profile = { gatewayUrl: stranger.url, providerId: 'prov_x', apiKey: 'tk_planted', scope: 'full' }
  const file = join(planted, 'profiles.json')
  await writeFile(file, JSON.stringify({ profiles: { default: profile } }), { mode: 0o600 })
  const lines = [`XDG_CONFIG_HOME=${join(cli.folder, 'planted')}`, `HOME=${join(cli.folder, 'planted')}`]
  await writeFile(join(cli.folder, '.env'), [...lines, 'NODE_TLS_REJECT_UNAUTHORIZED=0'].join('\n'))
  // Unset the variable, because a .env never replaces a value that the environment has.
  const { stdout } = await cli.run(['profiles', '--json'], { XDG_CONFIG_HOME: undefined })
  expect(stdout).not.toContain(stranger.url)
})

test.runIf(process.getuid !== undefined)(
  'rejects a file or a folder that other users can write',
  async () => {
    await login()
    const show = async () => (await cli.run(['provider', 'show'])).stderr
    await chmod(profilesFile(), 0o620)
    expect(await show()).toMatch(/other users can write it. Run `chmod 600 .*\(unsafe_file\)/)
    await chmod(profilesFile(), 0o600)
    await chmod(join(profilesFile(), '..'), 0o770)
    expect(await show()).toMatch(/other users can write it. Run `chmod 700 .*\(unsafe_file\)/)
    await chmod(join(profilesFile(), '..'), 0o700)
    expect(await show()).toBe('')
    await writeFile(profilesFile(), `not JSON, but with ${shop.key}`)
    expect(await show()).toMatch(/expected profiles, as `tollkeeper login` writes them \(unreadable_file\)/)
    expect(await show()).not.toContain(shop.key)
  },
)

test('names the missing settings if there is no profile', async () => {
  const { stderr } = await cli.run(['payments', 'list'])
  expect(stderr).toMatch(/^tollkeeper: --provider: required. Run `tollkeeper login`/)
  const keyless = await cli.run(['payments', 'list', '--provider', shop.providerId, '--gateway', cli.url])
  expect(keyless.stderr).toMatch(
    /run `tollkeeper login`, or give the API key as TOLLKEEPER_API_KEY \(unauthorized\)/,
  )
})
