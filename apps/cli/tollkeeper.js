#!/usr/bin/env node
// This file is plain JavaScript: if the machine's Node is too old to run TypeScript, it starts the Node that npm installed here.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

// In the package, the program is JavaScript already.
const built = new URL('./main.js', import.meta.url)
const main = existsSync(built) ? built : new URL('./main.ts', import.meta.url)
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)

if (major > 22 || (major === 22 && minor >= 18)) {
  await import(main.href)
} else {
  const own = fileURLToPath(new URL('../../node_modules/node/bin/node', import.meta.url))
  if (!existsSync(own)) {
    process.stderr.write(
      `tollkeeper: needs Node 22.18 or newer, this is ${process.versions.node}${main === built ? '' : '; npm ci installs one if install scripts are allowed'}\n`,
    )
    process.exit(2)
  }
  const child = spawn(own, [fileURLToPath(main), ...process.argv.slice(2)], { stdio: 'inherit' })
  // On a terminal, Ctrl-C also reaches the child, so this process waits for the child to end.
  process.on('SIGINT', () => {})
  process.on('SIGTERM', () => child.kill('SIGTERM'))
  child.on('exit', (status) => process.exit(status ?? 1))
}
