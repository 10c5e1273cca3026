import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { reapWithUs } from '@tollkeeper/runtime/reaper'
import type { Hex } from 'viem'

export type SignerProcessOptions = {
  keys: Hex[]
  /** The id of the only chain for which the signer signs. */
  chainId: number
  port: number
  /** `clients`: SHA-256 fingerprints of the accepted certificates. Without `clients`, anyone may request signatures. */
  tls?: { certFile: string; keyFile: string; clients?: string[] }
}

/** Ways in which the signer misbehaves for the next requests. If none is set, the signer signs as requested. */
export type SignerMood = {
  /** Holds the requests until the mood changes. */
  holds?: boolean
  status?: number
  /** The result in the signer's response. */
  answers?: unknown
  /** The body of the response, repeated `times` times. */
  text?: string
  times?: number
  /** Fields that the signer signs instead of the requested ones. */
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
  /** Transactions that the signer was asked to sign so far. */
  asked: Record<string, string>[]
  /** Resolves at the next request for a signature. */
  nextAsked: () => Promise<Record<string, string>>
  kill: () => Promise<void>
}

/** Starts a signer in a separate process, on loopback. */
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
    for (const notify of waiting) notify(message.asked)
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
    nextAsked: () => new Promise((notify) => waiting.add(notify)),
    async kill() {
      child.kill('SIGKILL')
      await exited
    },
  }
}
