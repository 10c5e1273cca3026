/** The code of the threads that `startSignatureThreads` starts. */
import { parentPort } from 'node:worker_threads'
import { areSigned } from './recoverPayer.ts'

parentPort?.on('message', (questions: Uint8Array) => {
  parentPort?.postMessage(areSigned(questions))
})
