import { setFlagsFromString } from 'node:v8'

/** The factor by which V8 grows its young generation at once. From 1 MB, one such step reaches the maximum size. */
const growthFactor = 16

/**
 * Makes V8 grow the young generation to its full size in one step, instead of doubling it from 1 MB; for a process that handles
 * requests after idle periods.
 *
 * Some ten seconds after the last work, V8 shrinks its heap, and the young generation starts at 1 MB again. Then V8 collects it every few
 * milliseconds and moves the data of requests in progress to the old generation, so a collection of the old generation follows within a second. Each
 * collection stops the process. With this setting, the process takes up to 65 MB more memory once it has worked, but not before.
 */
export function growYoungGenerationAtOnce(): void {
  setFlagsFromString(`--semi-space-growth-factor=${growthFactor}`)
}

/**
 * Makes V8 collect the young generation, and free the memory of buffers, on one thread; for a process that answers short requests on few processors.
 * Few of the objects that such a request creates survive it, so V8's helper threads take more CPU than they save. One thread saves 16 µs of CPU per
 * verification.
 */
export function collectYoungGenerationOnOneThread(): void {
  setFlagsFromString('--no-parallel-scavenge')
  setFlagsFromString('--no-concurrent-array-buffer-sweeping')
}
