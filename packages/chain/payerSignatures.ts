import { Worker } from 'node:worker_threads'
import { hexToBytes } from '@tollkeeper/sdk/protocol/bytes'
import {
  hashAuthorization,
  isCanonicalSignature,
  recoverableSignature,
} from '@tollkeeper/sdk/protocol/eip3009'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { Hex } from 'viem'
import { keccak256 } from './keccak256.ts'
import { areSigned, questionLength } from './recoverPayer.ts'

/**
 * Checks whether the payer's own key signed each authorization, that is, whether the signature has the canonical 65 bytes and
 * recovers to `from`.
 *
 * @param separator the token's EIP-712 domain separator.
 * @returns one boolean per authorization, in order.
 */
export type PayerSignatures = (
  separator: Hex,
  authorizations: readonly SignedAuthorization[],
) => boolean[] | Promise<boolean[]>

/** Checks signatures on the calling thread. */
export const checkSignaturesHere = (
  separator: Hex,
  authorizations: readonly SignedAuthorization[],
): boolean[] => {
  const questions = new Uint8Array(authorizations.length * questionLength)
  writeQuestions(questions, 0, separator, authorizations)
  return Array.from(areSigned(questions), Boolean)
}

/**
 * Maximum number of verifications in one message. If one message contained all of them, the event loop would wait for the last
 * verification, Postgres for the event loop, and clients for Postgres, so only one of them would work at a time.
 */
const maxTogether = 8

/**
 * Maximum number of verifications that the calling thread performs itself while no other thread is working. A message would wake
 * up two threads, which costs up to 90 µs more, and an idle process has time for the verification (docs/performance.md).
 */
const maxHere = 2

type Asked = {
  separator: Hex
  authorizations: readonly SignedAuthorization[]
  resolve: (isSigned: boolean[]) => void
}

/**
 * Checks signatures on separate threads, which take turns. Recovering two keys takes as long as the rest of a verification, so on
 * the thread that serves HTTP it would limit the whole process. Requests of one turn of the event loop are sent together; a small
 * number is checked on the calling thread.
 *
 * If a thread fails, the process ends, because no valid input makes a thread throw.
 */
export function startSignatureThreads(count: number): PayerSignatures {
  const threads = Array.from({ length: count }, startThread)
  let next = 0
  let waiting: Asked[] = []

  function send(): void {
    const asked = waiting
    waiting = []
    if (asked.length <= maxHere && threads.every(({ isIdle }) => isIdle())) {
      for (const { separator, authorizations, resolve } of asked)
        resolve(checkSignaturesHere(separator, authorizations))
      return
    }
    const together = Math.min(maxTogether, Math.ceil(asked.length / count))
    for (let at = 0; at < asked.length; at += together) {
      threads[next]?.post(asked.slice(at, at + together))
      next = (next + 1) % count
    }
  }

  return (separator, authorizations) =>
    new Promise((resolve) => {
      if (waiting.push({ separator, authorizations, resolve }) === 1) setImmediate(send)
    })
}

function startThread(): { post: (asked: Asked[]) => void; isIdle: () => boolean } {
  const worker = new Worker(new URL(import.meta.resolve('@tollkeeper/chain/signatureThread')))
  worker.unref()
  // The requests that the thread has not answered yet. Results arrive in the same order.
  const sent: Asked[][] = []

  worker.on('message', (answers: Uint8Array) => {
    let at = 0
    for (const { authorizations, resolve } of sent.shift() ?? []) {
      resolve(Array.from(answers.subarray(at, at + authorizations.length), Boolean))
      at += authorizations.length
    }
  })

  function post(asked: Asked[]): void {
    const count = asked.reduce((sum, { authorizations }) => sum + authorizations.length, 0)
    const questions = new Uint8Array(count * questionLength)
    let at = 0
    for (const { separator, authorizations } of asked) {
      at = writeQuestions(questions, at, separator, authorizations)
    }
    sent.push(asked)
    worker.postMessage(questions)
  }

  return { post, isIdle: () => sent.length === 0 }
}

/**
 * Writes the requests. A signature that isn't canonical leaves its bytes empty, so that it recovers to no address.
 *
 * @returns the offset after the requests.
 */
function writeQuestions(
  target: Uint8Array,
  offset: number,
  separator: Hex,
  authorizations: readonly SignedAuthorization[],
): number {
  let at = offset
  for (const authorization of authorizations) {
    if (isCanonicalSignature(authorization.signature)) {
      const { rs, recovery } = recoverableSignature(authorization.signature)
      target.set(rs, at)
      target[at + 64] = recovery
      target.set(hashAuthorization(separator, authorization, keccak256), at + 65)
      target.set(hexToBytes(authorization.from), at + 97)
    }
    at += questionLength
  }
  return at
}
