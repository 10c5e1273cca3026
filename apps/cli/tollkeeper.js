#!/usr/bin/env node
// Plain JavaScript: where the machine's Node is too old to run TypeScript, the one that npm installed here takes over.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

// In the package it is JavaScript already.
const built = new URL('./main.js', import.meta.url)
const main = existsSync(built) ? built : new URL('./main.ts', import.meta.url)
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)

if (major > 22 || (major === 22 && minor >= 18)) {
  await import(main.href)
} else {
  const own = fileURLToPath(new URL('../../node_modules/node/bin/node', import.meta.url))
  if (!existsSync(own)) {
    process.stderr.write(
      `tollkeeper: needs Node 22.18 or newer, this is ${process.versions.node}${main === built ? '' : '; npm ci brings one along where install scripts run'}\n`,
    )
    process.exit(2)
  }
  const child = spawn(own, [fileURLToPath(main), ...process.argv.slice(2)], { stdio: 'inherit' })
  // A terminal's Ctrl-C reaches the child by itself; it is waited for.
  process.on('SIGINT', () => {})
  process.on('SIGTERM', () => child.kill('SIGTERM'))
  child.on('exit', (status) => process.exit(status ?? 1))
}
