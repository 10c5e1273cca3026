import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { reapWithUs } from '@tollkeeper/runtime/reaper'
import type { Hex } from 'viem'

export type SignerProcessOptions = {
  keys: Hex[]
  /** Of the one chain that it signs for. */
  chainId: number
  port: number
  /** `clients`: SHA-256 fingerprints of the certificates that it knows; without, anyone may ask. */
  tls?: { certFile: string; keyFile: string; clients?: string[] }
}

/** What it does with the next requests for a signature; empty: it signs. */
export type SignerMood = {
  /** Keeps them until its mood changes. */
  holds?: boolean
  status?: number
  /** The result that it answers with. */
  answers?: unknown
  /** The body that it answers with, `times` times. */
  text?: string
  times?: number
  /** Fields that it signs instead of those that were asked for. */
  changes?: Record<string, string | number>
  value?: string
  isLegacy?: boolean
  withKey?: Hex
}

export type SignerMessage = { port: number } | { asked: Record<string, string> }

export type TestSigner = {
  url: string
  port: number
  set: (mood: SignerMood) => void
  /** Transactions that it was asked to sign so far. */
  asked: Record<string, string>[]
  /** Resolves when it is asked the next time. */
  nextAsked: () => Promise<Record<string, string>>
  kill: () => Promise<void>
}

/** Starts a signer as a process of its own, on loopback. */
export async function startSigner(
  options: Omit<SignerProcessOptions, 'port'> & { port?: number },
): Promise<TestSigner> {
  const path = fileURLToPath(new URL('signerProcess.ts', import.meta.url))
  const child = fork(path, [JSON.stringify({ port: 0, ...options })], { detached: true })
  const forget = child.pid === undefined ? () => {} : reapWithUs(child.pid)
  const asked: TestSigner['asked'] = []
  const waiting = new Set<(asked: Record<string, string>) => void>()
  const { promise: listening, resolve } = Promise.withResolvers<number>()
  child.on('message', (message: SignerMessage) => {
    if ('port' in message) return resolve(message.port)
    asked.push(message.asked)
    for (const told of waiting) told(message.asked)
    waiting.clear()
  })
  const exited = once(child, 'exit').then(forget)
  const port = await Promise.race([
    listening,
    exited.then((): never => {
      throw new Error('the signer ended at its start')
    }),
  ])
  return {
    url: options.tls ? `https://localhost:${port}` : `http://127.0.0.1:${port}`,
    port,
    asked,
    set: (mood) => child.send(mood),
    nextAsked: () => new Promise((told) => waiting.add(told)),
    async kill() {
      child.kill('SIGKILL')
      await exited
    },
  }
}
