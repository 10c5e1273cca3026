import { setFlagsFromString } from 'node:v8'

/** Grows V8's first megabyte to its greatest young generation in one step. */
const growthFactor = 16

/**
 * Lets V8 grow the young generation to its full size at once, instead of doubling it from 1 MB; for a process that answers
 * requests after rests.
 *
 * Some ten seconds after the last work V8 shrinks its heap, and the young generation begins at 1 MB again. Then it is collected
 * every few milliseconds, requests under way are taken for old, and a collection of the old generation follows
 * within a second; each one stops the process. This takes up to 65 MB more once there was work, and nothing before.
 */
export function growYoungGenerationAtOnce(): void {
  setFlagsFromString(`--semi-space-growth-factor=${growthFactor}`)
}
