import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, test } from 'vitest'
import { isPortFree, loopback, reservePort } from './port.ts'

// Four ports that differ in each run, because two test suites may run on one machine.
const from = 12_000 + 4 * Math.floor(Math.random() * 1_900)
const to = from + 3

test('behavior: reserves a port for one process until that process ends, and never reserves the port twice in the meantime', async () => {
  const program = `
    import { reservePort } from ${JSON.stringify(new URL('./port.ts', import.meta.url).href)}
    const ports = []
    while (ports.length < 3) ports.push(await reservePort(${from}, ${to}))
    console.log(JSON.stringify(ports))
    process.stdin.resume()`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const [line] = await once(child.stdout, 'data')
  const theirs: number[] = JSON.parse(String(line))
  const ours = await reservePort(from, to)
  expect(new Set([...theirs, ours]).size).toBe(4)
  await expect(reservePort(from, to)).rejects.toThrow(`No port from ${from} to ${to} is free`)
  // The port is reserved, but no server listens on it.
  expect(await isPortFree(ours)).toBe(true)
  child.kill('SIGKILL')
  await once(child, 'exit')
  expect(theirs).toContain(await reservePort(from, to))
})

test('behavior: does not return a port on which a server listens', async () => {
  const server = createServer().listen(0, loopback)
  await once(server, 'listening')
  const { port: taken } = server.address() as AddressInfo
  expect(await isPortFree(taken)).toBe(false)
  await expect(reservePort(taken, taken)).rejects.toThrow('is free')
  server.close()
})
