import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import { readOptions } from './children.ts'
import { createMortal, type MortalOptions } from './createMortal.ts'

// A keeper in a separate process that kills itself, as `kill -9` would, when it reaches a named checkpoint.

// Exit if the parent process is gone.
process.once('disconnect', () => process.exit(0))
const options = readOptions<MortalOptions>()
const { keeper } = await createMortal(options, (name) => {
  if (name === options.crashAt) process.kill(process.pid, 'SIGKILL')
})
keeper.start()
serve({ fetch: keeper.app.fetch, port: 0, hostname: '127.0.0.1' }, (address: AddressInfo) => {
  process.send?.({ port: address.port })
})
