import { once } from 'node:events'
import { chmod, mkdtemp, readdir, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import postgres from 'postgres'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { isPortFree } from '#process/port'
import { createTestDatabase } from '../support/database.ts'
import { type RunningCommand, runCommand, untilGone } from '../support/processes.ts'

const freePorts = {
  POSTGRES_PORT: '0',
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
  if (running?.child.exitCode === null) process.kill(-(running.child.pid as number), 'SIGKILL')
  if (running) await untilGone(running)
  await rm(folder, { recursive: true, force: true })
})

function start(env: Record<string, string> = {}): RunningCommand {
  running = runCommand(['npm', 'start'], { ...freePorts, TMPDIR: folder, ...env })
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
  expect(await command.survivors()).toEqual([])
  for (const port of ports) expect(await isPortFree(port), `port ${port}`).toBe(true)
  return (await readdir(folder)).filter((name) => name.startsWith('tollkeeper'))
}

test('default: one line per service with its URL, and Ctrl-C stops everything', async () => {
  const command = start()
  await command.line(/Ctrl-C stops everything/)
  for (const title of ['Postgres', 'local chain', 'indexer', 'keeper', 'gateway', 'sample API']) {
    expect(command.output()).toMatch(new RegExp(`^ +${title}.* (http|postgres)://`, 'm'))
  }
  const ports = printedPorts(command)
  const sample = command.output().match(/sample API +(http\S+)/)?.[1]
  expect((await fetch(`${sample}/forecast`)).status).toBe(402)

  // What it prints for another terminal, whatever the ports are.
  const [, assigned = '', words = ''] = command.output().match(/^ +(GATEWAY_URL=.*) (npm run buy .*)$/m) ?? []
  const buyer = runCommand(
    words.split(' '),
    Object.fromEntries(assigned.split(' ').map((one) => one.split('='))),
  )
  expect(await buyer.exited, buyer.output()).toBe(0)
  expect(buyer.stdout()).toContain('celsius')
  await command.line(/accepted +1 payment of 0\.010000 USDC/)

  process.kill(-(command.child.pid as number), 'SIGINT')
  await command.exited
  await expectNothingLeft(command, ports)
})

test('behavior: npm passes SIGTERM on, and nothing is left either', async () => {
  const command = start()
  await command.line(/Ctrl-C stops everything/)
  const ports = printedPorts(command)
  command.child.kill('SIGTERM')
  await command.exited
  await untilGone(command)
  await expectNothingLeft(command, ports)
})

test('behavior: Ctrl-C twice stops at once', async () => {
  const command = start()
  await command.line(/Ctrl-C stops everything/)
  const ports = printedPorts(command)
  process.kill(-(command.child.pid as number), 'SIGINT')
  await command.line(/Stopping/)
  process.kill(-(command.child.pid as number), 'SIGINT')
  await command.exited
  await untilGone(command)
  await expectNothingLeft(command, ports)
})

test('behavior: Ctrl-C in the middle of the start', async () => {
  const command = start()
  await command.line(/local chain/)
  process.kill(-(command.child.pid as number), 'SIGINT')
  await command.exited
  await expectNothingLeft(command, printedPorts(command))
})

test('behavior: even a SIGKILL of all of npm start leaves nothing but logs', async () => {
  const command = start()
  await command.line(/Ctrl-C stops everything/)
  const ports = printedPorts(command)
  process.kill(-(command.child.pid as number), 'SIGKILL')
  await command.exited
  await untilGone(command)
  await expectOnlyLogsLeft(command, ports)
})

test('behavior: two at the same time, each with its own ports and logs', async () => {
  const first = start()
  await first.line(/Ctrl-C stops everything/)
  const second = runCommand(['npm', 'start'], { ...freePorts, TMPDIR: folder })
  try {
    await second.line(/Ctrl-C stops everything/)
    const logsOf = (command: RunningCommand) => command.output().match(/Logs: (\S+)\./)?.[1] ?? ''
    expect(logsOf(first)).not.toBe(logsOf(second))
    for (const each of [first, second]) expect(await readdir(logsOf(each))).toContain('keeper.log')
    process.kill(-(second.child.pid as number), 'SIGINT')
    await second.exited
    expect(await isPortFree(printedPorts(first)[1] as number), 'the first goes on').toBe(false)
    process.kill(-(first.child.pid as number), 'SIGINT')
    await first.exited
    await expectNothingLeft(first, [...printedPorts(first), ...printedPorts(second)])
  } finally {
    if (second.child.exitCode === null) process.kill(-(second.child.pid as number), 'SIGKILL')
    await untilGone(second)
  }
})

test('args: DATABASE_URL: a second start on the same database begins anew', async () => {
  const url = await createTestDatabase()
  for (let round = 0; round < 2; round++) {
    const command = start({ DATABASE_URL: url })
    await command.line(/Ctrl-C stops everything/)
    // The sample API's, and nothing of an earlier start.
    const sql = postgres(url, { max: 1 })
    expect(await sql`select name from tollkeeper.provider`).toHaveLength(1)
    await sql.end()
    process.kill(-(command.child.pid as number), 'SIGINT')
    await command.exited
    expect(await command.survivors()).toEqual([])
  }
})

test("error: DATABASE_URL of a gateway that is somebody else's", async () => {
  const url = await createTestDatabase()
  const sql = postgres(url, { max: 1 })
  await sql`create schema tollkeeper`
  const command = start({ DATABASE_URL: url })
  expect(await command.exited).toBe(1)
  expect(command.output()).toContain('DATABASE_URL: expected an empty database')
  expect(await sql`select 1 from pg_namespace where nspname = 'tollkeeper'`).toHaveLength(1)
  await sql.end()
  await expectOnlyLogsLeft(command, printedPorts(command).slice(1))
})

test('error: a taken port is named with the variable that changes it', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  for (const variable of ['API_PORT', 'CHAIN_PORT', 'POSTGRES_PORT']) {
    const command = start({ [variable]: String(port) })
    expect(await command.exited).toBe(1)
    expect(command.output()).toContain(`Port ${port}`)
    expect(command.output()).toContain(`set ${variable} to another one`)
    expect(await command.survivors()).toEqual([])
  }
  server.close()
})

test.each([
  ['API_PORT', 'eighty', 'API_PORT: expected a port number (0: any free one), got "eighty"'],
  ['KEEPER_PORT', '70000', 'KEEPER_PORT: expected a port number (0: any free one), got "70000"'],
])('error: %s=%s', async (variable, value, message) => {
  const command = start({ [variable]: value })
  expect(await command.exited).toBe(1)
  expect(command.output()).toContain(message)
})

test('error: a process that dies at its start is named, with what it said last', async () => {
  const command = start({ REPLACE_AFTER_MS: 'soon' })
  expect(await command.exited).toBe(1)
  expect(command.output()).toContain('keeper ended at its start')
  expect(command.output()).toContain('REPLACE_AFTER_MS')
  expect(command.output()).toMatch(/Logs of all processes: \S*tollkeeper-logs-/)
  await expectOnlyLogsLeft(command, printedPorts(command))
})
