/** The code of a thread of `startSignatureThreads`. */
import { parentPort } from 'node:worker_threads'
import { areSigned } from './recoverPayer.ts'

parentPort?.on('message', (questions: Uint8Array) => {
  parentPort?.postMessage(areSigned(questions))
})
