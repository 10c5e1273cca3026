import { Worker } from 'node:worker_threads'
import type { Hex } from 'viem'
import { hexToBytes } from '#protocol/bytes'
import { hashAuthorization, isCanonicalSignature, recoverableSignature } from '#protocol/eip3009'
import type { SignedAuthorization } from '#protocol/payload'
import { keccak256 } from './keccak256.ts'
import { areSigned, questionLength } from './recoverPayer.ts'

/**
 * Whether the payer's own key signed each of these authorizations: a canonical 65-byte signature that recovers to
 * `from`.
 *
 * @param separator the token's EIP-712 domain separator.
 * @returns one claim an authorization, in order.
 */
export type PayerSignatures = (
  separator: Hex,
  authorizations: readonly SignedAuthorization[],
) => boolean[] | Promise<boolean[]>

/** On the thread that asks. */
export const checkSignaturesHere: PayerSignatures = (separator, authorizations) => {
  const questions = new Uint8Array(authorizations.length * questionLength)
  writeQuestions(questions, 0, separator, authorizations)
  return Array.from(areSigned(questions), Boolean)
}

/**
 * Verifications in one message. Were they all in one, the event loop would wait for the last of them, Postgres for the
 * event loop, and clients for Postgres, each in turn with nothing to do.
 */
const maxTogether = 8

type Asked = {
  separator: Hex
  authorizations: readonly SignedAuthorization[]
  resolve: (isSigned: boolean[]) => void
}

/**
 * On threads of their own, in turn: recovering two keys takes as long as everything else that a verification does, and
 * the thread that serves HTTP is what limits a process. Questions of one turn of the event loop travel together.
 *
 * A thread that fails ends the process: nothing that is sent to it makes it throw.
 */
export function startSignatureThreads(count: number): PayerSignatures {
  const threads = Array.from({ length: count }, startThread)
  let next = 0
  return (separator, authorizations) =>
    new Promise((resolve) => {
      threads[next]?.({ separator, authorizations, resolve })
      next = (next + 1) % count
    })
}

function startThread(): (asked: Asked) => void {
  const worker = new Worker(new URL(import.meta.resolve('#chain/signatureThread')))
  worker.unref()
  let scheduled = false
  const waiting: Asked[] = []
  // Answers come back in the order of the questions.
  const sent: Asked[][] = []

  worker.on('message', (answers: Uint8Array) => {
    let at = 0
    for (const { authorizations, resolve } of sent.shift() ?? []) {
      resolve(Array.from(answers.subarray(at, at + authorizations.length), Boolean))
      at += authorizations.length
    }
  })

  function send(): void {
    scheduled = false
    while (waiting.length > 0) post(waiting.splice(0, maxTogether))
  }

  function post(gathered: Asked[]): void {
    const count = gathered.reduce((sum, { authorizations }) => sum + authorizations.length, 0)
    const questions = new Uint8Array(count * questionLength)
    let at = 0
    for (const { separator, authorizations } of gathered) {
      at = writeQuestions(questions, at, separator, authorizations)
    }
    sent.push(gathered)
    worker.postMessage(questions)
  }

  return (asked) => {
    waiting.push(asked)
    if (!scheduled) setImmediate(send)
    scheduled = true
  }
}

/** @returns the offset behind them. A signature that isn't canonical leaves its place empty, which recovers to nobody. */
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
