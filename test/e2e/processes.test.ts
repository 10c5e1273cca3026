import { execFileSync } from 'node:child_process'
import { chmod, copyFile, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { reservePort } from '@tollkeeper/runtime/port'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createTestDatabase } from '../support/database.ts'
import { buildImage, type Image } from '../support/dockerfile.ts'
import { killAll, type RunningCommand, runCommand, untilGone } from '../support/processes.ts'
import { newBuyer, openShop, type TestBuyer } from '../support/shop.ts'
import { useTestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'

// The key of a dev account of the chain, which has gas money.
const keeperKey = '0xea6c44ac03bff858b476bba40716402b03e41b8e97e276d1baec7c37d42484a0'

// The stack plays the role of the external services.
const stack = useTestStack({ env: { keeper: { TRIGGER_TIME_SECONDS: '1' } } })

let running: RunningCommand | undefined
afterEach(async () => {
  if (running) await killAll(running)
})

function run(name: string, env: Record<string, string | undefined> = {}): RunningCommand {
  running = runCommand(['npm', 'run', name], env)
  return running
}

// The test of the package covers the other roles (package.test.ts).
test('error: npm run indexer names DATABASE_URL if the variable is not set', async () => {
  const command = run('indexer', { ...stack.env, DATABASE_URL: undefined })
  expect(await command.exited).toBe(1)
  expect(command.output()).toContain('DATABASE_URL: expected')
  expect(command.output()).not.toContain('    at ')
})

test.each(['api', 'keeper'])(
  'error: npm run %s names the port and its variable if the port is taken',
  async (name) => {
    const { port } = new URL(stack.api.url)
    const variable = `${name.toUpperCase()}_PORT`
    const command = run(name, {
      ...stack.env,
      [variable]: port,
      MACAROON_SECRETS: `k1:${'ab'.repeat(32)}`,
      RECEIPT_KEY_FILE: `${stack.logFolder}/other-receipt-key.json`,
      KEEPER_PRIVATE_KEYS: keeperKey,
    })
    expect(await command.exited).toBe(1)
    expect(command.output()).toContain(port)
    expect(command.output()).toContain(variable)
    expect(command.output()).not.toContain('    at ')
  },
)

// Does what `docker build` and `docker run --read-only` do, without Docker: a plain folder with only Node,
// whose user can write only to /tmp.
describe('the image', () => {
  const nobody = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {}
  let folder: string
  let image: Image
  let path: string
  let env: Record<string, string | undefined>
  let keys: string
  let buyer: TestBuyer
  let left: string
  beforeAll(async () => {
    folder = await mkdtemp('/tmp/tollkeeper-image-')
    await chmod(folder, 0o755)
    const bin = join(folder, 'bin')
    await mkdir(bin)
    await copyFile(process.execPath, join(bin, 'node'))
    path = `${bin}:/usr/local/bin:/usr/bin:/bin`
    image = await buildImage(folder, path)
    const temporary = join(folder, 'tmp')
    await mkdir(temporary)
    await chmod(temporary, 0o777)
    const DEPLOYMENTS_FILE = join(folder, 'deployments.json')
    await copyFile(stack.env.DEPLOYMENTS_FILE ?? '', DEPLOYMENTS_FILE)
    await chmod(DEPLOYMENTS_FILE, 0o644)
    if (nobody.uid === undefined) execFileSync('chmod', ['-R', 'a-w', image.folder])
    env = {
      ...stack.env,
      ...image.env,
      DEPLOYMENTS_FILE,
      PATH: path,
      HOME: '/nonexistent',
      TMPDIR: temporary,
      CI: undefined,
      VITEST: undefined,
      NODE_OPTIONS: undefined,
      // Node's image doesn't set this variable; here it lets the starts share Node's compiled code.
      NODE_COMPILE_CACHE: join(temporary, 'compiled'),
    }
    keys = join(temporary, 'receipt-keys.json')
    // A payment that the stack's keeper leaves unsettled.
    await stack.keeper.stop()
    const shop = await openShop(stack)
    buyer = await newBuyer(stack, '1')
    left = (await buyer.client.request(shop.url)).paymentId as string
    await shop.close()
    const made = runAs([...image.entrypoint, 'keys', 'rotate', 'receipt', '--file', keys], {})
    expect(await made.exited, made.output()).toBe(0)
  })
  afterAll(async () => {
    execFileSync('chmod', ['-R', 'u+w', folder])
    await rm(folder, { recursive: true, force: true })
  })

  const runAs = (words: string[], more: Record<string, string | undefined>) => {
    running = runCommand(words, { ...env, ...more }, { cwd: image.folder, ...nobody })
    return running
  }

  test('behavior: the image contains what it needs to run, but no test, secret or development tool', async () => {
    expect(image.user).toBe('node')
    const files = execFileSync('find', ['.', '-not', '-path', './node_modules/*', '-type', 'f'], {
      cwd: image.folder,
      encoding: 'utf8',
    }).split('\n')
    expect(files).toContain('./api/main.ts')
    // npm needs the package.json of every workspace.
    expect(
      files.filter((file) =>
        /\.test\.tsx?$|\/\.env|\.tollkeeper|^\.\/(test|bench|contracts|\.git)\/(?!package\.json$)/.test(file),
      ),
    ).toEqual([])
    const packages = execFileSync('ls', [join(image.folder, 'node_modules')], { encoding: 'utf8' }).split(
      '\n',
    )
    expect(packages).toContain('ponder')
    expect(
      packages.filter((name) => ['hardhat', 'vitest', '@nomicfoundation', 'solc', 'node'].includes(name)),
    ).toEqual([])
  })

  /** For each role, checks that it works at the URL on which it listens, once it is ready. */
  const works: Record<string, (url: string) => Promise<unknown>> = {
    api: async (url) =>
      expect(await (await fetch(`${url}/openapi/gateway.json`)).json()).toMatchObject({ openapi: '3.1.0' }),
    // The role settles the payment that the stack's keeper left.
    keeper: () => buyer.client.waitForSettlement(left, { pollingInterval: 100, timeoutMs: 240_000 }),
    indexer: askIndex,
    'indexer --serve': askIndex,
  }

  async function askIndex(url: string): Promise<void> {
    const answer = await fetch(`${url}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query: '{ batchs { items { sequence } } }' }),
    })
    expect(await answer.json()).toMatchObject({ data: { batchs: { items: expect.any(Array) } } })
  }

  test.each([
    ['api', '/readyz'],
    ['keeper', '/readyz'],
    ['indexer', '/ready'],
    ['indexer --serve', '/ready'],
  ])(
    'default: %s starts next to external services, reports healthy, works, and stops on SIGTERM',
    async (role, readyPath) => {
      const port = String(await reservePort())
      const others = { API_PORT: '1', KEEPER_PORT: '1', INDEXER_PORT: '1' }
      const more = {
        ...others,
        [`${role.split(' ')[0]?.toUpperCase()}_PORT`]: port,
        MACAROON_SECRETS: `k1:${'ab'.repeat(32)}`,
        RECEIPT_KEY_FILE: keys,
        KEEPER_PRIVATE_KEYS: keeperKey,
        TRIGGER_TIME_SECONDS: '1',
        // Two indexers need separate databases. An indexer that only serves can read the stack's.
        ...(role === 'indexer' && { DATABASE_URL: await createTestDatabase() }),
      }
      const started = runAs([...image.entrypoint, ...role.split(' ')], more)
      const ended = started.exited.then((status) => {
        throw new Error(`it ended with ${status}:\n${started.output()}`)
      })
      const ready = until('it is ready', async () => {
        return (await fetch(`http://127.0.0.1:${port}${readyPath}`).catch(() => undefined))?.ok ?? false
      })
      await Promise.race([ready, ended])
      ended.catch(() => {})
      const isHealthy = async (ports: Record<string, string>) => {
        const check = runCommand(image.healthcheck, { ...env, ...ports }, { cwd: image.folder, ...nobody })
        return (await check.exited) === 0
      }
      expect(await isHealthy(more)).toBe(true)
      expect(await isHealthy(others)).toBe(false)
      await works[role]?.(`http://127.0.0.1:${port}`)
      started.child.kill('SIGTERM')
      expect(await started.exited).toBe(0)
      await untilGone(started)
    },
  )
})
