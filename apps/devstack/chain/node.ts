/**
 * A local chain in a separate process, which startLocalChain.ts forks. The process receives its options and sends its port over
 * the fork's channel. It ends when the channel closes, so it never outlives its parent.
 */
import { once } from 'node:events'
import { type EdrOptions, startEdr } from './edr.ts'
import { serveRpc } from './rpcServer.ts'
import { keepSideBlocks } from './sideBlocks.ts'

export type NodeOptions = EdrOptions & { port: number }

// Ctrl-C reaches the whole process group, but the parent decides when the chain stops.
process.on('SIGINT', () => {})
process.on('SIGTERM', () => process.exit(0))
process.on('disconnect', () => process.exit(0))

try {
  const [options] = (await once(process, 'message')) as [NodeOptions]
  const port = await serveRpc(options.port, keepSideBlocks(await startEdr(options)))
  process.send?.({ port })
} catch (error) {
  process.send?.({ error: error instanceof Error ? error.message : String(error) })
  process.exitCode = 1
  process.disconnect()
}
