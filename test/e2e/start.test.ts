import { once } from 'node:events'
import { chmod, mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isPortFree, reservePort } from '@tollkeeper/runtime/port'
import postgres from 'postgres'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createTestDatabase } from '../support/database.ts'
import { installPackages } from '../support/installed.ts'
import { killAll, type RunningCommand, root, runCommand, untilGone } from '../support/processes.ts'
import { startProduction } from '../support/production.ts'
import { until } from '../support/until.ts'

const freePorts = {
  CHAIN_PORT: '0',
  INDEXER_PORT: '0',
  KEEPER_PORT: '0',
  API_PORT: '0',
  PROVIDER_PORT: '0',
  DATABASE_URL: '',
}

let folder: string
let running: RunningCommand | undefined
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-start-'))
  // If we run as root, Postgres runs as another user, which must be able to read the folder.
  await chmod(folder, 0o755)
})
afterEach(async () => {
  if (running) await killAll(running)
  await rm(folder, { recursive: true, force: true })
})

/** Runs `npm start` in the checkout, as in the README. */
function start(env: Record<string, string> = {}): RunningCommand {
  running = runCommand(['npm', 'start'], { ...freePorts, TMPDIR: folder, ...env })
  return running
}

/** Runs the installed package in an otherwise empty folder, as its users do. */
async function startInstalled(env: Record<string, string> = {}): Promise<RunningCommand> {
  const { bin, folder: cwd } = await installPackages()
  running = runCommand([bin, 'start'], { ...freePorts, TMPDIR: folder, ...env }, { cwd })
  return running
}

/** Returns the ports of the URLs in the output. */
function printedPorts({ output }: RunningCommand): number[] {
  return [...output().matchAll(/(?:http|postgres):\/\/[^\s/]*127\.0\.0\.1:(\d+)/g)].map(([, port]) =>
    Number(port),
  )
}

async function expectNothingLeft(command: RunningCommand, ports: number[]): Promise<void> {
  expect(await leftBehind(command, ports)).toEqual([])
}

/** A failed start keeps its logs for inspection. */
async function expectOnlyLogsLeft(command: RunningCommand, ports: number[]): Promise<void> {
  expect(await leftBehind(command, ports)).toEqual([expect.stringMatching(/^tollkeeper-logs-/)])
}

async function leftBehind(command: RunningCommand, ports: number[]): Promise<string[]> {
  // The reaper process ends last, after it has cleaned up behind all other processes.
  await untilGone(command)
  // When a process exits, it first frees its memory, which hides the process from /proc, and then its sockets.
  for (const port of ports) await until(`port ${port} is free`, () => isPortFree(port))
  return (await readdir(folder)).filter((name) => name.startsWith('tollkeeper'))
}

/**
 * Follows the first step of docs/sell.md, line by line, until the payment has settled. Each `…` is replaced by the output of
 * earlier lines.
 *
 * @param printed what `npm start` printed for a buyer: `NAME=value …`
 */
async function followFirstMinutes({ output }: RunningCommand, printed: string): Promise<void> {
  const page = await readFile(`${root}/docs/sell.md`, 'utf8')
  const [, block = ''] = /```sh first\n(.*?)```/s.exec(page) ?? []
  const [started, ...lines] = block.split('\n').filter((line) => line !== '')
  expect(started).toBe('npm start')
  const gateway = output().match(/gateway +(http\S+)/)?.[1] ?? ''
  const port = await reservePort()
  const buyer = Object.fromEntries(printed.split(' ').map((one) => one.split('=')))
  const here: [shown: string | RegExp, real: string][] = [
    ['http://127.0.0.1:4020', gateway],
    [/4031/g, `${port}`],
    ['--address 0x…', `--address ${privateKeyToAddress(generatePrivateKey())}`],
    ['WALLET_PRIVATE_KEY=0x…', `WALLET_PRIVATE_KEY=${buyer.WALLET_PRIVATE_KEY}`],
  ]
  // Each id and key comes from the output of an earlier line.
  const ids: Record<string, string> = {}
  const env: Record<string, string> = { TOLLKEEPER_GATEWAY_URL: gateway }
  let seller: RunningCommand | undefined
  try {
    for (const line of lines) {
      const command = [...here, ...Object.entries(ids)].reduce(
        (text, [shown, real]) => text.replaceAll(shown, real),
        line,
      )
      if (command.startsWith('export ')) {
        const [, name = '', value = ''] = /^export (\w+)=(\S+)$/.exec(command) ?? []
        env[name] = value
        continue
      }
      const running = runCommand(['bash', '-c', command.replace(/ &$/, '')], env)
      if (command.endsWith(' &')) {
        seller = running
        await until('the provider answers', () =>
          fetch(`http://127.0.0.1:${port}`).then(
            () => true,
            () => false,
          ),
        )
        continue
      }
      expect(await running.exited, `${command}\n${running.output()}`).toBe(0)
      for (const [id = '', prefix] of running.output().matchAll(/\b(prov|tk|pay)_[\w-]{32,}/g))
        ids[`${prefix}_…`] ??= id
      if (!command.startsWith('curl ')) continue
      const ask = async () =>
        (await fetch(command.match(/http\S+/)?.[0] ?? '')).json() as Promise<{ payment_status: string }>
      await until('the payment has settled', async () => (await ask()).payment_status === 'settled')
      expect(await ask()).toMatchObject({ provider: { transactionHash: expect.stringMatching(/^0x/) } })
    }
  } finally {
    if (seller) await killAll(seller)
  }
}

test('default: the command prints the URL of each service, even if another start is running, and leaves only logs behind however it ends', async () => {
  const url = await createTestDatabase()
  const production = await startProduction()
  const other = await startInstalled({ ...production.env, DATABASE_URL: url })
  const command = start({ TRIGGER_TIME_SECONDS: '1' })
  try {
    await Promise.all([command, other].map((each) => each.line(/Ctrl-C to stop everything/)))
    for (const title of ['Postgres', 'local chain', 'indexer', 'keeper', 'gateway', 'sample API']) {
      expect(command.output()).toMatch(new RegExp(`^ +${title}.* (http|postgres)://`, 'm'))
    }
    // The first URL that the other command prints is left out: it is the URL of the database, which existed before.
    const [ports, otherPorts] = [printedPorts(command), printedPorts(other).slice(1)]
    expect(new Set([...ports, ...otherPorts]).size).toBe(new Set(ports).size + new Set(otherPorts).size)
    const logsOf = (each: RunningCommand) => each.output().match(/Logs: (\S+)\./)?.[1] ?? ''
    expect(logsOf(command)).not.toBe(logsOf(other))
    for (const each of [command, other]) expect(await readdir(logsOf(each))).toContain('keeper.log')

    const sample = command.output().match(/sample API +(http\S+)/)?.[1]
    expect((await fetch(`${sample}/forecast`)).status).toBe(402)
    // The command for another terminal, with the current ports.
    const [, assigned = '', words = ''] =
      command.output().match(/^ +(GATEWAY_URL=.*) (npm run buy .*)$/m) ?? []
    const buyer = runCommand(
      words.split(' '),
      Object.fromEntries(assigned.split(' ').map((one) => one.split('='))),
    )
    expect(await buyer.exited, buyer.output()).toBe(0)
    expect(buyer.stdout()).toContain('celsius')
    await command.line(/accepted +1 payment of 0\.010000 USDC/)
    await followFirstMinutes(command, assigned)
    const line = await other.line(/ npx --no-install tollkeeper buy http/)
    const { folder: cwd } = await installPackages()
    const paid = runCommand(['bash', '-c', line], {}, { cwd })
    expect([await paid.exited, paid.output()]).toEqual([0, expect.stringMatching(/paid: payment pay_/)])

    process.kill(-(command.child.pid as number), 'SIGINT')
    await command.exited
    for (const port of otherPorts)
      expect(await isPortFree(port), 'the other start is still running').toBe(false)
    process.kill(-(other.child.pid as number), 'SIGKILL')
    await other.exited
    await untilGone(other)
    await expectOnlyLogsLeft(command, [...ports, ...otherPorts])

    expect(production.calls()).toBe(0)

    // Another start on the same database begins with an empty schema, and npm passes SIGTERM on.
    const again = start({ DATABASE_URL: url })
    await again.line(/Ctrl-C to stop everything/)
    const sql = postgres(url, { max: 1 })
    // The list has only the provider of the sample API, and none of the earlier start.
    expect(await sql`select name from tollkeeper.provider`).toHaveLength(1)
    await sql.end()
    again.child.kill('SIGTERM')
    await again.exited
    await expectOnlyLogsLeft(again, printedPorts(again).slice(1))
  } finally {
    await killAll(other)
    production.close()
  }
  // Three systems take minutes on a busy machine.
}, 900_000)

test.each([1, 2])(
  'behavior: stops everything if Ctrl-C is pressed %i times during the start',
  async (times) => {
    const command = await startInstalled()
    await command.line(/local chain/)
    process.kill(-(command.child.pid as number), 'SIGINT')
    if (times > 1) {
      await command.line(/Stopping/)
      process.kill(-(command.child.pid as number), 'SIGINT')
    }
    await command.exited
    await expectNothingLeft(command, printedPorts(command))
  },
)

test('error: refuses a DATABASE_URL with another gateway’s schema', async () => {
  const url = await createTestDatabase()
  const sql = postgres(url, { max: 1 })
  await sql`create schema tollkeeper`
  const command = await startInstalled({ DATABASE_URL: url })
  expect(await command.exited).toBe(1)
  expect(command.output()).toContain('DATABASE_URL: expected an empty database')
  expect(await sql`select 1 from pg_namespace where nspname = 'tollkeeper'`).toHaveLength(1)
  await sql.end()
  await expectOnlyLogsLeft(command, printedPorts(command).slice(1))
})

test('error: names taken ports, each with the variable that sets it', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const variables = ['API_PORT', 'CHAIN_PORT', 'KEEPER_PORT']
  const command = await startInstalled(
    Object.fromEntries(variables.map((variable) => [variable, String(port)])),
  )
  expect(await command.exited).toBe(1)
  for (const variable of variables)
    expect(command.output()).toMatch(new RegExp(`^Port ${port} .* set ${variable} to another port`, 'm'))
  await untilGone(command)
  server.close()
})

test('error: rejects a network that the command can’t emulate', async () => {
  const { bin, folder: cwd } = await installPackages()
  running = runCommand([bin, 'start', '--network', 'base'], { ...freePorts, TMPDIR: folder }, { cwd })
  expect(await running.exited).toBe(2)
  expect(running.output()).toContain('--network: expected one of base-sepolia, localhost, got "base"')
})

test('error: refuses an invalid port', async () => {
  const command = await startInstalled({ KEEPER_PORT: '70000' })
  expect(await command.exited).toBe(1)
  expect(command.output()).toContain('KEEPER_PORT: expected a port number (0: any free one), got "70000"')
})

test('error: if a process dies during the start, prints the name and the last output of that process', async () => {
  const command = await startInstalled({ REPLACE_AFTER_MS: 'soon' })
  expect(await command.exited).toBe(1)
  expect(command.output()).toContain('keeper ended at its start')
  expect(command.output()).toContain('REPLACE_AFTER_MS')
  expect(command.output()).toMatch(/Logs of all processes: \S*tollkeeper-logs-/)
  await expectOnlyLogsLeft(command, printedPorts(command))
})
