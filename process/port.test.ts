import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, test } from 'vitest'
import { isPortFree, loopback, reservePort } from './port.ts'

const [from, to] = [18_000, 18_003]

test('behavior: a port is reserved once, in whatever process, until that ends', async () => {
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
  // Reserved, not listened on.
  expect(await isPortFree(ours)).toBe(true)
  child.kill('SIGKILL')
  await once(child, 'exit')
  expect(theirs).toContain(await reservePort(from, to))
})

test('behavior: a port that a server listens on is not given', async () => {
  const server = createServer().listen(19_000, loopback)
  await once(server, 'listening')
  expect(await isPortFree(19_000)).toBe(false)
  expect(await reservePort(19_000, 19_001)).toBe(19_001)
  server.close()
})
