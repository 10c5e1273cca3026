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
  // Postgres runs as somebody else where we are root.
  await chmod(folder, 0o755)
})
afterEach(async () => {
  if (running) await killAll(running)
  await rm(folder, { recursive: true, force: true })
})

/** As the README has it, in the checkout. */
function start(env: Record<string, string> = {}): RunningCommand {
  running = runCommand(['npm', 'start'], { ...freePorts, TMPDIR: folder, ...env })
  return running
}

/** As the package's users have it, in a folder with nothing else. */
async function startInstalled(env: Record<string, string> = {}): Promise<RunningCommand> {
  const { bin, folder: cwd } = await installPackages()
  running = runCommand([bin, 'start'], { ...freePorts, TMPDIR: folder, ...env }, { cwd })
  return running
}

/** Ports of the URLs that it printed. */
function printedPorts({ output }: RunningCommand): number[] {
  return [...output().matchAll(/(?:http|postgres):\/\/[^\s/]*127\.0\.0\.1:(\d+)/g)].map(([, port]) =>
    Number(port),
  )
}

async function expectNothingLeft(command: RunningCommand, ports: number[]): Promise<void> {
  expect(await leftBehind(command, ports)).toEqual([])
}

/** What ended badly leaves its logs, to be looked at. */
async function expectOnlyLogsLeft(command: RunningCommand, ports: number[]): Promise<void> {
  expect(await leftBehind(command, ports)).toEqual([expect.stringMatching(/^tollkeeper-logs-/)])
}

async function leftBehind(command: RunningCommand, ports: number[]): Promise<string[]> {
  // The reaper is the last to end: it looks after all others are gone.
  await untilGone(command)
  // A process that ends gives its memory back first, which hides it from /proc, and its sockets afterwards.
  for (const port of ports) await until(`port ${port} is free`, () => isPortFree(port))
  return (await readdir(folder)).filter((name) => name.startsWith('tollkeeper'))
}

/**
 * The README's first ten minutes, line by line, with what is printed on the way in place of `…`, until the payment has settled.
 *
 * @param printed what `npm start` printed for a buyer: `NAME=value …`
 */
async function followFirstMinutes({ output }: RunningCommand, printed: string): Promise<void> {
  const readme = await readFile(`${root}/README.md`, 'utf8')
  const [, block = ''] = /```sh first\n(.*?)```/s.exec(readme) ?? []
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
  // Each id and key is what a line before printed.
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

test('default: one line per service with its URL, also beside another one; neither Ctrl-C, SIGKILL nor SIGTERM leaves anything but logs', async () => {
  const url = await createTestDatabase()
  const production = await startProduction()
  const other = await startInstalled({ ...production.env, DATABASE_URL: url })
  const command = start({ TRIGGER_TIME_SECONDS: '1' })
  try {
    await Promise.all([command, other].map((each) => each.line(/Ctrl-C stops everything/)))
    for (const title of ['Postgres', 'local chain', 'indexer', 'keeper', 'gateway', 'sample API']) {
      expect(command.output()).toMatch(new RegExp(`^ +${title}.* (http|postgres)://`, 'm'))
    }
    // The other's first is the database's, which was there before.
    const [ports, otherPorts] = [printedPorts(command), printedPorts(other).slice(1)]
    expect(new Set([...ports, ...otherPorts]).size).toBe(new Set(ports).size + new Set(otherPorts).size)
    const logsOf = (each: RunningCommand) => each.output().match(/Logs: (\S+)\./)?.[1] ?? ''
    expect(logsOf(command)).not.toBe(logsOf(other))
    for (const each of [command, other]) expect(await readdir(logsOf(each))).toContain('keeper.log')

    const sample = command.output().match(/sample API +(http\S+)/)?.[1]
    expect((await fetch(`${sample}/forecast`)).status).toBe(402)
    // What it prints for another terminal, whatever the ports are.
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
    for (const port of otherPorts) expect(await isPortFree(port), 'the other one goes on').toBe(false)
    process.kill(-(other.child.pid as number), 'SIGKILL')
    await other.exited
    await untilGone(other)
    await expectOnlyLogsLeft(command, [...ports, ...otherPorts])

    expect(production.calls()).toBe(0)

    // A further start on the same database begins anew, and npm passes SIGTERM on.
    const again = start({ DATABASE_URL: url })
    await again.line(/Ctrl-C stops everything/)
    const sql = postgres(url, { max: 1 })
    // The sample API's, and nothing of the earlier start.
    expect(await sql`select name from tollkeeper.provider`).toHaveLength(1)
    await sql.end()
    again.child.kill('SIGTERM')
    await again.exited
    await expectOnlyLogsLeft(again, printedPorts(again).slice(1))
  } finally {
    await killAll(other)
    production.close()
  }
  // Three systems: a busy machine takes minutes.
}, 900_000)

test.each([1, 2])('behavior: Ctrl-C in the middle of the start, %i times', async (times) => {
  const command = await startInstalled()
  await command.line(/local chain/)
  process.kill(-(command.child.pid as number), 'SIGINT')
  if (times > 1) {
    await command.line(/Stopping/)
    process.kill(-(command.child.pid as number), 'SIGINT')
  }
  await command.exited
  await expectNothingLeft(command, printedPorts(command))
})

test("error: DATABASE_URL of a gateway that is somebody else's", async () => {
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

test('error: ports that are taken are named, each with the variable that changes it', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const variables = ['API_PORT', 'CHAIN_PORT', 'KEEPER_PORT']
  const command = await startInstalled(
    Object.fromEntries(variables.map((variable) => [variable, String(port)])),
  )
  expect(await command.exited).toBe(1)
  for (const variable of variables)
    expect(command.output()).toMatch(new RegExp(`^Port ${port} .* set ${variable} to another one`, 'm'))
  await untilGone(command)
  server.close()
})

test('error: a network that is none to play', async () => {
  const { bin, folder: cwd } = await installPackages()
  running = runCommand([bin, 'start', '--network', 'base'], { ...freePorts, TMPDIR: folder }, { cwd })
  expect(await running.exited).toBe(2)
  expect(running.output()).toContain('Allowed choices are base-sepolia, localhost')
})

test('error: a port that is none', async () => {
  const command = await startInstalled({ KEEPER_PORT: '70000' })
  expect(await command.exited).toBe(1)
  expect(command.output()).toContain('KEEPER_PORT: expected a port number (0: any free one), got "70000"')
})

test('error: a process that dies at its start is named, with what it said last', async () => {
  const command = await startInstalled({ REPLACE_AFTER_MS: 'soon' })
  expect(await command.exited).toBe(1)
  expect(command.output()).toContain('keeper ended at its start')
  expect(command.output()).toContain('REPLACE_AFTER_MS')
  expect(command.output()).toMatch(/Logs of all processes: \S*tollkeeper-logs-/)
  await expectOnlyLogsLeft(command, printedPorts(command))
})
